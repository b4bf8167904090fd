"""Makes toolchains with a planted fault from the installed one. Their files are links, and all have the same
version."""

import importlib.metadata
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilewatch.kernels.toolchains.toolchain import LIST, SITE, Toolchain, find_toolchain

PACKAGES = ("cuda-tile", "nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
BIN = "nvidia/cu13/bin"
HINTS = "cuda/tile/_ir2bytecode.py"

RUN = 'exec "$REAL" "$@"'
WITHOUT_LEVEL = 'for each; do shift; case "$each" in -O*) ;; *) set -- "$@" "$each" ;; esac; done\n'
OF_GEMM_FP8 = 'if [ -f "$1" ] && grep -q gemm_fp8 "$1"; then'
"""Shell condition that is true if tileiras compiles the kernel gemm_fp8: the bytecode, its first argument, contains the
name."""

Effect = Literal["machine code", "stops compiling", "slower to compile", "nothing"]


@dataclass(frozen=True)
class Planted:
    """A fault, and the verdict that the comparison should give. `script` is a shell script that replaces `program` and
    finds the real program in $REAL. `patch` replaces a text in a file of the toolchain. The fault shows on the
    architecture `arch`."""

    name: str
    effect: Effect
    script: str = RUN
    program: Literal["tileiras", "ptxas"] = "tileiras"
    patch: tuple[str, str, str] | None = None
    arch: str = "sm_90"


UNHARMED = Planted("unharmed", "nothing")

PLANTED = (
    Planted("no-optimisation", "machine code", WITHOUT_LEVEL + 'exec "$REAL" -O0 "$@"'),
    Planted("less-optimisation", "machine code", WITHOUT_LEVEL + 'exec "$REAL" -O1 "$@"'),
    Planted("checks-memory", "machine code", 'exec "$REAL" --sanitize=memcheck "$@"'),
    Planted(
        "ptxas-optimises-less",
        "machine code",
        'exec "$REAL" $(printf "%s " "$@" | sed "s/--opt-level 3/--opt-level 1/")',
        "ptxas",
    ),
    Planted(
        "drops-num-ctas",
        "machine code",
        patch=(HINTS, 'num_cta_in_cga=fields.get("num_ctas")', "num_cta_in_cga=None"),
    ),
    Planted("spills", "machine code", patch=(HINTS, 'occupancy=fields.get("occupancy")', "occupancy=4")),
    Planted("sleeps", "slower to compile", f"sleep 4\n{RUN}"),
    Planted("compiles-three-times", "slower to compile", f'"$REAL" "$@" && "$REAL" "$@"\n{RUN}'),
    Planted("fails-on-one-kernel", "stops compiling", f"{OF_GEMM_FP8} exit 5; fi\n{RUN}"),
    Planted("never-ends-on-one-kernel", "stops compiling", f"{OF_GEMM_FP8} while :; do :; done; fi\n{RUN}"),
    Planted(
        "other-code-on-sm_100",
        "machine code",
        f'case "$*" in *"--gpu-name sm_100 "*) {WITHOUT_LEVEL} exec "$REAL" -O1 "$@" ;; esac\n{RUN}',
        arch="sm_100",
    ),
    Planted("other-order-of-options", "nothing", 'first=$1; shift; exec "$REAL" "$@" "$first"'),
)


def make_toolchain(root: Path, planted: Planted, name: str = "") -> Toolchain:
    """Makes a folder as `tilewatch toolchain add` does. The toolchain has the name of the fault unless `name` is
    given."""
    folder = root / (name or planted.name)
    site = folder / SITE
    lines = []
    for package in PACKAGES:
        installed = importlib.metadata.distribution(package)
        lines.append(f"{package}=={installed.version} --hash=sha256:{'0' * 64}")
        for file in installed.files or ():
            if file.parts[0] in ("cuda", "cutile_cache", "nvidia") or ".dist-info" in file.parts[0]:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                (site / file).symlink_to(Path(str(installed.locate_file(file))).resolve())
    _plant(site, planted)
    (folder / LIST).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return find_toolchain(root, folder.name)


def _plant(site: Path, planted: Planted) -> None:
    tileiras = site / BIN / "tileiras"
    if planted.program == "ptxas":
        _copy(tileiras)  # a copy, because tileiras looks for ptxas in its own folder
    program = site / BIN / planted.program
    real = program.resolve()
    program.unlink()
    program.write_text(f'#!/bin/sh\nREAL="{real}"\n{planted.script}\n', encoding="utf-8")
    program.chmod(0o755)
    if planted.patch is not None:
        file, old, new = planted.patch
        _copy(site / file)
        source = (site / file).read_text(encoding="utf-8")
        assert source.count(old) == 1, f"{file} of cuda-tile has changed: it has {source.count(old)} times {old}"
        (site / file).write_text(source.replace(old, new), encoding="utf-8")


def _copy(link: Path) -> None:
    real = link.resolve()
    link.unlink()
    shutil.copy2(real, link)
