"""Nights draw their shares from the record, and each run states what was not tried."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from tests.db.fixtures import one_commit
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.run_result import result
from tests.worker.fixtures.worker_context import Drain
from tilewatch.configs import config_sha256
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Config, Job, Measurement, Sweep, Trial
from tilewatch.db.repository_names import name_of_branch
from tilewatch.db.session import engine, session
from tilewatch.db.worker_reads import gpus, steps, tried_configs
from tilewatch.db.worker_reads.tried_configs import TriedConfigs
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.catalog.catalog import LibraryPlans
from tilewatch.kernels.catalog.share import SHORT_LISTS_ALONE, WIDE, Shares, Tried
from tilewatch.kernels.device import gpu_model
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.results import Plan, PlannedTrial, TrialResult
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps import write_run
from tilewatch.worker.steps.trace_library import PlansWanted, add_job, read_shares, step
from tilewatch.worker.steps.write_plans import PlannedSubmission
from tilewatch.worker.submitting.submit import submit_nightly
from tilewatch.worker.submitting.submit_requests import submissions

PROBLEMS = tiny_repository.PROBLEMS
BRANCH = name_of_branch("watched", "faster")
WIDTHS = {64, 128, 256, 512, 1024}
SHORT_LIST = 'short_lists={"sm_90": ShortList(lambda config: config["width"] == 128, "c", (), "s", "d")},'
SOURCE = (
    tiny_repository.SOURCE.replace("import Array, ", "import Array, ShortList, ")
    .replace("(64, 128, 256, 96)", str(tuple(sorted(WIDTHS))))
    .replace("baselines=(),", f"baselines=(), {SHORT_LIST}")
)
Night = Callable[[int], dict[str, set[int]]]
Run = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(tiny_repository, "SOURCE", SOURCE)
    tiny_repository.commit(settings.repository, "A short list", factor=2)


@pytest.fixture
def night(settings: Settings, context: Context, drain: Drain) -> Night:
    """Submits and compiles the night of a day; the widths that each problem tries."""

    def submit(day: int) -> dict[str, set[int]]:
        submit_nightly(settings, gpus=("h200",), night=dt.date(2026, 11, day))
        with session(context.database_url) as opened:
            jobs.cancel(opened, opened.scalars(select(Job.id).where(Job.state == "waiting")).all())
        drain()
        return {problem: list_widths(context, problem) for problem in PROBLEMS}

    return submit


def list_widths(context: Context, problem: str) -> set[int]:
    with session(context.database_url) as opened:
        return {each.params["width"] for each in steps.list_compiled_configs(opened, find_sweep(context, problem))}


def find_sweep(context: Context, problem: str) -> int:
    with session(context.database_url) as opened:
        newest = select(Sweep.id).where(Sweep.problem == problem).order_by(Sweep.id.desc())
        return opened.scalars(newest).first() or 0


@pytest.fixture
def run(context: Context) -> Run:
    """Writes a run of a problem's newest sweep, with the times of its widths; the certificate."""

    def write(problem: str, times_us: Mapping[int, float], *, day: int, driver: str = "580.1") -> dict[str, Any]:
        winner = min(times_us, key=times_us.__getitem__)
        trials = tuple(TrialResult({"width": width}, "timed", (us, us), us, 0.0) for width, us in times_us.items())
        made = result(minute=1440 * day + PROBLEMS.index(problem))
        measured = replace(made.measurements[0], config={"width": winner})
        made = replace(made, winner={"width": winner}, tie=(), trials=trials, measurements=(measured,))
        made = replace(made, toolchain={**made.toolchain, "driver": driver})
        with session(context.database_url) as opened:
            sweep_id = find_sweep(context, problem)
            ids = {config_sha256(each.params): each.config_id for each in steps.list_compiled_configs(opened, sweep_id)}
            run_id = write_run.write(opened, sweep_id, made, ids)
            detail = opened.scalars(select(Measurement.detail).where(Measurement.run_id == run_id)).one()
        certificate: dict[str, Any] = detail["certificate"]
        return certificate

    return write


def time_all(widths: set[int], **faster: float) -> dict[int, float]:
    return {width: faster.get(f"w{width}", 100.0 if width == 128 else 101.0) for width in sorted(widths)}


def test_nights_try_the_whole_space_and_say_so(context: Context, night: Night, run: Run) -> None:
    problem, other = PROBLEMS
    first = night(1)
    assert len(first[problem]) == 2
    assert 128 in first[problem]
    assert first[problem] == first[other], "they share the machine code of what is drawn"
    with session(context.database_url) as opened:
        sweep = opened.get(Sweep, find_sweep(context, problem))
        assert sweep is not None
        (listed,) = opened.scalars(select(Config.params).where(Config.id.in_(sweep.space["listed"])))
        assert (sweep.space["rest"], listed) == (4, {"width": 128})
        drawn = [each for each in steps.list_compiled_configs(opened, sweep.id) if each.drawn]
        assert {each.params["width"] for each in drawn} == first[problem] - {128}
    (slow,) = first[problem] - {128}
    assert run(problem, time_all(first[problem], **{f"w{slow}": 150.0}), day=1) == {
        **{"space": 5, "tried": 2, "untried": 3, "first_run": 1, "full_look": None},
        **{"ahead": 0.0, "ahead_before": 0.0, "looks": 0, "chance_1": 0.75, "chance_3": 0.75},
    }

    seen = first[problem]
    for day in (2, 3):
        tonight = night(day)
        (new,) = tonight[problem] - seen
        assert len(tonight[other]) == 2, "it has no run yet"
        run(problem, time_all(tonight[problem], **{f"w{new}": 110.0}), day=day)
        seen |= tonight[problem]
    last = night(4)
    (best,) = last[problem] - seen
    whole = run(problem, time_all(last[problem], **{f"w{best}": 95.0}), day=4)
    assert (whole["untried"], whole["full_look"], whole["ahead"]) == (0, "2026-11-05", 0.05)
    assert (whole["chance_1"], whole["chance_3"]) == (0.0, 0.0)
    assert run(other, time_all(last[other]), day=4)["looks"] == 1
    assert slow not in night(5)[problem], "one that is 1.5 times as slow is not tried again"


def read_record(context: Context) -> Mapping[tuple[str, str], Tried]:
    with session(context.database_url) as opened:
        return read_shares(opened, find_repository(context), "h200", "2026-11-02").series


def find_repository(context: Context) -> str:
    with session(context.database_url) as opened:
        return opened.scalars(select(Sweep.repository)).first() or ""


def test_the_record_of_a_night_takes_no_query_per_series(context: Context, night: Night, run: Run) -> None:
    tried, statements = night(1), list[str]()
    event.listen(engine(context.database_url), "before_cursor_execute", lambda *call: statements.append(call[2]))
    counts = []
    for problem in PROBLEMS:
        run(problem, time_all(tried[problem]), day=1)
        statements.clear()
        counts.append((len(read_record(context)), len(statements)))
    assert counts == [(1, counts[0][1]), (2, counts[0][1])]


def test_a_look_begins_once_no_worker_has_the_driver_or_the_compiler(context: Context, night: Night, run: Run) -> None:
    problem, compiler = PROBLEMS[0], compiler_version()
    run(problem, time_all(night(1)[problem]), day=1)

    def knows_state(driver: str, compiler: str) -> bool:
        with session(context.database_url) as opened:
            for name, model, toolchain in (
                ("gpu", "h200", {"driver": driver}),
                ("compile", None, {"compiler": compiler}),
            ):
                fact_writes.write_heartbeat(opened, name, kind=name, host="n", gpu_model=model, toolchain=toolchain)
        return read_record(context)["double", problem].source != ""

    assert read_record(context)["double", problem].source != "", "no worker is known"
    assert [knows_state("580.9", compiler), knows_state("590.1", compiler)] == [True, False]
    assert [knows_state("580.9", "cuda-tile 99"), knows_state("580.9", compiler)] == [False, True]


@pytest.mark.parametrize("change", ["source", "driver"])
def test_another_state_begins_another_look(settings: Settings, night: Night, run: Run, change: str) -> None:
    """A changed source begins it in the same night, a driver that no worker has yet after the first run."""
    problem = PROBLEMS[0]
    for day in (1, 2):
        run(problem, time_all(night(day)[problem]), day=day)
    if change == "source":
        tiny_repository.commit(settings.repository, "Another factor", factor=3)
    third = night(3)[problem]
    assert len(third) == (3 if change == "source" else 2)
    certificate = run(problem, time_all(third), day=3, driver="590.1" if change == "driver" else "580.9")
    assert certificate["first_run"] == 3
    assert (certificate["tried"], certificate["untried"]) == (len(third), 5 - len(third))
    if change == "driver":
        assert len(night(4)[problem] - third) == 2, "a third of the space outside the list, rounded up"


def test_configs_that_left_the_space_do_not_count_as_tried(settings: Settings, night: Night, run: Run) -> None:
    """Two nights tried two configs. Two that no night has tried remain when these leave."""
    problem, tried = PROBLEMS[0], set[int]()
    for day in (1, 2):
        drawn = night(day)[problem]
        run(problem, time_all(drawn), day=day)
        tried |= drawn - {128}
    source = SOURCE.replace("FACTOR", "2.0").replace(str(tuple(sorted(WIDTHS))), str(tuple(sorted(WIDTHS - tried))))
    (settings.repository / "library" / "double.py").write_text(source)
    tiny_repository.git(settings.repository, "commit", "--all", "--quiet", "--message", "A smaller space")
    night(3)
    smaller = run(problem, time_all({128}), day=3)
    assert (smaller["space"], smaller["untried"], smaller["full_look"]) == (3, 2, None)


def test_a_run_in_an_earlier_state_continues_its_certificate(night: Night, run: Run) -> None:
    """Two nodes with two drivers measure in turn."""
    problem = PROBLEMS[0]
    first = night(1)[problem]
    run(problem, time_all(first), day=1)
    other = run(problem, time_all(first), day=2, driver="590.1")
    assert (other["first_run"], other["tried"]) == (2, 2)
    second = night(2)[problem]
    (drawn, *_) = second - {128}
    more = run(problem, time_all(second, **{f"w{drawn}": 90.0}), day=3)
    assert (more["first_run"], more["untried"], more["ahead_before"], more["ahead"]) == (1, 1, 0.0, 0.1)
    whole = run(problem, time_all(night(3)[problem]), day=4)
    assert (whole["ahead_before"], whole["ahead"], whole["full_look"]) == (0.1, 0.1, "2026-11-05")


def test_a_wide_sweep_tries_the_whole_space(settings: Settings, context: Context) -> None:
    wanted = {"kernel": "double", "problem": PROBLEMS[0], "commit": "HEAD", "gpus": ["h200"]}
    for asked in (wanted | {"wide": True}, wanted):
        list(submissions(settings, "sweep", asked))
    with session(context.database_url) as opened:
        tried = select(Trial.sweep_id, Config.params).join(Config, Config.id == Trial.config_id)
        rows = [(sweep_id, params["width"]) for sweep_id, params in opened.execute(tried)]
    wide, narrow = sorted({sweep_id for sweep_id, _ in rows})
    assert {width for sweep_id, width in rows if sweep_id == wide} == WIDTHS
    assert {width for sweep_id, width in rows if sweep_id == narrow} == {128}


@pytest.mark.parametrize(
    ("drivers", "compilers", "repository", "source"),
    [
        ({"580.95", "590.1"}, {"cuda-tile 1.7", "cuda-tile 1.8"}, "watched", "source"),
        (set(), set(), "watched", "source"),
        ({"590.580"}, {"cuda-tile 1.7"}, "watched", ""),
        ({"580.95"}, {"cuda-tile 1", "cuda-tile 1.8"}, "watched", ""),
        ({"580.95"}, {"cuda-tile 1.8"}, BRANCH, "source"),
        ({"590.1"}, {"cuda-tile 1.7"}, BRANCH, ""),
    ],
)
def test_what_was_tried_counts_while_a_worker_has_its_driver_and_compiler(
    monkeypatch: pytest.MonkeyPatch, drivers: set[str], compilers: set[str], repository: str, source: str
) -> None:
    """A branch may be compiled by a toolchain of its own."""
    near = {"a" * 64: False, "b" * 64: True, "c" * 64: True}
    tried = TriedConfigs("source", "cuda-tile 1.7 limit 15s", "580", True, near, [{"tile": 64}])
    opened: Any = object()
    monkeypatch.setattr(gpus, "list_versions", lambda *of: (drivers, compilers) if of == (opened, "h200") else None)
    found = {(opened, repository, "h200"): {("gemm", "large"): tried}}
    monkeypatch.setattr(tried_configs, "list_tried", lambda *of: found[of])
    shares = read_shares(opened, repository, "h200", "2026-11-02")
    assert (shares.day, shares.wide) == ("2026-11-02", False)
    a, b, c = (12 * letter for letter in "abc")
    assert shares.series == {("gemm", "large"): Tried([a, b, c], [b, c], [{"tile": 64}], source, has_changed=True)}


def make_plan(kernel: str) -> Plan:
    trials = (PlannedTrial({"tile_m": 32}, kernel),)
    return Plan(kernel, "p", "sm_100", "source", 2, (("tile_m", (32,)),), 1, 1, (), trials)


WANTED = PlansWanted("gemm", "p", None)


@pytest.mark.parametrize(
    ("wanted", "shares"),
    [
        (WANTED, SHORT_LISTS_ALONE),
        (replace(WANTED, wide=True), WIDE),
        (replace(WANTED, night="2026-11-02"), Shares("2026-11-02")),
    ],
)
def test_a_library_is_read_with_the_shares_of_its_submission(
    monkeypatch: pytest.MonkeyPatch, database_url: str, wanted: PlansWanted, shares: Shares
) -> None:
    asked = {"arch": "sm_100", "kernel": "gemm", "problem": "p", "shares": shares}
    monkeypatch.setattr(catalog, "read_library", lambda library, **how: (library, how))
    found: Any = wanted.read(database_url, Path("library"), "watched", gpu_model("b200"))
    assert found == (Path("library"), asked)


@pytest.mark.parametrize(
    ("kernels", "left"), [(None, ["gemm", "norm"]), (("norm", "other"), ["norm"]), (("other",), []), ((), [])]
)
def test_the_wanted_kernels_are_planned_where_the_host_code_runs(
    db_session: Session,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    kernels: tuple[str, ...] | None,
    left: list[str],
) -> None:
    made = one_commit.submit(db_session)
    commit_id = db_session.scalars(select(Sweep.commit_id)).one()
    submission = PlannedSubmission(
        "night", made.submission_id, commit_id, "watched", "5" * 40, "library", "", "b200", measure=True, priority=7
    )
    queued = add_job(db_session, submission, PlansWanted(None, None, kernels), "all of the library")
    db_session.commit()
    job = db_session.get_one(Job, queued.id)
    assert (job.key, job.kind, job.queue, queued.queue) == ("night:record", "record", "record", "record")
    assert (job.subject, job.priority, job.submission_id) == ("all of the library", 7, made.submission_id)

    plans = LibraryPlans((make_plan("gemm"), make_plan("norm")), ("other.py does not load",))
    monkeypatch.setattr(watched, "library_at", lambda _, *of: of)
    monkeypatch.setattr(
        catalog, "read_library", lambda library, **_: plans if library == ("watched", "5" * 40, "library") else None
    )
    context: Any = SimpleNamespace(database_url=database_url)
    progress: list[int] = []
    lease: Any = SimpleNamespace(progress=lambda: progress.append(1))
    claimed: Any = job
    if not left:
        with pytest.raises(LibraryError, match=r"^nothing is left to sweep; other\.py does not load$"):
            step(claimed, context, lease)
        return
    compiling = step(claimed, context, lease)
    with session(database_url) as opened:
        subjects = [opened.get_one(Job, each.id).payload["kernel"] for each in compiling]
    assert (subjects, progress) == (left, [1])
