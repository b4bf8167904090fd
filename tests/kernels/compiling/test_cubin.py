"""What is read out of a cubin: the hash of its code, and the compiler's remarks."""

import dataclasses
import io
import re

from cuda.tile.compilation import export_kernel

from tests.kernels.fixtures.gpu_library import rows
from tilewatch.kernels.catalog.signature import signature, tile_signature
from tilewatch.kernels.compiling.cubin import hash_machine_code, read_remarks

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
    missed, passed = read_remarks(YAML)
    assert (missed["line"], missed["passed"], missed["text"]) == (12, False, "Tile too small")
    assert (passed["line"], passed["passed"], passed["instruction"]) == (46, True, "TMA Load instruction")
    assert passed["shape"] == "[128, 128]"


def test_no_remarks_are_none() -> None:
    assert read_remarks("") == ()


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
        hashes.append(hash_machine_code(cubin.getvalue()))
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_version_of_the_compiler_is_no_difference_between_toolchains_and_a_launch_limit_is() -> None:
    (kernel,) = rows.KERNELS
    wanted = signature(kernel, kernel.parse("1024x256"), {"rows": 4, "repeats": 1, "fault": rows.RIGHT})
    file = io.BytesIO()
    export_kernel(kernel.entry, [tile_signature(wanted)], file, gpu_code="sm_90", output_format="cubin")
    cubin = file.getvalue()
    (version,) = re.findall(rb"\x04\x37\x04\x00....", cubin, re.DOTALL)
    newer = cubin.replace(version, version[:4] + b"\xff" + version[5:])
    (threads,) = re.findall(rb"\x04\x10\x0c\x00....", cubin, re.DOTALL)
    fewer = cubin.replace(threads, threads[:4] + b"\x20" + threads[5:])
    assert hash_machine_code(newer) != hash_machine_code(cubin)
    assert hash_machine_code(newer, with_version=False) == hash_machine_code(cubin, with_version=False)
    assert hash_machine_code(fewer, with_version=False) != hash_machine_code(cubin, with_version=False)
