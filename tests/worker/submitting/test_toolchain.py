"""Jobs that name a toolchain: who compiles with what, what is kept apart, and a worker that does not have it."""

import datetime as dt
import shutil
from collections import Counter

import pytest
from sqlalchemy import select

from tests.kernels.fixtures.second_toolchain import count_compiles, make_toolchain
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.lifecycle import jobs
from tilewatch.db.models import Compilation, Job, Run, Sweep, Verdict
from tilewatch.db.page_reads.series import list_branches, list_points
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.kernels.children import sandbox
from tilewatch.worker import run_job
from tilewatch.worker.context import Context
from tilewatch.worker.queue.outage import NotNow
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps.compiler import open_compiler
from tilewatch.worker.submitting import submit_requests
from tilewatch.worker.submitting.submit import BadToolchainName, submit_nightly

NIGHT = dt.date(2026, 11, 1)
SERIES = (tiny_repository.KERNEL, tiny_repository.PROBLEMS[0], "sim")


def test_a_night_under_a_toolchain_is_compiled_with_it_and_kept_apart(
    settings: Settings, context: Context, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SWITCH, "off")  # the runs are counted in a file outside of it
    toolchain = make_toolchain(settings.toolchains, "next")
    submit_nightly(settings, night=NIGHT, gpus=("sim",))
    under = submit_nightly(settings, night=NIGHT, gpus=("sim",), toolchain="next")
    assert "the nightly of 2026-11-01 under next for " in under.sentence
    assert "this machine has no toolchain" not in under.sentence
    assert not submit_nightly(settings, night=NIGHT, gpus=("sim",), toolchain="next").created
    drain()
    with session(context.database_url) as opened:
        compilers = Counter("+next" in compiler for compiler in opened.scalars(select(Compilation.compiler)))
        assert compilers == {False: tiny_repository.CONFIGS, True: tiny_repository.CONFIGS}
        versions = {
            (repository, toolchain.get("nvidia-cuda-tileiras"))
            for repository, toolchain in opened.execute(select(Sweep.repository, Run.toolchain).join_from(Run, Sweep))
        }
        (main, _), (branch, version) = sorted(versions, key=lambda each: each[1] or "")
        assert branch == f"{main} (branch under next)"
        assert version is not None
        assert version.endswith("+next"), "a page says under which tileiras it was measured"
        assert f", kept apart as '{branch}'," in under.sentence
        assert list_branches(opened, main, *SERIES, limit=2) == [branch], "drawn beside the main line"
        assert len({point.run_id for point in list_points(opened, main, *SERIES)}) == 1
        assert set(opened.scalars(select(Verdict.history_points))) == {0}, "neither is history of the other"
        assert steps.find_last_night(opened, branch) == NIGHT
    assert count_compiles(toolchain) == tiny_repository.CONFIGS - 1, "cuda-tile itself refuses the broken config"


def test_a_worker_without_the_toolchain_leaves_the_job_until_it_has_it(
    settings: Settings, context: Context, drain: Drain
) -> None:
    wanted = {"commit": "HEAD", "gpus": [], "toolchain": "new"}
    (submitted,) = submit_requests.submit_for(settings, "grace", "nightly", wanted)
    assert submitted.created
    with session(context.database_url) as opened:
        (waiting,) = jobs.list_unsent(opened, -1)
    with pytest.raises(NotNow, match=r"no toolchain is named new in .*these are: installed; `tilewatch toolchain add`"):
        run_job.run(waiting.id, "tester", context)
    with session(context.database_url) as opened:
        row = opened.scalars(select(Job)).one()
        assert (row.state, row.attempt) == ("queued", 0)
        assert row.trouble is not None
        assert "no toolchain is named new" in row.trouble
        row.not_before = None
    make_toolchain(settings.toolchains, "new")
    drain()
    with session(context.database_url) as opened:
        assert len(opened.scalars(select(Compilation)).all()) == tiny_repository.CONFIGS


def test_a_process_keeps_the_child_of_each_toolchain_until_it_is_another(settings: Settings, context: Context) -> None:
    make_toolchain(settings.toolchains, "next")
    installed, first = open_compiler(context), open_compiler(context, "next")
    assert open_compiler(context) is installed
    assert open_compiler(context, "next") is first
    assert "+next" in first.version
    shutil.rmtree(settings.toolchains / "next")
    make_toolchain(settings.toolchains, "next", label="again")
    again = open_compiler(context, "next")
    assert "+again" in again.version
    assert open_compiler(context, "next") is again


def test_a_toolchain_that_is_not_here_is_named_as_what_the_work_waits_for(settings: Settings) -> None:
    waits = "; this machine has no toolchain named nxet, and what is compiled waits for a worker that has it"
    assert waits in submit_nightly(settings, night=NIGHT, gpus=("sim",), toolchain="nxet").sentence
    assert waits in submit_nightly(settings, night=NIGHT, gpus=("sim",), toolchain="nxet").sentence, "asked again"
    assert "toolchain named" not in submit_nightly(settings, night=NIGHT, gpus=("sim",)).sentence


@pytest.mark.parametrize("name", ["installed", "../other", "two words"])
def test_what_is_no_name_of_a_toolchain_is_refused(settings: Settings, name: str) -> None:
    with pytest.raises(BadToolchainName, match=f"'{name}' is not a name of a toolchain"):
        submit_nightly(settings, night=NIGHT, toolchain=name)
