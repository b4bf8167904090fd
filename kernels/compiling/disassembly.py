"""Disassembles stored machine code and bytecode into text with NVIDIA's programs."""

import functools
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tilewatch.kernels.code_diff.code_diff import CodeText
from tilewatch.kernels.compiling.operator_code import list_code
from tilewatch.kernels.compiling.programs import find_program
from tilewatch.kernels.compiling.store import CubinStore

LIMIT_S = 60.0
"""Seconds that a disassembler may take. It takes 0.2 to 1.4 s on two busy cores, for up to 12,800 lines (2026-11)."""

LISTINGS_KEPT = 16
"""Most disassembled texts that are cached. A page compares a winner with the previous winner and with the next best
config, and the next night's page does so again. Disassembling takes at least 0.9 s on a busy core (2026-11-22)."""


class NotDisassembled(Exception):
    """Raised if a disassembler cannot read the code."""


def read_code_texts(store: CubinStore, content_key: str) -> dict[str, CodeText]:
    """Returns the disassembled code of each launch of a config, by launch key."""
    cubins = list_code(store.cubin(content_key))
    bytecode = store.bytecode(content_key)
    bytecodes = {} if bytecode is None else list_code(bytecode)
    with ThreadPoolExecutor() as pool:
        return dict(pool.map(lambda key: (key, disassemble(cubins[key], bytecodes.get(key))), cubins))


def disassemble(cubin: bytes, bytecode: bytes | None) -> CodeText:
    """Returns a cubin and its bytecode as text. Raises ProgramMissing or NotDisassembled."""
    listing = _run((find_program("nvdisasm"), "-g", "-c"), cubin, ".cubin")
    return CodeText(listing, None if bytecode is None else disassemble_bytecode(bytecode))


def list_encoded_sass(cubin: bytes) -> str:
    """Returns a cubin as text with the encoding of each instruction."""
    return _run((find_program("nvdisasm"), "--print-instruction-encoding"), cubin, ".cubin")


def disassemble_bytecode(bytecode: bytes) -> str:
    """Returns bytecode as text. Raises ProgramMissing or NotDisassembled."""
    return _run((find_program("tileirdisasm"), "-g"), bytecode, ".tileirbc")


@functools.lru_cache(LISTINGS_KEPT)
def _run(command: tuple[str, ...], content: bytes, suffix: str) -> str:
    with tempfile.TemporaryDirectory(prefix="tilewatch-disassembly-") as folder:
        file = Path(folder) / f"code{suffix}"
        file.write_bytes(content)
        try:
            done = subprocess.run([*command, str(file)], capture_output=True, timeout=LIMIT_S, check=True)
        except subprocess.CalledProcessError as error:
            raise NotDisassembled(f"{Path(command[0]).name}: {_first_error(error.stderr)}") from None
        except subprocess.TimeoutExpired:
            raise NotDisassembled(f"{Path(command[0]).name} took over {LIMIT_S:g} s") from None
        return done.stdout.decode(errors="replace")


def _first_error(stderr: bytes) -> str:
    """Returns the first error in a program's output. Later errors only follow from it."""
    lines = stderr.decode(errors="replace").strip().splitlines() or ["failed"]
    return next((line for line in lines if " error" in line), lines[-1])
