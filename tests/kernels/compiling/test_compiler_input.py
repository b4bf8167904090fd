"""What makes a compiler's input with the cuda-tile that is installed: one that does not fit is named in a sentence."""

import importlib.metadata
import subprocess
import sys

import pytest

IMPORT = """
import sys
sys.modules[{missing!r}] = None  # as if this version did not have it
import tilewatch.kernels.compiling.compiler_input
"""


@pytest.mark.parametrize("missing", ["cutile_cache._remarks", "cuda.tile._compiler_options"])
def test_a_cuda_tile_that_does_not_fit_is_named_with_those_that_do(missing: str) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT.format(missing=missing)], capture_output=True, text=True)
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    own = importlib.metadata.version("cuda-tile")
    assert sentence.startswith(f"cuda-tile {own} does not fit: Tilewatch needs 1.6 or 1.7 (")
    assert missing in sentence
