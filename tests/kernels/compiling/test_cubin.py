"""What is read out of a cubin: the hash of its code, and the compiler's remarks."""

import dataclasses
import io

from cuda.tile.compilation import export_kernel

from tests.kernels.fixtures.gpu_library import rows
from tilewatch.kernels.compiling.cubin import code_sha256, remarks
from tilewatch.kernels.signature import signature, tile_signature

YAML = """--- !Passed
Pass:            Memory
Name:            RemarkMemoryLoadInstructionSelected
DebugLoc:        { File: 'watched_library/gemm.py', Line: 46, Column: 16 }
Function:        gemm
Args:
  - RemarkId:    3
  - Remark:      Load instruction selected
  - Instruction: TMA Load instruction
  - Shape:       '[128, 128]'
...
--- !Missed
Pass:            Tensor-core
Name:            RemarkTensorCoreMMA
DebugLoc:        { File: 'watched_library/gemm.py', Line: 12, Column: 18 }
Function:        gemm
Args:
  - RemarkId:    4
  - Reason:      Tile too small
...
"""


def test_remarks_are_read_in_source_order() -> None:
    missed, passed = remarks(YAML)
    assert (missed["line"], missed["passed"], missed["text"]) == (12, False, "Tile too small")
    assert (passed["line"], passed["passed"], passed["instruction"]) == (46, True, "TMA Load instruction")
    assert passed["shape"] == "[128, 128]"


def test_no_remarks_are_none() -> None:
    assert remarks("") == ()


def test_the_name_of_a_kernel_is_no_part_of_its_code() -> None:
    """So that a commit that only renames a kernel needs no GPU. A digit more in a constant is other code."""
    (kernel,) = rows.KERNELS
    problem = kernel.parse("1024x256")
    hashes = []
    for name, repeats in (("add_tiles", 1), ("a_much_longer_name", 1), ("add_tiles", 2)):
        wanted = signature(kernel, problem, {"rows": 4, "repeats": repeats, "fault": rows.RIGHT})
        cubin = io.BytesIO()
        asked = tile_signature(dataclasses.replace(wanted, symbol=name))
        export_kernel(kernel.entry, [asked], cubin, gpu_code="sm_90", output_format="cubin")
        hashes.append(code_sha256(cubin.getvalue()))
    assert hashes[0] == hashes[1] != hashes[2]
