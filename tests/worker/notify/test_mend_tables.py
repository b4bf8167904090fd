"""Pull requests that replace slow entries of a tuned table, on local forges with GitHub's and GitLab's API."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from tests.worker.fixtures.http_receiver import Answer, receiver
from tests.worker.fixtures.tiny_repository import git
from tests.worker.fixtures.tuned_nights import FILE, TunedNights, watch_tuned_repository
from tilewatch.db.lifecycle.suspicions import NOT_NEEDED
from tilewatch.db.models import Alarm, Job, PullRequest, Replay, Verdict
from tilewatch.db.session import session
from tilewatch.worker.notify.pull_requests import ForgeFailed, PullRequestForge
from tilewatch.worker.notify.routing import PullRequestPlace
from tilewatch.worker.queue.payloads import read_payload
from tilewatch.worker.queue.replay_job import ReplayJob
from tilewatch.worker.settings import Settings
from tilewatch.worker.steps.write_replay import write_failure

SLOW, TIED, OTHER = ("gemm", "4096x4096x4096"), ("gemm", "64"), ("norm", "8192")
TIMES = {
    SLOW: {64: 100.0, 128: 104.0, 256: 130.0},
    TIED: {64: 50.0, 128: 50.1, 256: 90.0},
    OTHER: {64: 70.0, 128: 60.0, 256: 90.0},
}
FORGES = pytest.mark.parametrize("nights", ["github", "gitlab"], indirect=True)


@pytest.fixture
def nights(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> Iterator[TunedNights]:
    with watch_tuned_repository(settings, tmp_path / "forge", TIMES, getattr(request, "param", "github")) as made:
        yield made


def make_slow(nights: TunedNights) -> None:
    """Makes what the table ships for SLOW 6 % slower than another config, and measures a night."""
    nights.change(SLOW, 64, 1.10)
    nights.do_night()


def read_states(nights: TunedNights) -> list[str]:
    with session(nights.url) as opened:
        return list(opened.scalars(select(PullRequest.state).order_by(PullRequest.id)))


@FORGES
def test_a_slow_entry_gets_one_pull_request_with_its_evidence(nights: TunedNights) -> None:
    before = nights.forge.read_file("main", FILE)
    make_slow(nights)
    for _ in range(2):
        nights.mend()
        nights.do_night()
    (pull,) = nights.forge.pulls
    assert (pull.title, pull.target) == ("Replace 1 slow config of gemm on NVIDIA H200", "main")
    assert "| `4096x4096x4096` | `tile=64` | `tile=128` | -5." in pull.body
    assert "Of 864 configs 240 were tried with this code and driver" in pull.body
    changed = nights.forge.read_file(pull.branch, FILE)
    old, new = (json.loads(text)["tables"] for text in (before, changed))
    (was,), (now,) = ([row for row in table["rows"] if row["problem"] == SLOW[1]] for table in (old[0], new[0]))
    assert (was["config"], now["config"]) == ({"tile": 64}, {"tile": 128})
    assert now["commit"] != old[0]["commit"], "the row was measured at a later commit than the table"
    assert len(set(before.splitlines()) - set(changed.splitlines())) < len(json.dumps(was, indent=1).splitlines())
    nights.forge.merge(1)
    nights.do_night()
    nights.mend()
    assert nights.read_shipped()[SLOW] == 128
    assert (len(nights.forge.pulls), read_states(nights), pull.comments) == (1, ["merged"], [])


@FORGES
def test_a_pull_request_is_withdrawn_with_a_comment_when_its_cause_goes(nights: TunedNights) -> None:
    make_slow(nights)
    nights.mend()
    nights.change(SLOW, 64, 1 / 1.10)
    nights.do_night()
    nights.mend()
    nights.mend()
    (pull,) = nights.forge.pulls
    assert (pull.state, read_states(nights)) == ("closed", ["withdrawn"])
    (comment,) = pull.comments
    assert "None of the shipped configs that it replaces is slower than the best config any more." in comment


def test_a_pull_request_whose_cause_goes_before_the_forge_has_it_is_withdrawn(nights: TunedNights) -> None:
    make_slow(nights)
    nights.forge.fails_with = 503
    nights.mend()
    nights.forge.fails_with = None
    assert read_states(nights) == ["open"]
    nights.change(SLOW, 64, 1 / 1.10)
    nights.do_night()
    nights.mend()
    assert (nights.forge.pulls, read_states(nights)) == ([], ["withdrawn"])


@pytest.mark.parametrize("answer", [{}, None, [], {"state": "open", "number": "seven"}])
def test_an_answer_that_is_no_pull_request_is_a_sentence(answer: object) -> None:
    with receiver() as running:
        running.answer = lambda _: Answer(json=answer)
        forge = PullRequestForge(PullRequestPlace(forge="a/b", api=running.url), "token-of-ours")
        with pytest.raises(ForgeFailed, match=r"^the forge \(a/b\) answers something else than a pull request$"):
            forge.read(1)


def test_launches_of_the_same_machine_code_count_for_a_later_cubin_of_it(nights: TunedNights) -> None:
    """The replay of the later cubin was not needed, and its entry counted as not replayed for ever."""
    make_slow(nights)
    with session(nights.url) as opened:
        (launched,) = opened.scalars(select(Replay).where(Replay.axis == "config", Replay.problem == SLOW[1]))
        columns = {each.name: getattr(launched, each.name) for each in Replay.__table__.columns if each.name != "id"}
        launched.bad_content_key = "an earlier cubin"
        opened.flush()
        again = {"key": "again", "good_us": [], "bad_us": [], "failure": NOT_NEEDED, "gpu_s": 0.0}
        opened.execute(insert(Replay).values(columns | again))
    nights.mend()
    (pull,) = nights.forge.pulls
    assert "| `4096x4096x4096` | `tile=64` | `tile=128` | -5." in pull.body


def test_a_second_slow_entry_of_a_table_joins_the_pull_request(nights: TunedNights) -> None:
    make_slow(nights)
    nights.mend()
    ships = nights.read_shipped()[TIED]
    nights.change(TIED, ships, 1.20)
    nights.do_night()
    nights.mend()
    (pull,) = nights.forge.pulls
    assert pull.title == "Replace 2 slow configs of gemm on NVIDIA H200"
    assert "no short list" in pull.body, "the second entry has no certificate"
    assert nights.read_shipped(pull.branch)[TIED] != ships


def test_an_entry_that_a_person_declined_is_left_alone_and_others_are_not(nights: TunedNights) -> None:
    make_slow(nights)
    nights.mend()
    nights.forge.pulls[0].state = "closed"
    nights.do_night()
    nights.mend()
    assert (len(nights.forge.pulls), read_states(nights)) == (1, ["declined"])
    nights.change(TIED, nights.read_shipped()[TIED], 1.20)
    nights.do_night()
    nights.mend()
    assert "4096x4096x4096" not in nights.forge.pulls[1].body


@pytest.mark.parametrize("ahead", [0.998, 1.0036])
def test_a_night_alone_opens_nothing(nights: TunedNights, ahead: float) -> None:
    """Sweeps time what ships 3 % too slow. A replay, once for this code, finds it faster or too little slower."""
    ships = nights.read_shipped()[TIED]
    nights.times[TIED][192 - ships] = nights.times[TIED][ships] / ahead
    for _ in range(2):
        nights.disturbed.add((TIED, ships))
        nights.do_night()
        nights.mend()
    with session(nights.url) as opened:
        problems = list(opened.scalars(select(Replay.problem).where(Replay.axis == "config")))
    assert (nights.forge.pulls, problems) == ([], [TIED[1]])


def test_a_replay_that_failed_is_not_asked_for_every_night(nights: TunedNights) -> None:
    ships = nights.read_shipped()[TIED]
    nights.times[TIED][192 - ships] = nights.times[TIED][ships]
    nights.answers_replays = False
    for _ in range(2):
        nights.disturbed.add((TIED, ships))
        nights.do_night()
        with session(nights.url) as opened:
            (job,) = opened.scalars(select(Job).where(Job.kind == "prepare"))
            write_failure(opened, read_payload(ReplayJob, job.payload), "the GPU fell off the bus")
            job.state = "done"


def test_a_pull_request_waits_while_a_replay_of_new_code_is_to_come(nights: TunedNights) -> None:
    make_slow(nights)
    nights.mend()
    nights.sources[SLOW[0]] += 1
    nights.answers_replays = False
    nights.do_night()
    nights.mend()
    assert (nights.forge.pulls[0].state, read_states(nights)) == ("open", ["open"])


@pytest.mark.parametrize("status", [503, 401])
def test_a_forge_that_fails_gets_its_pull_request_later_and_once(nights: TunedNights, status: int) -> None:
    make_slow(nights)
    nights.forge.fails_with = status
    nights.mend()
    nights.forge.fails_with = None
    nights.mend()
    nights.mend()
    assert len(nights.forge.pulls) == 1
    with session(nights.url) as opened:
        alarms = list(opened.scalars(select(Alarm.detail).where(Alarm.kind == "repository_failed")))
    assert ["answers 401" in detail for detail in alarms] == ([True] if status == 401 else []), "503 passes"


def test_a_branch_to_which_somebody_else_pushed_stays_and_other_tables_do_not_wait(nights: TunedNights) -> None:
    make_slow(nights)
    nights.mend()
    branch = nights.forge.pulls[0].branch
    git(nights.forge.work, "fetch", "--quiet", "origin", branch)
    git(nights.forge.work, "checkout", "--quiet", "FETCH_HEAD")
    git(nights.forge.work, "commit", "--quiet", "--allow-empty", "--message", "By hand")
    git(nights.forge.work, "push", "--quiet", "origin", f"HEAD:{branch}")
    by_hand = git(nights.forge.work, "rev-parse", "HEAD")
    git(nights.forge.work, "checkout", "--quiet", "main")
    nights.change(TIED, nights.read_shipped()[TIED], 1.20)
    nights.change(OTHER, 128, 1.30)
    nights.do_night()
    nights.mend()
    assert git(nights.forge.origin, "rev-parse", branch) == by_hand
    assert [pull.title for pull in nights.forge.pulls[1:]] == ["Replace 1 slow config of norm on NVIDIA H200"]
    with session(nights.url) as opened:
        assert "somebody else has pushed" in opened.scalars(select(Alarm.detail)).one()


@pytest.mark.parametrize(
    "rows",
    ['[{"problem": "64", "config": {"tile\\u0000": 64}}]', '[{"problem": [], "config": {"tile": NaN}}, 7]', "{}", "7"],
)
def test_a_table_that_is_no_table_changes_no_verdict_and_no_repository(nights: TunedNights, rows: str) -> None:
    table = f'{{"format": 1, "tables": [7, {{"kernel": "gemm", "gpu_model": "h200", "rows": {rows}}}]}}'
    nights.forge.commit("Break the table", **{FILE: table})
    nights.do_night()
    nights.mend()
    with session(nights.url) as opened:
        assert not [each for each in opened.scalars(select(Verdict.reason)) if "could not be judged" in each]
        assert opened.scalars(select(Alarm)).all() == []
    assert nights.forge.pulls == []


def test_nothing_happens_where_it_is_not_switched_on(nights: TunedNights) -> None:
    make_slow(nights)
    (nights.settings.home / "notify.toml").write_text("")
    nights.mend()
    assert (nights.forge.receiver.asked, read_states(nights)) == ([], [])
