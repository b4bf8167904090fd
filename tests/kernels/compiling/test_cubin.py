"""Remarks of the compiler, as it writes them."""

from tilewatch.kernels.compiling.cubin import remarks

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
