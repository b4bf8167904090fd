"""A watched repository that takes seconds: one kernel, four configs of which one cannot compile, two problems."""

import subprocess
from pathlib import Path

KERNEL = "double"
PROBLEMS = ("1024", "2048")
CONFIGS = 4
BROKEN = {"width": 96}  # not a power of two, which tile shapes must be

SOURCE = """
import cuda.tile as ct

from kernels.contract import Array, BadProblem, Kernel, Problem, Space


@ct.kernel
def double_tiles(x, y, width: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, index=(i,), tile=ct.load(x, index=(i,), shape=(width,)) * FACTOR)


def parse(text):
    if not text.isdigit() or int(text) % 64 or not int(text):
        raise BadProblem(f"'{text}' is not a problem of double: write a length that 64 divides, for example 1024")
    return Problem(text, {"n": int(text)})


KERNELS = (
    Kernel(
        name="double",
        entry=double_tiles,
        problems=(parse("1024"), parse("2048")),
        parse=parse,
        space=lambda arch: Space((("width", (64, 128, 256, 96)),)),
        arrays=lambda problem: (
            Array("x", (problem.sizes["n"],), "float32"),
            Array("y", (problem.sizes["n"],), "float32", output=True),
        ),
        constants=lambda problem, config: (config["width"],),
        grid=lambda problem, config, sm_count: (-(-problem.sizes["n"] // config["width"]), 1, 1),
        reference=lambda inputs, xp: {"y": inputs["x"] * FACTOR},
        tolerance=lambda problem: 1e-6,
        flops=lambda problem: problem.sizes["n"],
        bytes=lambda problem: 8 * problem.sizes["n"],
        baselines=(),
    ),
)
"""


def make(folder: Path) -> Path:
    """A repository with one commit."""
    (folder / "library").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "Double numbers", factor=2)
    return folder


def commit(folder: Path, subject: str, *, factor: int) -> str:
    """Change the kernel and commit it; the sha."""
    source = SOURCE.replace("FACTOR", f"{factor}.0")
    (folder / "library" / "double.py").write_text(source)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", subject)
    return git(folder, "rev-parse", "HEAD").strip()


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout
