"""PyTorch itself takes what the baselines pass it, and computes what the kernels compute."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tilewatch.baselines import BASELINES, TORCH

ROOT = Path(__file__).parents[3]
PROGRAM = "tests.kernels.baselines.fixtures.run_with_pytorch"
ON_A_GPU = ("cublaslt", "cublaslt_nvfp4", "cublaslt_mxfp8", "cublaslt_per_group")
"""Products with scales, which PyTorch computes on a GPU alone: test_contracts.py has their checks."""


@pytest.mark.torch
def test_each_baseline_of_pytorch_computes_what_its_kernels_do() -> None:
    """A baseline may be off by four times the tolerance. On these inputs none is off by more than two."""
    asked = [each.name for each in BASELINES if each.package == TORCH and each.name not in ON_A_GPU]
    done = subprocess.run([sys.executable, "-m", PROGRAM, *asked], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    errors: dict[str, float] = json.loads(done.stdout)
    assert {each.partition(" ")[0] for each in errors} == set(asked)
    assert {each: error for each, error in errors.items() if not error <= 2} == {}
