"""The interpreter against the real thing: the same cases, compiled, with the same answers on a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewatch.kernels import device
from tools.tile_interpreter import case_file


def test_a_case_file_holds_cubins_inputs_and_answers(tmp_path: Path) -> None:
    count, failures = case_file.write(tmp_path / "cases.npz", "sm_90", 1, ["probe_integers", "gemm_fp8"])
    assert (count, failures) == (2, [])
    contents = np.load(tmp_path / "cases.npz")
    probe, product = json.loads(contents["manifest"].tobytes())
    assert (probe["kernel"], product["kernel"]) == ("probe_integers", "gemm_fp8")
    for case in (probe, product):
        assert contents[f"cubin/{case['content_key']}"].tobytes().startswith(b"\x7fELF")
    assert contents["input/probe_integers/one/a"].dtype == np.int32
    assert contents["output/1/d"].dtype == np.uint16


@pytest.mark.gpu
def test_a_gpu_gives_the_interpreter_s_answers(tmp_path: Path) -> None:
    model = device.gpus()[0].model
    assert model is not None
    cases = tmp_path / "cases.npz"
    _, failures = case_file.write(cases, model.arch, 1)
    assert not failures
    # In a process of its own: one that holds the GPU would be somebody else's to the tests that come after.
    done = subprocess.run([sys.executable, "-m", "tools.tile_interpreter.on_gpu", str(cases)], capture_output=True)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
