"""Alarms over real nights in Postgres: opened once, sent once, closed by themselves."""

import datetime as dt

import pytest
from sqlalchemy import select, update

from tests.db.fixtures import one_commit
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import alarms as life
from tilewatch.db.lifecycle import repositories
from tilewatch.db.models import Alarm, Compilation, Measurement, Message, Run, Submission, Trial, Verdict
from tilewatch.db.page_reads import alarms
from tilewatch.db.session import session
from tilewatch.kernels.children.sandbox import Level
from tilewatch.nightlies import NightlyTimes
from tilewatch.worker.notify.outbox import Outbox
from tilewatch.worker.notify.routing import NotifySettings
from tilewatch.worker.notify.senders import Log
from tilewatch.worker.notify.update_alarms import update_alarms

TIMES = NightlyTimes(nightly_at=dt.time(3, 0), nightly_limit_h=8)
COPIED = ("config_id", "samples_us", "low_us", "high_us", "ratio", "ratio_low", "ratio_high", "detail")


@pytest.fixture
def out(database_url: str) -> Outbox:
    return Outbox(database_url, NotifySettings(), {"log": Log()}, "http://here")


def night(
    out: Outbox,
    number: int,
    *,
    broken: tuple[int, ...] = (),
    wrong: tuple[int, ...] = (),
    repository: str = "tilewatch",
) -> int:
    """A night of the same commit, with configs that do not compile or are wrong; its run. A compiler changed."""
    with session(out.database_url) as opened:
        planned = one_commit.submit(opened, f"night {number} of {repository}", repository)
        compiler = f"compiler {number}"
        rows = [
            one_commit.compiled(code_key, status="error" if each in broken else "ok", compiler=compiler)
            for each, code_key in enumerate(planned.code_keys)
        ]
        fact_writes.add_compilations(opened, rows)
        fact_writes.attach_compilations(opened, compiler=compiler, sweep_ids=[planned.sweep_id])
        run_id = one_commit.measure(opened, planned, f"run {number} of {repository}")
        for each, config_id in enumerate(planned.config_ids):
            status = "wrong" if each in wrong else "not_compiled" if each in broken else "timed"
            opened.execute(
                update(Trial)
                .where(Trial.sweep_id == planned.sweep_id, Trial.config_id == config_id)
                .values(
                    status=status,
                    failure=None if status == "timed" else f"{status}: a reason",
                    median_us=10.0 + each if status == "timed" else None,
                )
            )
        opened.execute(update(Run).where(Run.id == run_id).values(finished_at=dt.datetime.now(dt.UTC)))
    return run_id


def look(out: Outbox, *, days: float = 0) -> None:
    update_alarms(out, ["tilewatch"], TIMES, 0.1, dt.datetime.now(dt.UTC) + dt.timedelta(days=days))


def open_(out: Outbox) -> list[tuple[str, str]]:
    """Kind and first line of the alarms about the nights' contents; flow's night itself is long past."""
    with session(out.database_url) as opened:
        return sorted(
            (alarm.kind, alarm.detail.splitlines()[0])
            for alarm in alarms.list_alarms(opened)
            if not alarm.kind.startswith("nightly")
        )


def sent(out: Outbox) -> list[str]:
    with session(out.database_url) as opened:
        kinds = opened.scalars(select(Message.kind).where(Message.alarm_id.is_not(None)).order_by(Message.id))
        return [kind for kind in kinds if not kind.startswith("nightly")]


def test_configs_that_broke_are_sent_once_and_the_alarm_closes_when_they_are_back(out: Outbox) -> None:
    night(out, 1)
    look(out)
    assert open_(out) == []
    night(out, 2, broken=(0, 1), wrong=(3,))
    look(out)
    broke = [
        ("became_wrong", "1 config gives wrong results now:"),
        ("stopped_compiling", "2 configs do not compile any more:"),
    ]
    assert open_(out) == broke
    night(out, 3, broken=(1,), wrong=(3,))
    look(out)
    assert [kind for kind, _ in open_(out)] == ["became_wrong", "stopped_compiling"]
    night(out, 4)
    look(out)
    assert open_(out) == []
    night(out, 5, broken=(0,))
    look(out)
    assert [kind for kind, _ in open_(out)] == ["stopped_compiling"]
    assert sent(out) == ["became_wrong", "stopped_compiling", "stopped_compiling"]


def test_a_config_whose_process_died_is_no_alarm(out: Outbox) -> None:
    """The machine had no memory, and people were told that the config does not compile any more."""
    night(out, 1)
    night(out, 2, broken=(0, 1))
    with session(out.database_url) as opened:
        failed = opened.scalars(select(Compilation).where(Compilation.status == "error").order_by(Compilation.id)).all()
        failed[0].failure = "the compiler process died: SIGKILL"
    look(out)
    assert open_(out) == [("stopped_compiling", "1 config does not compile any more:")]


def test_a_failure_that_nobody_fixes_is_closed_after_a_month(out: Outbox) -> None:
    night(out, 1)
    night(out, 2, broken=(0,))
    look(out)
    look(out, days=29)
    assert len(open_(out)) == 1
    look(out, days=31)
    look(out)
    assert open_(out) == []
    assert sent(out) == ["stopped_compiling"]


def test_a_winner_that_is_beaten_a_baseline_that_changed_and_a_shipped_config_behind_are_alarms(out: Outbox) -> None:
    night(out, 1)
    run_id = night(out, 2)
    with session(out.database_url) as opened:
        winner = opened.scalars(
            select(Measurement).where(Measurement.run_id == run_id, Measurement.role == "kernel")
        ).one()
        sweep_id = opened.get_one(Run, run_id).sweep_id
        others = select(Trial.config_id).where(Trial.sweep_id == sweep_id, Trial.config_id != winner.config_id)
        winner.config_id = opened.scalars(others.order_by(Trial.config_id.desc())).first()
        line = {"item": "no spills", "evidence": "9,000 bytes of stack"}
        winner.detail = {"checklist": [{**line, "answer": "no"}]}
        kept = update(Measurement).where(Measurement.run_id != run_id, Measurement.role == "kernel")
        opened.execute(kept.values(detail={"checklist": [{**line, "answer": "yes"}]}))
        opened.execute(update(Run).where(Run.id == run_id).values(tie=[], toolchain={"torch": "2.12"}))
        opened.execute(update(Run).where(Run.id != run_id).values(toolchain={"torch": "2.11"}))
        opened.execute(
            update(Trial).where(Trial.sweep_id == sweep_id, Trial.config_id == winner.config_id).values(median_us=9.0)
        )
        shipped = {"samples_us": [11.0], "median_us": 11.0, "low_us": 11.0, "high_us": 11.0, "detail": {}}
        no_ratio = {"ratio": None, "ratio_low": None, "ratio_high": None}
        row = {"implementation": "shipped", "role": "baseline", "config_id": winner.config_id, **shipped, **no_ratio}
        fact_writes.add_measurements(opened, {run_id: [row]})
    look(out)
    look(out)
    assert [kind for kind, _ in open_(out)] == ["baseline_changed", "line_lost", "regret", "tie_lost"]
    assert sent(out) == ["baseline_changed", "line_lost", "regret", "tie_lost"]
    with session(out.database_url) as opened:
        opened.execute(update(Measurement).where(Measurement.implementation == "shipped").values(median_us=9.1))
    look(out, days=8)
    assert open_(out) == []


def test_a_lost_tie_is_no_alarm_any_more_once_replays_confirmed_the_change(out: Outbox) -> None:
    """A confirmed change has its own message. The night is judged after the alarm is opened."""
    night(out, 1)
    run_id = night(out, 2)
    with session(out.database_url) as opened:
        of_run = (Measurement.run_id == run_id, Measurement.role == "kernel")
        before = opened.scalars(select(Measurement.config_id).where(*of_run)).one()
        sweep_id = opened.get_one(Run, run_id).sweep_id
        other = select(Trial.config_id).where(Trial.sweep_id == sweep_id, Trial.config_id != before).limit(1)
        won = opened.scalars(other).one()
        opened.execute(update(Measurement).where(*of_run).values(config_id=won))
        opened.execute(update(Trial).where(Trial.sweep_id == sweep_id, Trial.config_id == won).values(median_us=9.0))
        opened.execute(update(Run).where(Run.id == run_id).values(tie=[]))
    for verdict, kinds in (("undecided", ["tie_lost"]), ("unchanged", ["tie_lost"]), ("regression", [])):
        with session(out.database_url) as opened:
            opened.execute(update(Verdict).where(Verdict.run_id == run_id).values(verdict=verdict))
        look(out)
        assert [kind for kind, _ in open_(out)] == kinds
    assert sent(out) == ["tie_lost"]


def test_a_baseline_that_changed_for_three_repositories_is_one_alarm(out: Outbox) -> None:
    """Each repository's nightly opened its own, with the same words."""

    def do_night(number: int, *names: str) -> None:
        run_ids = [night(out, number, repository=name) for name in names]
        with session(out.database_url) as opened:
            opened.execute(update(Run).where(Run.id.in_(run_ids)).values(toolchain={"torch": f"2.1{number}"}))
        look(out)

    do_night(1, "one", "two", "three")
    do_night(2, "one", "two")
    do_night(2, "three")
    look(out)
    assert sent(out) == ["baseline_changed"]
    do_night(3, "one")
    assert sent(out) == ["baseline_changed"] * 2
    look(out, days=8)
    assert open_(out) == []


def test_the_list_of_a_kernel_whose_name_has_a_slash_stops_no_alarm(out: Outbox) -> None:
    with session(out.database_url) as opened:
        about = {"kind": life.BEATEN_LIST, "subject": "attention/fwd of tilewatch on b200", "detail": "a reason"}
        life.open_once(opened, key=f"{life.BEATEN_LIST}/attention/fwd/b200/7", **about)
    night(out, 1)
    night(out, 2, broken=(0,))
    look(out)
    assert sorted(sent(out)) == ["list_beaten", "stopped_compiling"]


def test_a_repository_that_is_not_watched_any_more_has_no_alarm(out: Outbox) -> None:
    """Its next night would close them, and there is none: they stayed open for a month."""
    with session(out.database_url) as opened:
        repositories.add(opened, "kernels", "https://example.org/kernels.git", "main")
    night(out, 1, repository="kernels")
    run_id = night(out, 2, repository="kernels", broken=(0,))
    with session(out.database_url) as opened:
        of_kernel = select(Measurement).where(Measurement.run_id == run_id, Measurement.role == "kernel")
        winner = opened.scalars(of_kernel).one()
        row = {**{name: getattr(winner, name) for name in COPIED}, "implementation": "shipped", "role": "baseline"}
        fact_writes.add_measurements(opened, {run_id: [{**row, "median_us": 2 * winner.median_us}]})
    look(out)
    assert [kind for kind, _ in open_(out)] == ["regret", "stopped_compiling"]
    with session(out.database_url) as opened:
        repositories.remove(opened, "kernels")
    look(out)
    assert open_(out) == []


def test_an_imported_night_is_no_alarm(out: Outbox) -> None:
    night(out, 1)
    night(out, 2, broken=(0,))
    with session(out.database_url) as opened:
        opened.execute(update(Submission).values(reason="recorded"))
    look(out)
    assert open_(out) == []


def test_a_missing_nightly_is_open_until_there_is_one(out: Outbox) -> None:
    night(out, 1)
    look(out)
    with session(out.database_url) as opened:
        assert [alarm.kind for alarm in opened.scalars(select(Alarm))] == ["nightly_missing"]
        today = dt.datetime.now(dt.UTC)
        opened.execute(update(Submission).values(night=(today + dt.timedelta(days=1)).date(), requested_at=today))
    look(out)
    with session(out.database_url) as opened:
        assert alarms.list_alarms(opened) == []


def test_a_branch_that_was_submitted_by_hand_opens_no_alarm(out: Outbox) -> None:
    for number in (1, 2):
        night(out, number, repository="tilewatch (branch faster)", broken=(0,) if number == 2 else ())
    look(out)
    assert open_(out) == []


def test_each_repository_has_alarms_of_its_own_that_name_it(out: Outbox) -> None:
    night(out, 1, repository="one")
    night(out, 1, repository="two")
    night(out, 2, repository="two", broken=(0,))
    update_alarms(out, ["one", "two"], TIMES, 0.1, dt.datetime.now(dt.UTC))
    with session(out.database_url) as opened:
        found = [(alarm.kind, alarm.subject.partition(" since ")[0]) for alarm in alarms.list_alarms(opened)]
    assert sorted(found) == [
        ("nightly_missing", "no nightly of one"),
        ("nightly_missing", "no nightly of two"),
        ("stopped_compiling", "gemm_fp8 of two on b200"),
    ]
    update_alarms(out, ["two"], TIMES, 0.1, dt.datetime.now(dt.UTC))
    with session(out.database_url) as opened:
        assert not [alarm for alarm in alarms.list_alarms(opened) if "of one" in alarm.subject], "it is not watched"


def test_a_repository_that_cannot_be_fetched_is_an_alarm_until_it_can(out: Outbox) -> None:
    with session(out.database_url) as opened:
        repositories.add(opened, "kernels", "https://example.org/kernels.git", "main")
        repositories.write_fetch_failure(opened, "kernels", "kernels cannot be fetched: no route to host")
    look(out)
    look(out)
    assert open_(out) == [("fetch_failed", "kernels cannot be fetched: no route to host")]
    assert sent(out) == ["fetch_failed"]
    with session(out.database_url) as opened:
        repositories.write_fetched(opened, "kernels")
    look(out)
    assert open_(out) == []


def test_a_worker_that_does_not_confine_commits_opens_an_alarm_until_it_does(out: Outbox) -> None:
    def beat(sandbox: str, **as_root: str) -> None:
        with session(out.database_url) as opened:
            fact_writes.write_heartbeat(
                opened,
                name="gpu0@n",
                kind="judge",
                host="n",
                gpu_model=None,
                gpu_uuid=None,
                toolchain={"sandbox": sandbox, **as_root},
                queues=("judge",),
                doing=None,
            )

    for said, opened_now in (("network", ["not_confined"]), (Level.FULL.value, [])):
        beat(said)
        look(out)
        assert [kind for kind, _ in open_(out)] == opened_now
    assert sent(out) == ["not_confined"]
    beat(Level.FULL.value, as_root="no memory is shared")
    look(out)
    assert [kind for kind, _ in open_(out)] == ["not_confined"]
    beat(Level.FULL.value)
    look(out)
    assert open_(out) == []
