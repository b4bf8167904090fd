"""A program submits a check in the name of its token, reads its answer, and may not spend more than its budget."""

import json
import shutil
from collections.abc import Iterator

import pytest
import requests

from tests.worker.fixtures import git_history
from tests.worker.fixtures.api_server import serve
from tests.worker.fixtures.git_history import ADD, BASE, CAST, NARROW
from tests.worker.fixtures.worker_context import Drain
from tilewatch.db.lifecycle import tokens
from tilewatch.db.page_reads.tokens import list_tokens
from tilewatch.db.session import session
from tilewatch.worker.comparing.check import BUDGET_S
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings


@pytest.fixture
def shas(settings: Settings) -> dict[str, str]:
    shutil.rmtree(settings.repository)
    return git_history.make(settings.repository, NARROW, ADD, CAST)


@pytest.fixture
def server(settings: Settings) -> Iterator[str]:
    with serve(settings) as address:
        yield address


def make_token(context: Context, name: str, gpu_s: float) -> dict[str, str]:
    """The headers of a call with a new token that may check."""
    with session(context.database_url) as opened:
        made = tokens.add(opened, name=name, rights=["check"], gpu_s=gpu_s, who="ada")
    return {"Authorization": f"Bearer {made}"}


def submit(server: str, headers: dict[str, str], base: str, head: str, **more: object) -> requests.Response:
    asked = {"base": base, "head": head, "gpus": ["sim"], **more}
    return requests.post(f"{server}/v1/checks", json=asked, headers=headers, timeout=60)


def test_a_check_is_submitted_answered_read_and_on_record_with_its_cost(
    server: str, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    headers = make_token(context, "ci", 3600)
    answer = submit(server, headers, shas[NARROW], shas[ADD])
    assert answer.status_code == 202
    (check_id,) = answer.json()["check_ids"]
    begun = requests.get(f"{server}/v1/checks/{check_id}", timeout=60).json()
    assert (begun["check"]["who"], begun["check"]["exit_code"], begun["operators"]) == ("token ci", None, [])
    drain()
    story = requests.get(f"{server}/v1/checks/{check_id}", timeout=60).json()
    assert story["check"]["exit_code"] in (0, 1)
    assert [each["problem"] for each in story["operators"]] == ["1024", "2048"]
    assert [each["id"] for each in requests.get(f"{server}/v1/checks", timeout=60).json()] == [check_id]
    (action,) = requests.get(f"{server}/v1/actions", timeout=60).json()
    assert (action["who"], action["action"], action["state"]) == ("token ci", "check", "done")
    assert action["wanted"]["checks"] == [check_id]
    assert action["outcome"] == answer.json()["sentence"]
    assert action["gpu_s"] == pytest.approx(story["check"]["gpu_s"])
    assert action["gpu_s"] > 0
    with session(context.database_url) as opened:
        (token,) = list_tokens(opened)
    assert token.spent_gpu_s == pytest.approx(action["gpu_s"])


def test_who_found_the_check_of_another_is_not_charged_for_it(
    server: str, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    first = submit(server, make_token(context, "one", 3600), shas[NARROW], shas[ADD]).json()
    drain()
    second = submit(server, make_token(context, "two", 3600), shas[NARROW], shas[ADD]).json()
    assert (second["check_ids"], second["created"]) == (first["check_ids"], False)
    newest = requests.get(f"{server}/v1/actions", timeout=60).json()[0]
    assert (newest["who"], newest["gpu_s"]) == ("token two", None)


def test_a_budget_holds_what_is_not_answered_yet_and_what_was_spent(
    server: str, context: Context, drain: Drain, shas: dict[str, str]
) -> None:
    headers = make_token(context, "small", BUDGET_S)
    assert submit(server, headers, shas[NARROW], shas[ADD]).status_code == 202
    refused = submit(server, headers, shas[NARROW], shas[CAST])
    assert refused.status_code == 429
    assert refused.json()["detail"].startswith("the checks of token small took 240 GPU seconds in 24 hours")
    drain()
    assert submit(server, headers, shas[NARROW], shas[CAST]).status_code == 202
    assert submit(server, make_token(context, "none", 0), shas[ADD], shas[CAST]).status_code == 429
    with session(context.database_url) as opened:
        assert {token.name: token.spent_gpu_s > 0 for token in list_tokens(opened)} == {"small": True, "none": False}


def test_two_submissions_of_a_token_do_not_see_the_same_rest(
    server: str, context: Context, shas: dict[str, str]
) -> None:
    headers = make_token(context, "ci", 3600)
    with session(context.database_url) as opened:
        holder = tokens.find_holder(opened, name="ci")
        assert holder is not None
        tokens.require_budget(opened, holder, BUDGET_S)
        refused = submit(server, headers, shas[NARROW], shas[ADD])
        assert refused.status_code == 429
        assert refused.json()["detail"].startswith("another check of token ci is being submitted")
    assert submit(server, headers, shas[NARROW], shas[ADD]).status_code == 202


@pytest.mark.parametrize(
    ("asked", "status", "sentence"),
    [
        ({"base": "nowhere", "head": "HEAD"}, 422, "has no commit 'nowhere'"),
        ({"base": "HEAD", "head": "HEAD", "gpus": ["h9000"]}, 422, "h9000"),
        ({"base": "HEAD", "head": "HEAD", "repository": "none"}, 422, "no repository 'none' is watched"),
        ({"base": "--all", "head": "HEAD"}, 422, "base: String should match pattern"),
        ({"head": "HEAD"}, 422, "base: Field required"),
    ],
)
def test_a_check_that_makes_no_sense_is_refused(
    server: str, context: Context, asked: dict[str, object], status: int, sentence: str
) -> None:
    answer = requests.post(f"{server}/v1/checks", json=asked, headers=make_token(context, "ci", 60), timeout=60)
    assert answer.status_code == status
    assert sentence in answer.json()["detail"]
    assert requests.get(f"{server}/v1/actions", timeout=60).json() == []


def test_nobody_submits_without_a_token_that_may(server: str, context: Context, shas: dict[str, str]) -> None:
    assert submit(server, {}, shas[BASE], shas[ADD]).status_code == 401
    with session(context.database_url) as opened:
        reader = tokens.add(opened, name="reader", rights=["read"], gpu_s=3600, who="ada")
    refused = submit(server, {"Authorization": f"Bearer {reader}"}, shas[BASE], shas[ADD])
    assert (refused.status_code, refused.json()) == (403, {"detail": "the token reader may read, not check"})
    assert json.loads(requests.get(f"{server}/v1/checks", timeout=60).text) == []


def test_without_a_broker_a_check_is_not_taken(settings: Settings, context: Context, shas: dict[str, str]) -> None:
    away = settings.model_copy(update={"broker_url": "redis://127.0.0.1:9/0"})
    with serve(away) as address:
        answer = submit(address, make_token(context, "ci", 60), shas[NARROW], shas[ADD])
    assert (answer.status_code, answer.json()["detail"].split(";")[0]) == (
        503,
        "a server that this needs does not answer",
    )
