"""A request from the dashboard is submitted once, by the minute's tick, and names the person who asked."""

import datetime as dt
from dataclasses import replace

import pytest
from sqlalchemy import delete, func, select, update

from tests.worker.fixtures import tiny_repository
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import actions, tokens
from tilewatch.db.lifecycle.tokens import BudgetSpent
from tilewatch.db.models import Action, Submission, Token
from tilewatch.db.session import session
from tilewatch.kernels import device
from tilewatch.worker.context import Context
from tilewatch.worker.git.commits import RepositoryError
from tilewatch.worker.queue.dispatch import BrokerUnreachable
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import submit_requests
from tilewatch.worker.submitting.submit_check import CheckAsked

WHO = "ada@example.org"
SWEEP = {"kernel": tiny_repository.KERNEL, "problem": "1024", "commit": "HEAD", "gpus": []}


def every(context: Context) -> list[Action]:
    with session(context.database_url) as opened:
        return list(opened.scalars(select(Action).order_by(Action.id)))


def submissions(context: Context) -> int:
    with session(context.database_url) as opened:
        return opened.execute(select(func.count(Submission.id))).scalar_one()


def test_a_nightly_a_sweep_and_a_backfill_are_submitted_for_who_asked(settings: Settings, context: Context) -> None:
    start = tiny_repository.git(settings.repository, "rev-parse", "HEAD").strip()
    for number in (3, 4):
        tiny_repository.commit(settings.repository, f"Change {number}", factor=number)
    with session(context.database_url) as opened:
        actions.ask(opened, WHO, "nightly", {"commit": "HEAD", "gpus": ["h200"]})
        actions.ask(opened, WHO, "sweep", {**SWEEP, "gpus": ["b200"]})
        actions.ask(opened, WHO, "backfill", {"revisions": f"{start}..HEAD", "gpus": ["h200"]})
    assert len(submit_requests.carry_out(settings)) == 3
    assert submit_requests.carry_out(settings) == []
    assert submissions(context) == 4
    rows = every(context)
    assert {(row.who, row.state) for row in rows} == {(WHO, "done")}
    assert [row.action for row in rows] == ["nightly", "sweep", "backfill"]
    assert rows[1].outcome is not None
    assert rows[1].outcome.startswith("submitted a sweep of double on 1024")
    assert rows[2].outcome is not None
    assert rows[2].outcome.count("submitted a backfill") == 2


def test_what_cannot_be_submitted_is_refused_with_the_sentence_and_not_tried_again(
    settings: Settings, context: Context
) -> None:
    with session(context.database_url) as opened:
        actions.ask(opened, WHO, "sweep", {**SWEEP, "kernel": "duoble"})
    (sentence,) = submit_requests.carry_out(settings)
    (row,) = every(context)
    assert row.state == "refused"
    library = settings.checkouts / tiny_repository.git(settings.repository, "rev-parse", "HEAD").strip()
    assert row.outcome == f"there is no kernel 'duoble' in the library {library}/library; nearest: double"
    assert sentence == f"{WHO} asked for action {row.id} (sweep): {row.outcome}"
    assert submit_requests.carry_out(settings) == []


def test_an_action_that_redis_was_away_for_is_carried_out_later_and_once(settings: Settings, context: Context) -> None:
    with session(context.database_url) as opened:
        actions.ask(opened, WHO, "sweep", {**SWEEP, "gpus": ["h200"]})
    away = settings.model_copy(update={"broker_url": "redis://127.0.0.1:9/0"})
    with pytest.raises(BrokerUnreachable):
        submit_requests.carry_out(away)
    assert [row.state for row in every(context)] == ["asked"]
    # As after a crash between submitting and saying so.
    list(
        submit_requests.submissions(settings, "sweep", every(context)[0].wanted, once=f"action {every(context)[0].id}")
    )
    submit_requests.carry_out(settings)
    assert [row.state for row in every(context)] == ["done"]
    assert submissions(context) == 1


def test_a_submission_from_the_command_line_says_who_it_was(settings: Settings, context: Context) -> None:
    list(submit_requests.submit_for(settings, "grace", "nightly", {"commit": "HEAD", "gpus": ["h200"]}))
    (row,) = every(context)
    assert (row.who, row.action, row.state) == ("grace", "nightly", "done")


def test_a_request_without_its_arguments_is_refused_with_the_kind_of_error(
    settings: Settings, context: Context
) -> None:
    with session(context.database_url) as opened:
        actions.ask(opened, WHO, "sweep", {"gpus": []})
        actions.ask(opened, WHO, "sweep", SWEEP)
    assert len(submit_requests.carry_out(settings)) == 2
    assert [row.state for row in every(context)] == ["refused", "done"]
    assert every(context)[0].outcome == "KeyError: 'kernel'"


def test_a_backfill_at_once_is_stored_with_a_sentence_for_each_commit(settings: Settings, context: Context) -> None:
    for number in (3, 4):
        tiny_repository.commit(settings.repository, f"Change {number}", factor=number)
    wanted = {"revisions": "HEAD~2..HEAD", "gpus": ["h200"]}
    submitted = list(submit_requests.submit_for(settings, "grace", "backfill", wanted))
    (row,) = every(context)
    assert len(submitted) == 2
    assert row.outcome == "\n".join(each.sentence for each in submitted)
    assert row.wanted == wanted


def test_the_arguments_of_a_sweep_and_a_nightly_are_passed_on(settings: Settings) -> None:
    tiny_repository.commit(settings.repository, "Triple numbers", factor=3)
    wide, plain = ({**SWEEP, "commit": "HEAD~1", "gpus": ["h200"], "wide": is_wide} for is_wide in (True, False))
    sentences = [next(submit_requests.submissions(settings, "sweep", wanted)).sentence for wanted in (wide, plain)]
    assert [sentence.partition(" (")[0].rpartition(" for ")[0] for sentence in sentences] == [
        "submitted a wide sweep of double on 1024",
        "submitted a sweep of double on 1024",
    ]
    under = {"commit": "HEAD~1", "gpus": ["h200"], "toolchain": "next"}
    (nightly,) = submit_requests.submissions(settings, "nightly", under)
    assert " under next for " in nightly.sentence
    assert all("(Double numbers)" in sentence for sentence in (*sentences, nightly.sentence))
    with pytest.raises(RepositoryError, match="no repository 'another' is watched"):
        list(submit_requests.submissions(settings, "nightly", {**under, "repository": "another"}))


@pytest.fixture
def checked(settings: Settings, context: Context) -> CheckAsked:
    """A check of two commits, and a token that may ask for one."""
    tiny_repository.commit(settings.repository, "Triple numbers", factor=3)
    with session(context.database_url) as opened:
        tokens.add(opened, name="forge", rights=["check"], gpu_s=600.0, who="ada")
        tokens.add(opened, name="reader", rights=["read"], gpu_s=600.0, who="ada")
    return CheckAsked("HEAD~1", "HEAD", gpus=("sim",))


def test_only_a_new_check_counts_against_a_budget(settings: Settings, context: Context, checked: CheckAsked) -> None:
    with session(context.database_url) as opened:
        holder = tokens.find_holder(opened, name="forge")
    assert holder is not None
    first = submit_requests.submit_check_for(settings, holder, checked)
    again = submit_requests.submit_check_by(settings, "grace", checked)
    rows = every(context)
    assert [(row.who, row.action, row.state) for row in rows] == [
        (holder.who, "check", "done"),
        ("grace", "check", "done"),
    ]
    assert [row.outcome for row in rows] == [first.sentence, again.sentence]
    assert rows[0].wanted["checks"] == list(first.check_ids)
    assert "checks" not in rows[1].wanted
    assert (rows[0].wanted["base"], rows[0].wanted["head"]) == ("HEAD~1", "HEAD")
    with pytest.raises(BudgetSpent):
        submit_requests.submit_check_for(settings, replace(holder, gpu_s=1.0), checked)


def test_a_check_waits_a_while_for_its_commit_and_hinders_no_other_request(
    settings: Settings, context: Context, checked: CheckAsked
) -> None:
    del checked  # it made the commits and the tokens
    forge = {"token": "forge", "base": "HEAD~1"}
    with session(context.database_url) as opened:
        for wanted in ({"head": "f" * 40}, {"head": "e" * 40}, {"head": "HEAD", "token": "reader"}, {"token": "none"}):
            actions.ask(opened, "a forge", "check", {**forge, **wanted})
        actions.ask(opened, WHO, "sweep", SWEEP)
        late = func.now() - submit_requests.FETCHED_WITHIN
        opened.execute(update(Action).where(Action.wanted["head"].astext == "e" * 40).values(asked_at=late))
        soon = late + dt.timedelta(minutes=5)
        opened.execute(update(Action).where(Action.wanted["head"].astext == "f" * 40).values(asked_at=soon))
    assert len(submit_requests.carry_out(settings)) == 4
    rows = every(context)
    assert [row.state for row in rows] == ["asked", "refused", "refused", "refused", "done"]
    assert "no commit" in str(rows[1].outcome)
    for row, name in zip(rows[2:], ("reader", "none"), strict=False):
        assert row.outcome == f"there is no token {name} that may check (docs/reference/api.md)"
    with session(context.database_url) as opened:
        actions.ask(opened, "a forge", "check", {**forge, "head": "HEAD"})
        opened.execute(delete(Action).where(Action.state == "asked", Action.wanted["head"].astext == "f" * 40))
        fact_writes.add_gpu_model(opened, **device.gpu_model("h200").stored)
        fact_writes.write_heartbeat(opened, "gpu@a", kind="gpu", host="a", gpu_model="h200", toolchain={})
    (sentence,) = submit_requests.carry_out(settings)
    last = every(context)[-1]
    assert (last.state, last.outcome) == ("done", sentence.partition(": ")[2])
    assert sentence.startswith(f"a forge asked for action {last.id} (check): submitted the check of ")
    assert len(last.wanted["checks"]) == 1


def test_a_check_of_a_token_that_is_in_use_waits(settings: Settings, context: Context, checked: CheckAsked) -> None:
    del checked
    with session(context.database_url) as opened:
        wanted = {"token": "forge", "base": "HEAD~1", "head": "HEAD"}
        actions.ask(opened, "a forge", "check", wanted)
    with session(context.database_url) as other:
        other.execute(select(Token.id).where(Token.name == "forge").with_for_update())
        assert submit_requests.carry_out(settings) == []
    assert [row.state for row in every(context)] == ["asked"]


def test_a_comparison_of_toolchains_that_was_asked_for_is_submitted(settings: Settings, context: Context) -> None:
    with session(context.database_url) as opened:
        actions.ask(
            opened, WHO, "toolchains", {"toolchains": ["installed", "next"], "commit": "HEAD", "gpus": ["h200"]}
        )
    (sentence,) = submit_requests.carry_out(settings)
    (row,) = every(context)
    assert row.outcome is not None
    assert row.outcome.startswith("submitted the comparison of installed with next at ")
    assert (row.state, sentence.endswith(row.outcome)) == ("done", True)
