"""A launch from its description passes what `ct.launch` passes, byte by byte."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import install_for_children


@pytest.fixture(scope="module")
def passed() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        install_for_children(patch)
        command = [sys.executable, "-m", "tests.kernels.gpu.host_code.fixtures.passed_values"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("launch", "convention", "count"),
    [
        ("plain", 1, 5 + 3 + 7),
        ("a transposed and a shifted array", 1, 5 + 3 + 7),
        ("a dimension of one", 2, 7 + 3 + 5),
        ("a tuple", 2, 5 + 7 + 7),
        ("one memory twice", 2, 5 + 5 + 5),
        ("64 bits", 1, 5 + 1),
    ],
)
def test_a_described_launch_passes_what_ct_launch_passes(
    passed: dict[str, Any], launch: str, convention: int, count: int
) -> None:
    found, theirs, ours = passed[launch]
    assert (found, len(ours)) == (convention, count)
    assert ours == theirs


def test_a_dependent_launch_asks_the_driver_for_what_ct_launch_asks_for(passed: dict[str, Any]) -> None:
    is_dependent, (plain, theirs, ours), their_values, our_values = passed["dependent"]
    assert is_dependent
    assert theirs["grid"] == [8, 2, 1]
    assert theirs != plain, "what the attribute changes is seen here"
    assert ours == theirs
    assert our_values == their_values
