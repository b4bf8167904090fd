"""`tilewatch regressions` and `tilewatch notify` as people type them."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.worker.cli.conftest import Tilewatch
from tests.worker.fixtures import open_regression
from tests.worker.fixtures.http_receiver import Answer, Receiver, receiver
from tilewatch.db.lifecycle import alarms
from tilewatch.db.models import Action, Message, Run
from tilewatch.db.session import session
from tilewatch.worker.cli import options
from tilewatch.worker.cli.options import NoName
from tilewatch.worker.settings import Settings


@pytest.fixture
def board() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


@pytest.fixture
def number(settings: Settings) -> int:
    with session(settings.connection().database_url) as opened:
        return open_regression.regress(opened)


def test_a_regression_goes_its_way_and_each_step_has_a_name(tilewatch: Tilewatch, number: int) -> None:
    listed = tilewatch("regressions", "list")
    assert "gemm_fp8" in listed
    assert "+4.2 %" in listed
    seven = str(number)
    assert tilewatch("regressions", "acknowledge", seven) == f"regression {number} is acknowledged, owned by grace\n"
    tilewatch("regressions", "assign", seven, "ada", "--who", "eve")
    tilewatch("regressions", "note", seven, "the swizzle [is] off")
    tilewatch("regressions", "link", seven, "https://forge.example.org/1")
    tilewatch("regressions", "mark", seven, "right")
    tilewatch("regressions", "expect", seven, "--note", "bought accuracy")
    assert "cannot" in tilewatch("regressions", "resolve", seven, fails=True)
    tilewatch("regressions", "reopen", seven)
    tilewatch("regressions", "resolve", seven)
    assert tilewatch("regressions", "list") == "no regression is open\n"
    story = json.loads(tilewatch("regressions", "show", seven, "--json"))
    assert story["regression"]["state"] == "resolved"
    assert [(event["who"], event["action"]) for event in story["events"]] == [
        ("tilewatch", "open"),
        ("grace", "acknowledge"),
        ("eve", "assign"),
        ("grace", "note"),
        ("grace", "link"),
        ("grace", "mark right"),
        ("grace", "expect"),
        ("grace", "reopen"),
        ("grace", "resolve"),
    ]
    shown = tilewatch("regressions", "show", seven)
    assert "note: the swizzle [is] off" in shown
    assert "bought accuracy" in shown


def test_lists_are_filtered_and_are_json_too(tilewatch: Tilewatch, number: int) -> None:
    def ids(*options: str) -> list[int]:
        found: list[dict[str, Any]] = json.loads(tilewatch("regressions", "list", "--json", *options))
        return [row["id"] for row in found]

    assert ids() == ids("--all") == ids("--state", "new", "--kernel", open_regression.KERNEL) == [number]
    assert ids("--state", "resolved", "--state", "expected") == ids("--improvements") == ids("--kernel", "other") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "4711"), "there is no regression 4711"),
        (("acknowledge", "4711"), "there is no regression 4711"),
        (("mark", "4711", "wrong", "--run"), "there is no run 4711"),
        (("replay", "4711"), "there is no run 4711"),
        (("acknowledge", "1", "--who", " "), "say who you are with --who NAME"),
        (("list", "--state", "gone"), "'gone' is not one of"),
        (("mark", "1", "perhaps"), "'perhaps' is not one of"),
        (("score", "--since", "yesterday"), "yesterday is not a day"),
        (("score", "--since", "0001-01-01"), "0001-01-01 is not a day since 2000"),
    ],
)
def test_what_is_mistyped_is_said(tilewatch: Tilewatch, arguments: tuple[str, ...], words: str) -> None:
    assert words in " ".join(tilewatch("regressions", *arguments, fails=True).replace("│", "").split())


def test_a_regression_is_measured_again_and_its_range_narrowed(
    tilewatch: Tilewatch, settings: Settings, number: int
) -> None:
    assert tilewatch("regressions", "rerun", str(number)) == "asked for 1 sweep of bad0bad0ba\n"
    assert "nothing to bisect" in tilewatch("regressions", "bisect", str(number), fails=True)
    with session(settings.connection().database_url) as opened:
        wide = open_regression.regress(opened, kernel="wide", commits=4, position=200)
    assert tilewatch("regressions", "bisect", str(wide)).startswith("asked for a bisection of 4 commits after")
    assert "is being bisected" in tilewatch("regressions", "bisect", str(wide), fails=True)
    with session(settings.connection().database_url) as opened:
        sweep, bisection = opened.scalars(select(Action).order_by(Action.id))
    assert (sweep.who, sweep.action, sweep.wanted["commit"]) == ("grace", "sweep", open_regression.BAD_SHA)
    assert (bisection.action, bisection.wanted) == ("bisect", {"regression": wide})


def test_a_regression_of_a_span_is_measured_again_by_a_sweep_of_its_kernel(
    tilewatch: Tilewatch, settings: Settings
) -> None:
    """The sweep of a kernel "softmax span" was refused a minute later."""
    with session(settings.connection().database_url) as opened:
        number = open_regression.regress(opened, kernel="softmax span")
    tilewatch("regressions", "rerun", str(number))
    with session(settings.connection().database_url) as opened:
        assert [asked.wanted["kernel"] for asked in opened.scalars(select(Action))] == ["softmax"]


def test_nobody_signs_as_tilewatch_itself() -> None:
    with pytest.raises(NoName):
        options.name_of("tilewatch")


@pytest.mark.parametrize(
    ("login", "is_terminal", "name"), [("root", True, "ada"), ("root", False, "root"), ("b", True, "b")]
)
def test_root_is_asked_for_a_name_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, login: str, name: str, *, is_terminal: bool
) -> None:
    monkeypatch.setattr(options.getpass, "getuser", lambda: login)
    monkeypatch.setattr(options.sys, "stdin", SimpleNamespace(isatty=lambda: is_terminal))
    monkeypatch.setattr(options.typer, "prompt", lambda _: " ada ")
    assert (options.name_of(None), options.name_of("grace")) == (name, "grace")


def test_marks_are_scored(tilewatch: Tilewatch, settings: Settings, number: int) -> None:
    tilewatch("regressions", "mark", str(number), "wrong", "--note", "the node was swapped")
    with session(settings.connection().database_url) as opened:
        run_id = opened.scalars(select(Run.id)).one()
    assert "the verdict of run" in tilewatch("regressions", "mark", str(run_id), "wrong", "--run")
    assert "0% (95 %: 0% to 79%) of 1 marked" in tilewatch("regressions", "score")
    assert json.loads(tilewatch("regressions", "score", "--json", "--since", "2026-01-01"))["wrong"] == 1


def test_channels_are_tried_and_what_is_wrong_with_one_is_said(
    tilewatch: Tilewatch, settings: Settings, board: Receiver
) -> None:
    settings.home.mkdir(parents=True, exist_ok=True)
    file = settings.home / "notify.toml"
    file.write_text(f"[channels.board]\nwebhook = '{board.url}'\n")
    assert "board: sent" in tilewatch("notify", "test")
    board.answer = lambda _: Answer(401)
    assert "board: the webhook answers 401 Unauthorized" in tilewatch("notify", "test", fails=True)


def test_a_channel_that_cannot_be_used_hinders_no_other(
    tilewatch: Tilewatch, settings: Settings, board: Receiver
) -> None:
    settings.home.mkdir(parents=True, exist_ok=True)
    (settings.home / "notify.toml").write_text(
        f"[channels.board]\nwebhook = '{board.url}'\n[channels.mail]\napprise = ''\n[channels.web]\nwebhook = ''\n"
        "[channels.chat]\nwebhook_from = 'NOWHERE'\n[channels.commits]\nforge = 'owner/name'\n"
    )
    said = tilewatch("notify", "test", fails=True)
    assert "board: sent" in said
    assert "mail: channels.mail has an empty address" in said
    assert "web: channels.web has an empty address" in said
    assert "chat: channels.chat takes its address from NOWHERE, which is not set" in said
    assert "commits: channels.commits is a forge and TILEWATCH_FORGE_TOKEN is not set" in said


def test_messages_that_were_given_up_are_listed_and_sent_again(tilewatch: Tilewatch, settings: Settings) -> None:
    assert tilewatch("notify", "messages") == "there are no messages\n"
    with session(settings.connection().database_url) as opened:
        opened.add(Message(key="k", kind="digest", channel="mail", subject="the day", body=""))
        opened.flush()
        opened.execute(update(Message).values(state="failed", trouble="no such address"))
    assert "no such address" in tilewatch("notify", "messages", "--failed")
    assert "1 of 2 messages will be sent again" in tilewatch("notify", "again", "1", "2")
    assert json.loads(tilewatch("notify", "messages", "--failed", "--json")) == []


def test_open_alarms_are_listed(tilewatch: Tilewatch, settings: Settings) -> None:
    assert tilewatch("notify", "alarms") == "no alarm is open\n"
    with session(settings.connection().database_url) as opened:
        alarms.open_once(opened, key="k", kind="nightly_late", subject="that of today", detail="2 of 5 [configs]")
    shown = tilewatch("notify", "alarms")
    assert "the nightly is late: that of today" in shown
    assert "2 of 5 [configs]" in shown
    assert [row["kind"] for row in json.loads(tilewatch("notify", "alarms", "--json"))] == ["nightly_late"]
