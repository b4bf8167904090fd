"""Makes the repository of `tilewatch demo`: two kernels in twenty commits, two of which change a kernel's speed."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from tilewatch.worker.git.commits import git

SLOWER, FASTER = "scale", "shift"
"""Names the kernel that becomes slower, and the kernel that becomes faster."""
LIBRARY = "library"
COMMITS = 20
SLOWER_AT, FASTER_AT, BASELINE_AT = 9, 14, 17
"""Numbers, from 0, of three commits: one kernel becomes slower, one becomes faster, DeepGEMM gets a new version."""

BODIES = {SLOWER: ("tile * 2.0", "tile * 1.5 + tile * 0.5"), FASTER: ("tile * 0.5 + tile * 0.5 + 1.0", "tile + 1.0")}
"""Each kernel's expression before and after its change. Both have the same value."""
RESULTS = {SLOWER: "x * 2.0", FASTER: "x + 1.0"}
PROBLEMS = ("4096", "65536")
CHANGED_AT = {SLOWER: SLOWER_AT, FASTER: FASTER_AT}
SUBJECTS = {
    0: "Scale and shift numbers in tiles",
    SLOWER_AT: "Scale in two products, for a second factor",
    FASTER_AT: "Shift without the two products",
}
SOURCE = '''"""{note}"""

import cuda.tile as ct

from tilewatch.kernels.contract import Array, BadProblem, Kernel, Problem, Space


@ct.kernel
def {kernel}_tiles(x, y, width: ct.Constant[int]):
    i = ct.bid(0)
    tile = ct.load(x, index=(i,), shape=(width,))
    ct.store(y, index=(i,), tile={body})


def parse(text):
    if not text.isdigit() or int(text) % 1024 or not int(text):
        raise BadProblem(f"'{{text}}' is not a problem of {kernel}: write a length that 1024 divides, for example 4096")
    return Problem(text, {{"n": int(text)}})


KERNELS = (
    Kernel(
        name="{kernel}",
        entry={kernel}_tiles,
        problems=tuple(map(parse, {problems})),
        parse=parse,
        space=lambda arch: Space((("width", (64, 128, 256, 512)),)),
        arrays=lambda problem: (
            Array("x", (problem.sizes["n"],), "float32"),
            Array("y", (problem.sizes["n"],), "float32", output=True),
        ),
        constants=lambda problem, config: (config["width"],),
        grid=lambda problem, config, sm_count: (problem.sizes["n"] // config["width"], 1, 1),
        reference=lambda inputs, xp: {{"y": (lambda x: {result})(inputs["x"])}},
        tolerance=lambda problem: 1e-6,
        flops=lambda problem: problem.sizes["n"],
        bytes=lambda problem: 8 * problem.sizes["n"],
        baselines=(),
    ),
)
'''


@dataclass(frozen=True)
class DemoCommit:
    sha: str
    subject: str
    day: dt.date


def make_repository(folder: Path, last_day: dt.date) -> list[DemoCommit]:
    """Makes the demo's repository and returns its commits, the oldest first."""
    (folder / LIBRARY).mkdir(parents=True)
    _git(folder, "init", "--quiet", "--initial-branch", "main")
    commits = []
    for number in range(COMMITS):
        day = last_day - dt.timedelta(days=COMMITS - 1 - number)
        subject = SUBJECTS.get(number, f"Part {number} of a better description")
        for kernel in BODIES:
            write_kernel(folder / LIBRARY, kernel, changed=number >= CHANGED_AT[kernel], note=subject)
        _git(folder, "add", ".")
        _git(folder, "commit", "--quiet", "--message", subject, at=f"{day} 12:00 +0000")
        commits.append(DemoCommit(_git(folder, "rev-parse", "HEAD").strip(), subject, day))
    return commits


def write_kernel(folder: Path, kernel: str, note: str, *, changed: bool) -> None:
    """Writes a kernel's file, before or after its change."""
    folder.mkdir(parents=True, exist_ok=True)
    body = BODIES[kernel][changed]
    source = SOURCE.format(note=note, body=body, kernel=kernel, problems=PROBLEMS, result=RESULTS[kernel])
    (folder / f"{kernel}.py").write_text(source, encoding="utf-8")


def _git(folder: Path, *arguments: str, at: str | None = None) -> str:
    settings = ["-c", "user.name=Demo", "-c", "user.email=demo@example.org", "-c", "commit.gpgsign=false"]
    dates = {} if at is None else {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
    return git(folder, *settings, *arguments, **dates)
