"""`tilewatch compare` on real repositories: what it says without a GPU, on a simulated one, and of mistakes."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from tests.kernels.fixtures import fake_gpu
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.command_line import run_here
from tests.worker.fixtures.simulated_bench import SimulatedBench, Speed
from tilewatch.kernels.comparing.outcome import Outcome, exit_code
from tilewatch.kernels.comparing.report import About, write_json, write_junit, write_lines, write_markdown
from tilewatch.kernels.comparing.verdict import MOST_ASKED, Design, Verdict
from tilewatch.kernels.device import SIMULATED
from tilewatch.worker.cli import compare_sides
from tilewatch.worker.cli.compare_sides import Sides, Wanted
from tilewatch.worker.git.commits import split_range

SOURCE = tiny_repository.SOURCE.replace("FACTOR", "2.0").replace("(64, 128, 256, 96)", "(64, 128)")
SLOWER = SOURCE.replace(
    "tile=ct.load(x, index=(i,), shape=(width,))", "tile=ct.exp(ct.load(x, index=(i,), shape=(width,)))"
)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commits, oldest first: `base`, `comment`, `slower`, `grid`, `broken`."""
    folder = tmp_path_factory.mktemp("watched") / "tiny"
    (folder / "library").mkdir(parents=True)
    tiny_repository.git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "base", SOURCE)
    commit(folder, "comment", "# Twice.\n" + SOURCE)
    commit(folder, "slower", SLOWER)
    commit(folder, "grid", SLOWER.replace("-(-problem.sizes", "1 - (-problem.sizes"))
    commit(folder, "broken", SOURCE.replace("ct.store(y", "ct.stores(y"))
    return folder


def commit(folder: Path, tag: str, source: str) -> None:
    (folder / "library" / "double.py").write_text(source)
    tiny_repository.git(folder, "add", ".")
    tiny_repository.git(folder, "commit", "--quiet", "--message", tag)
    tiny_repository.git(folder, "tag", tag)


def compare(watched: Path, home: Path, *arguments: str, library: str = "library") -> subprocess.CompletedProcess[str]:
    return run_here(*arguments, environment=environment(home, library), folder=watched)


def environment(home: Path, library: str = "library") -> dict[str, str]:
    return {"TILEWATCH_HOME": str(home), "TILEWATCH_LIBRARY": library, "COLUMNS": "200"}


def start(watched: Path, home: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own, with `home` as its folder of temporary files too."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TILEWATCH_")}
    return subprocess.Popen(
        [sys.executable, "-m", "tilewatch.worker.cli.main", *arguments],
        env={**clean, **environment(home), "TMPDIR": str(home)},
        cwd=watched,
        stderr=subprocess.PIPE,
        text=True,
    )


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of an expected error."""
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    return line.removeprefix("tilewatch: ")


def run_on_bench(
    watched: Path, home: Path, revisions: str, speed: Speed, wanted: Wanted | None = None, **of_the_bench: str
) -> tuple[dict[str, Outcome], SimulatedBench]:
    """Compares on the simulated GPU; the outcomes by problem."""
    sides = open_sides(watched, home, revisions)
    store = watched.parent / "store"  # of all tests: the commits are compiled once
    bench = SimulatedBench(sides.base, sides.head, dict.fromkeys(tiny_repository.PROBLEMS, speed), **of_the_bench)
    outcomes = compare_sides.compare(sides, wanted or Wanted(jobs=1), store, SIMULATED, bench)
    return {outcome.problem: outcome for outcome in outcomes}, bench


def open_sides(watched: Path, home: Path, revisions: str) -> Sides:
    return compare_sides.open_commits(watched, "library", home / "checkouts", *split_range(revisions))


def head_takes(times: float) -> Speed:
    return lambda side, config: (100.0 if config["width"] == 64 else 120.0) * (times if side == "head" else 1.0)


def test_a_changed_comment_is_identical_machine_code_and_costs_no_gpu(watched: Path, tmp_path: Path) -> None:
    outcomes, bench = run_on_bench(watched, tmp_path, "base..comment", head_takes(2.0))
    assert [outcome.sentence for outcome in outcomes.values()] == ["identical machine code"] * 2
    assert (bench.races, bench.launches) == (0, 0)
    assert exit_code(outcomes.values()) == 0


def test_a_slower_head_is_called_slower_with_its_interval(watched: Path, tmp_path: Path) -> None:
    outcomes, bench = run_on_bench(watched, tmp_path, "base..slower", head_takes(1.018))
    for outcome in outcomes.values():
        assert outcome.verdict is not None
        assert outcome.verdict.low < 0.018 < outcome.verdict.high
        assert outcome.sentence.startswith("slower +1.")
        assert (outcome.base_config, outcome.head_config) == ({"width": 64}, {"width": 64})
        assert "instructions" in " ".join(outcome.moved)
    assert exit_code(outcomes.values()) == 1
    assert bench.races == 4
    assert bench.launches == 24


def test_a_verdict_on_host_code_that_timed_itself_says_so(watched: Path, tmp_path: Path) -> None:
    outcomes, _ = run_on_bench(watched, tmp_path, "base..slower", head_takes(1.02), not_apart="it adds with PyTorch")
    assert {each.sentence.partition(" (not ")[2] for each in outcomes.values()} == {
        "measured apart: it adds with PyTorch)"
    }


def test_slower_than_allowed_and_slower_within_the_limit(watched: Path, tmp_path: Path) -> None:
    for fail_over, code in ((0.01, 1), (0.03, 0)):
        outcomes, _ = run_on_bench(
            watched, tmp_path, "base..slower", head_takes(1.02), Wanted(design=Design(1, fail_over=fail_over), jobs=1)
        )
        assert {outcome.kind for outcome in outcomes.values()} == {"slower"}
        assert exit_code(outcomes.values()) == code


def test_a_comparison_by_span_asks_for_spans_and_says_so(watched: Path, tmp_path: Path) -> None:
    outcomes, bench = run_on_bench(watched, tmp_path, "base..slower", head_takes(1.02), Wanted(jobs=1, metric="span"))
    assert bench.metrics == {"span"}
    assert {outcome.sentence.partition(" +")[0] for outcome in outcomes.values()} == {"span slower"}
    about = About("a", "b", True, "H200", 1.0, 1.0, "tilewatch compare a..b --metric span")
    again = [line for line in write_lines(list(outcomes.values()), about) if line.startswith("  again: ")]
    assert len(again) == 2
    assert all(line.endswith(" --metric span") for line in again)


def test_other_code_of_equal_speed_is_not_slower(watched: Path, tmp_path: Path) -> None:
    outcomes, _ = run_on_bench(watched, tmp_path, "base..slower", head_takes(1.0))
    assert [outcome.sentence for outcome in outcomes.values()] == [
        f"not slower than {outcome.verdict.not_slower_than:.1%} after 9 launches".replace("%", " %")
        for outcome in outcomes.values()
        if outcome.verdict is not None
    ]
    assert exit_code(outcomes.values()) == 0


def test_a_better_config_of_the_head_counts(watched: Path, tmp_path: Path) -> None:
    def speed(side: str, config: object) -> float:
        return 80.0 if side == "head" and config == {"width": 128} else 100.0

    outcomes, _ = run_on_bench(watched, tmp_path, "base..slower", speed)
    for outcome in outcomes.values():
        assert (outcome.kind, outcome.head_config) == ("faster", {"width": 128})
        assert outcome.moved[0] == "config width=64 -> width=128"


def test_equal_bytecode_launched_over_another_grid_is_compared(watched: Path, tmp_path: Path) -> None:
    outcomes, bench = run_on_bench(watched, tmp_path, "slower..grid", head_takes(1.05))
    assert {outcome.kind for outcome in outcomes.values()} == {"slower"}
    assert bench.launches == 24


def test_a_spent_budget_leaves_it_undecided(watched: Path, tmp_path: Path) -> None:
    outcomes, bench = run_on_bench(
        watched, tmp_path, "base..slower", head_takes(1.02), Wanted(design=Design(1, 4), jobs=1)
    )
    assert {outcome.kind for outcome in outcomes.values()} == {"undecided"}
    assert bench.launches == 8
    assert exit_code(outcomes.values()) == 2


def test_a_side_that_is_wrong_is_told_and_never_judged(watched: Path, tmp_path: Path) -> None:
    wrong = "with the head it gives wrong results: the output is off by 1"
    outcomes, _ = run_on_bench(watched, tmp_path, "base..slower", head_takes(1.0), wrong=wrong)
    assert {outcome.sentence for outcome in outcomes.values()} == {f"could not be compared: {wrong}"}
    assert exit_code(outcomes.values()) == 2


def test_more_launches_than_a_verdict_can_be_computed_of_are_refused(watched: Path, tmp_path: Path) -> None:
    done = compare(watched, tmp_path, "compare", "base..slower", "--launches", str(MOST_ASKED + 1))
    assert done.returncode == 2
    assert f"Invalid value for '--launches': at most {MOST_ASKED} is expected" in done.stderr


def test_a_side_that_does_not_compile_is_one_sentence(watched: Path, tmp_path: Path) -> None:
    done = compare(watched, tmp_path, "compare", "base..broken", "--static")
    assert done.returncode == 2
    sha = tiny_repository.git(watched, "rev-parse", "broken")[:10]
    assert f"could not be compared: {sha} does not compile: TypeCheckingError" in done.stdout
    assert len(done.stdout.splitlines()) == 2


def test_a_file_that_no_longer_loads_is_not_taken_for_one_that_is_gone(watched: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    tiny_repository.git(tmp_path, "clone", "--quiet", str(watched), str(copy))
    tiny_repository.git(copy, "checkout", "--quiet", "base")
    (copy / "library" / "triple.py").write_text(SOURCE.replace('"double"', '"triple"'))
    tiny_repository.git(copy, "add", ".")
    tiny_repository.git(copy, "commit", "--quiet", "--message", "triple")
    (copy / "library" / "double.py").write_text(SOURCE.replace("import cuda.tile", "import cuda.tiles"))
    for options in ((), ("--kernel", "double")):
        done = compare(copy, tmp_path, "compare", "--dirty", "--static", *options)
        assert done.returncode == 2
        assert "could not be compared: the working tree: library file double.py does not load" in done.stdout
    (copy / "library" / "double.py").unlink()
    done = compare(copy, tmp_path, "compare", "--dirty", "--static")
    assert done.returncode == 0
    assert "double 1024, 2048 (sm_80, sm_90, sm_100, sm_103, sm_120): only in the base" in done.stdout
    (copy / "library" / "new.py").write_text("import cuda.tiles")
    tiny_repository.git(copy, "add", ".")
    tiny_repository.git(copy, "commit", "--quiet", "--message", "no double")
    (copy / "library" / "newer.py").write_text("import cuda.tiles")
    error = error_of(compare(copy, tmp_path, "compare", "--dirty", "--static"))
    assert error.startswith("the working tree cannot be compared: library file newer.py does not load")


def test_without_a_gpu_the_static_facts_are_compared_for_every_architecture(watched: Path, tmp_path: Path) -> None:
    junit, markdown = tmp_path / "junit.xml", tmp_path / "comment.md"
    options = ("--static", "--json", "--junit", str(junit), "--markdown", str(markdown))
    done = compare(watched, tmp_path, "compare", "base..slower", *options)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["exit_code"] == 0
    archs = {"sm_80", "sm_90", "sm_100", "sm_103", "sm_120"}
    assert {(row["problem"], row["arch"]) for row in answer["outcomes"]} == {
        (p, a) for p in ("1024", "2048") for a in archs
    }
    assert {row["kind"] for row in answer["outcomes"]} == {"changed"}
    assert all(any(move.startswith("instructions ") for move in row["moved"]) for row in answer["outcomes"])
    suite = ElementTree.parse(junit).getroot()  # noqa: S314 - we wrote it
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("10", "0", "0")
    assert "| double | 1024 sm_80 | other machine code |" in markdown.read_text()


def test_the_working_tree_is_compared_with_new_files_and_without_ignored_ones(watched: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    tiny_repository.git(tmp_path, "clone", "--quiet", str(watched), str(copy))
    tiny_repository.git(copy, "checkout", "--quiet", "base")
    (copy / "library" / "triple.py").write_text(SOURCE.replace('"double"', '"triple"'))
    (copy / ".git" / "info" / "exclude").write_text("quadruple.py\n")
    (copy / "library" / "quadruple.py").write_text("this is not Python")
    done = compare(copy, tmp_path, "compare", "--dirty", "--static")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "triple 1024, 2048 (sm_80, sm_90, sm_100, sm_103, sm_120): only in the head"
    assert lines[1] == "double 1024, 2048 (sm_80, sm_90, sm_100, sm_103, sm_120): identical machine code"
    assert " .. the working tree: " in lines[2]


def test_an_edit_of_a_package_that_the_library_imports_is_compared(
    watched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_sides, "ARCHS", ("sm_90",))
    copy = tmp_path / "copy"
    tiny_repository.git(tmp_path, "clone", "--quiet", str(watched), str(copy))
    allow = ("-c", "protocol.file.allow=always")
    tiny_repository.git(copy, *allow, "submodule", "--quiet", "add", str(watched), "theirs")
    (copy / "pyproject.toml").write_text('[tool.tilewatch]\npath = ["src"]\n')
    factor = copy / "src" / "pkg" / "factor.py"
    factor.parent.mkdir(parents=True)
    factor.write_text("FACTOR = 2.0\n")
    (copy / "src" / "linked.py").symlink_to("pkg/factor.py")
    (copy / "library" / "double.py").write_text("from linked import FACTOR\n" + SOURCE.replace("* 2.0", "* FACTOR"))
    tiny_repository.git(copy, "add", ".")
    tiny_repository.git(copy, "commit", "--quiet", "--message", "Import the factor")
    done = compare(copy, tmp_path, "compare", "--dirty", "--static")
    assert done.stdout.startswith("double 1024, 2048 (sm_90): identical machine code")
    factor.write_text("FACTOR = 3.0\n")
    done = compare(copy, tmp_path, "compare", "--dirty", "--static")
    assert done.returncode == 0, done.stderr
    assert "double 1024, 2048 (sm_90" in done.stdout
    assert "other machine code" in done.stdout


def test_a_submodule_in_or_around_the_library_cannot_be_compared_uncommitted(watched: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    tiny_repository.git(tmp_path, "clone", "--quiet", str(watched), str(copy))
    allow = ("-c", "protocol.file.allow=always")
    tiny_repository.git(copy, *allow, "submodule", "--quiet", "add", str(watched), "library/theirs")
    error = error_of(compare(copy, tmp_path, "compare", "--dirty", "--static"))
    assert error == "library/theirs is a submodule: its uncommitted changes cannot be compared, commit them first"
    inside = compare(copy, tmp_path, "compare", "--dirty", "--static", library="library/theirs/library")
    assert error_of(inside) == error


def test_a_gpu_in_use_is_one_sentence(watched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = fake_gpu.install_for_children(monkeypatch)
    processes.write_text(f"{fake_gpu.UUID}, 4711, train.py\n")
    done = compare(watched, tmp_path, "compare", "base..slower", "--configs", "shipped")
    assert (done.returncode, done.stdout) == (2, "")
    progress, error = done.stderr.splitlines()
    assert progress == "2 of 2 operators and problems have other machine code"
    assert error.startswith("tilewatch: GPU 0 (NVIDIA H200) is in use by 4711 train.py: end that, or")


def test_a_commit_that_a_shallow_clone_lacks_is_named_with_what_brings_it(watched: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    tiny_repository.git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{watched}", str(copy))
    error = error_of(compare(copy, tmp_path, "compare", "HEAD^1..HEAD", "--static"))
    assert error.endswith(
        "has no commit 'HEAD^1'; it is a shallow clone: `git fetch --unshallow` brings the other commits"
    )


def test_a_comparison_keeps_the_commits_and_nothing_else(watched: Path, tmp_path: Path) -> None:
    with start(watched, tmp_path, "compare", "--dirty", "--static") as started:
        started.communicate()
    assert started.returncode == 0
    (home,) = tmp_path.iterdir()
    head = tiny_repository.git(watched, "rev-parse", "HEAD").strip()
    assert [folder.name for folder in home.iterdir()] == [head]


def test_a_kernel_without_configs_for_some_architectures_is_compared_on_the_others(
    watched: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    tiny_repository.git(tmp_path, "clone", "--quiet", str(watched), str(copy))
    tiny_repository.git(copy, "checkout", "--quiet", "base")
    source = SOURCE.replace("(64, 128)", '(64, 128) if arch == "sm_90" else ()')
    (copy / "library" / "double.py").write_text(source)
    done = compare(copy, tmp_path, "compare", "--dirty", "--static", "--kernel", "double")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [
        "double 1024, 2048 (sm_80, sm_100, sm_103, sm_120): only in the base",
        "double 1024, 2048 (sm_90): identical machine code",
    ]
    tiny_repository.git(copy, "commit", "--quiet", "--all", "--message", "Hopper only")
    (copy / "library" / "double.py").write_text(source.replace('"sm_90"', '"sm_70"'))
    tiny_repository.git(copy, "commit", "--quiet", "--all", "--message", "nowhere")
    error = error_of(compare(copy, tmp_path, "compare", "HEAD..HEAD", "--static", "--kernel", "double"))
    assert error == "kernel double has no config for sm_80"


def test_mistakes_are_one_sentence_each(watched: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "elsewhere is not in a Git repository" in error_of(compare(elsewhere, tmp_path, "compare", "a..b"))
    assert "has no commit 'nothing'" in error_of(compare(watched, tmp_path, "compare", "base..nothing"))
    assert "'base' is not a range of commits" in error_of(compare(watched, tmp_path, "compare", "base"))
    assert "has no folder 'nowhere'" in error_of(
        compare(watched, tmp_path, "compare", "base..slower", "--static", library="nowhere")
    )
    assert "there is no kernel 'trouble'" in error_of(
        compare(watched, tmp_path, "compare", "base..slower", "--static", "--kernel", "trouble")
    )
    assert "is not a name and a value" in error_of(
        compare(
            watched, tmp_path, "replay", "double", "1024", "--of", "slower", "--beside", "base", "--config", "width"
        )
    )


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a GPU")
def test_without_a_gpu_the_other_way_is_named(watched: Path, tmp_path: Path) -> None:
    error = error_of(compare(watched, tmp_path, "compare", "base..slower"))
    assert error.startswith("there is no GPU 0 on this machine")
    assert "`tilewatch compare --static` and a plain `tilewatch toolchain compare` need none" in error


@pytest.mark.parametrize("arguments", [(), ("base..slower", "--dirty"), ("base..slower", "--problem", "1024")])
def test_what_is_typed_wrongly_is_said_before_anything_starts(
    watched: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = compare(watched, tmp_path, "compare", *arguments)
    assert (done.returncode, done.stdout) == (2, "")


def test_ctrl_c_leaves_no_process(watched: Path, tmp_path: Path) -> None:
    started = start(watched, tmp_path, "compare", "base..slower", "--static")
    command_itself, below = psutil.Process(started.pid), list[psutil.Process]()
    while not any(is_compiler(each) for each in below):
        assert started.poll() is None
        time.sleep(0.05)
        below = command_itself.children(recursive=True)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=300)
    assert (started.returncode, errors) == (130, "tilewatch: stopped; nothing is left running\n")
    _, left = psutil.wait_procs(below, timeout=60)  # init may not have buried them yet
    assert left == []


def is_compiler(process: psutil.Process) -> bool:
    try:
        return process.name() == "tileiras"
    except psutil.Error:
        return False  # it ended meanwhile


def test_the_comment_names_what_to_type_again() -> None:
    about = About("v1", "v2", True, "NVIDIA H200", 12.0, 8.0, "tilewatch compare v1..v2")
    failed = Outcome("k", "1x1", "sm_90", "failed", reason="a | b")
    comment = write_markdown([failed], about)
    assert "### Tilewatch: could not tell (v1 .. v2)" in comment
    assert "| k | 1x1 sm_90 | could not be compared: a \\| b | - |" in comment
    assert "Repeat it: `tilewatch compare v1..v2`" in comment
    assert 'errors="1"' in write_junit([failed], about)


def test_a_kernel_s_name_is_text_in_a_comment_and_one_word_in_a_command() -> None:
    about = About("v1", "v2", True, "NVIDIA H200", 12.0, 8.0, "tilewatch compare v1..v2")
    verdict = Verdict("slower", 0.1, 0.05, 0.15, 0.15, 16, True, False, True)
    hostile = Outcome("@all; rm -rf ~ #", "1x1", "sm_90", "slower", verdict=verdict, base_us=(1.0,), head_us=(1.1,))
    assert "@a" not in write_markdown([hostile], about)
    (row,) = json.loads(write_json([hostile], about))["outcomes"]
    assert shlex.split(row["repeat"])[2:4] == ["@all; rm -rf ~ #", "1x1"]


def test_what_to_type_again_names_the_commits_and_no_file(watched: Path, tmp_path: Path) -> None:
    files = ("--json", "--markdown", str(tmp_path / "a.md"), f"--junit={tmp_path / 'b.xml'}")
    done = compare(watched, tmp_path, "compare", "base..comment", *files, "--static", "--kernel", "double")
    shas = [tiny_repository.git(watched, "rev-parse", each)[:10] for each in ("base", "comment")]
    assert json.loads(done.stdout)["repeat"] == f"tilewatch compare {shas[0]}..{shas[1]} --static --kernel double"


def test_a_slower_operator_comes_with_the_line_that_repeats_it(watched: Path, tmp_path: Path) -> None:
    outcomes, _ = run_on_bench(watched, tmp_path, "base..slower", head_takes(1.05))
    about = About("base", "slower", True, "NVIDIA H200", 12.0, 8.0, "tilewatch compare base..slower")
    lines = write_lines(list(outcomes.values()), about)
    again = "tilewatch replay double 1024 --of slower --beside base --config width=64"
    place = next(place for place, line in enumerate(lines) if line.startswith("double 1024: slower"))
    assert lines[place + 1] == f"  again: {again}"
    row = json.loads(write_json([outcomes["1024"]], about))["outcomes"][0]
    assert row["repeat"] == again
    assert row["verdict"]["is_over"] is True
    assert len(row["base_us"]) == len(row["head_us"]) == row["verdict"]["launches"] == 12
