"""Every check that has ended is written to the forge, once, and to no other channel. A real web server receives it."""

import datetime as dt
from collections.abc import Iterator

import pytest
from sqlalchemy import select

from tests.worker.fixtures.http_receiver import Answer, Receiver, receiver
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle import checks, repositories
from tilewatch.db.lifecycle.checks import CheckRequest
from tilewatch.db.models import Message
from tilewatch.db.session import session
from tilewatch.worker.notify.forge import Forge
from tilewatch.worker.notify.outbox import Outbox, write_and_send
from tilewatch.worker.notify.routing import NotifySettings
from tilewatch.worker.notify.senders import Log, Webhook

NOW = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)
HEAD = "beef" * 10
FASTER = {"kind": "faster", "sentence": "faster -9.8 % (-10.0 to -9.5) after 12 launches", "change": -0.098}


@pytest.fixture
def web() -> Iterator[Receiver]:
    with receiver() as running:
        running.answer = lambda asked: Answer(201, asked.json)
        yield running


def outbox_of(database_url: str, web: Receiver, *routes: dict[str, object]) -> Outbox:
    channels = {"commits": {"forge": "owner/name"}, "board": {"webhook": web.url}}
    settings = NotifySettings.model_validate({"channels": channels, "routes": routes or [{"to": [*channels]}]})
    senders = {"log": Log(), "board": Webhook(web.url), "commits": Forge("owner/name", web.url, "token")}
    return Outbox(database_url, settings, senders, "http://here")


def make_check(database_url: str, kernel: str | None = None) -> int:
    """A check of two operators, one of them still to be launched."""
    with session(database_url) as opened:
        fact_writes.add_gpu_model(
            opened, slug="b200", name="B200", arch="sm_100", fp8_tflops=4500.0, bandwidth_gbps=8000.0
        )
        asked = CheckRequest("tilewatch", "a" * 40, HEAD, "Tile it", "b200", kernel, 0.0)
        check_id, _ = checks.open_once(opened, asked, "ada")
        rows = [
            {
                "kernel": "gemm",
                "problem": "small",
                "kind": None,
                "base_config": {"tile_m": 64},
                "moved": ["spills 8 -> 0"],
            },
            {"kernel": "gemm", "problem": "large", "kind": "identical", "sentence": "identical machine code"},
        ]
        checks.write_prepared(opened, check_id, rows)
    return check_id


def answer(database_url: str, check_id: int) -> None:
    with session(database_url) as opened:
        operator_id = opened.scalars(select(checks.CheckOperator.id).where(checks.CheckOperator.kind.is_(None))).one()
        times = {"base_us": [10.0] * 12, "head_us": [9.0] * 12}
        checks.write_outcome(opened, check_id, operator_id, {**FASTER, **times, "low": -0.1, "high": -0.095})


def test_a_check_is_not_written_to_the_forge_of_another_watched_repository(database_url: str, web: Receiver) -> None:
    with session(database_url) as opened:
        repositories.add(opened, "other", "https://github.com/owner/name.git", "main")
    answer(database_url, make_check(database_url))
    assert write_and_send(outbox_of(database_url, web), NOW) == 0
    with session(database_url) as opened:
        repositories.add(opened, "tilewatch", "git@github.com:Owner/Name", "release")
    assert write_and_send(outbox_of(database_url, web), NOW) == 1


def test_a_check_that_ended_is_a_status_and_a_comment_once(database_url: str, web: Receiver) -> None:
    check_id = make_check(database_url)
    outbox = outbox_of(database_url, web)
    assert write_and_send(outbox, NOW) == 0, "it has not ended"
    answer(database_url, check_id)
    assert write_and_send(outbox, NOW) == 1
    assert write_and_send(outbox, NOW) == 0
    status, comment = web.asked
    assert status.path == f"/repos/owner/name/statuses/{HEAD}"
    assert status.json == {
        "state": "success",
        "context": "tilewatch/check b200",
        "description": "fine on B200 against aaaaaaaaaa: 1 faster, 1 identical",
        "target_url": f"http://here/checks?check={check_id}",
    }
    assert comment.path == f"/repos/owner/name/commits/{HEAD}/comments"
    for words in (
        "gemm small: faster -9.8 % (-10.0 to -9.5) after 12 launches; spills 8 -> 0",
        "gemm large (sm_100): identical machine code",
        "Repeat it: tilewatch submit check aaaaaaaaaa..beefbeefbe --gpu b200 --repository",
        f"[Evidence](http://here/checks?check={check_id})",
    ):
        assert words in comment.json["body"]


def test_a_check_that_could_not_be_prepared_is_an_error_with_its_reason(database_url: str, web: Receiver) -> None:
    with session(database_url) as opened:
        fact_writes.add_gpu_model(
            opened, slug="b200", name="B200", arch="sm_100", fp8_tflops=4500.0, bandwidth_gbps=8000.0
        )
        checks.open_once(opened, CheckRequest("tilewatch", "a" * 40, HEAD, "Tile it", "b200", None, 0.0), "ada")
        checks.end_stranded(opened)
    assert write_and_send(outbox_of(database_url, web), NOW) == 1
    assert web.asked[0].json["state"] == "error"
    assert web.asked[0].json["description"] == f"could not tell on B200 against aaaaaaaaaa: {checks.LOST}"


def test_routes_choose_the_forges_that_get_checks(database_url: str, web: Receiver) -> None:
    check_id = make_check(database_url, kernel="gemm")
    answer(database_url, check_id)
    for route in ({"about": ["regression"]}, {"gpu": "h200"}, {"kernel": "attention"}):
        write_and_send(outbox_of(database_url, web, {**route, "to": ["commits"]}), NOW)
    with session(database_url) as opened:
        assert opened.scalars(select(Message)).all() == []
    assert write_and_send(outbox_of(database_url, web, {"kernel": "gemm*", "gpu": "b*", "to": ["commits"]}), NOW) == 1
