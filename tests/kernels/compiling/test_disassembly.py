"""Stored code becomes text, and a changed line of a library is found again in it; without a GPU."""

import shutil
from pathlib import Path

import pytest

from tilewatch.kernels.code_diff.code_diff import diff_code
from tilewatch.kernels.code_diff.source_line import SourceLine
from tilewatch.kernels.compiling import disassembly
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.compiling.disassembly import NotDisassembled, disassemble, read_code_texts
from tilewatch.kernels.compiling.store import CubinStore, folder
from tilewatch.kernels.library import FOLDER

OLD = "raised = ct.exp2((values - ct.max(values, axis=1, keepdims=True)) * LOG2_E, flush_to_zero=True)"
CONFIG = {"tile_rows": 1, "persistent": 0, "allow_tma": 1, "occupancy": 1, "num_worker_warps": 4}


def test_the_changed_line_is_named_from_two_stored_cubins_and_their_bytecode(tmp_path: Path) -> None:
    changed = tmp_path / "library"
    shutil.copytree(FOLDER, changed)
    source = (changed / "elementwise.py").read_text()
    assert source.count(OLD) == 1
    (changed / "elementwise.py").write_text(
        source.replace(OLD, OLD.replace("flush_to_zero=True", "flush_to_zero=False"))
    )
    store = folder(tmp_path / "cubins")
    with Compiler(store) as compiler:
        keys = [compiler.compile(at, "softmax", "16384x1024", CONFIG, "sm_90").content_key for at in (FOLDER, changed)]
    assert keys[0] is not None
    assert keys[1] is not None
    (base,), (head,) = (read_code_texts(CubinStore(store), key).values() for key in keys if key is not None)
    diff = diff_code(base, head)
    line = source[: source.index(OLD)].count("\n") + 1
    assert diff.lines[0] == SourceLine("watched_library/elementwise.py", line)
    assert diff.sentence.startswith(f"elementwise.py:{line} does something else (exp2: flush_to_zero -> nothing)")
    assert diff.machine_lines[0] == SourceLine("watched_library/elementwise.py", line)


def test_code_that_cannot_be_read_says_the_error_and_not_the_warning_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvdisasm"
    program.write_text(
        "#!/bin/sh\n"
        "echo \"nvdisasm error   : Opclass 'nop_', undefined value 0x10\" >&2\n"
        "echo 'nvdisasm warning : Dataflow analysis disabled' >&2\n"
        "exit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(disassembly, "find_program", lambda _: str(program))
    with pytest.raises(NotDisassembled, match=r"^nvdisasm: nvdisasm error   : Opclass 'nop_', undefined value 0x10$"):
        disassemble(b"a cubin", None)
