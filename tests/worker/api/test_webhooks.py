"""A forge's signed delivery becomes a check, once; one that nobody signed, or that asks for none, becomes nothing."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from sqlalchemy import select, update

from tests.worker.fixtures import compiled_sweep, tiny_repository
from tests.worker.fixtures.api_server import serve
from tests.worker.fixtures.forge_events import (
    FORK,
    GITLAB_PROJECT,
    github_merge_group,
    github_pull_request,
    github_push,
    gitlab_merge_request,
    gitlab_pipeline,
    gitlab_push,
)
from tilewatch.db.lifecycle import repositories, tokens
from tilewatch.db.models import Action
from tilewatch.db.page_reads.checks import CheckRow, list_checks
from tilewatch.db.session import session
from tilewatch.worker.context import Context
from tilewatch.worker.git import watched
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting import submit_requests

SECRET = "a common secret"  # noqa: S105 - of these tests
ZEROS = "0" * 40


@pytest.fixture
def shas(settings: Settings) -> dict[str, str]:
    """A branch that left main before main went on."""
    folder = settings.repository
    shas = {"left": tiny_repository.git(folder, "rev-parse", "HEAD").strip()}
    tiny_repository.git(folder, "checkout", "--quiet", "-b", "topic")
    tiny_repository.commit(folder, "Triple", factor=3)
    shas["topic"] = tiny_repository.git(folder, "rev-parse", "HEAD").strip()
    tiny_repository.git(folder, "checkout", "--quiet", "-b", "trunk", shas["left"])
    tiny_repository.commit(folder, "Quadruple", factor=4)
    shas["trunk"] = tiny_repository.git(folder, "rev-parse", "HEAD").strip()
    return shas


@pytest.fixture
def server(settings: Settings, context: Context) -> Iterator[str]:
    compiled_sweep.add_gpu_worker(context)
    with serve(settings.model_validate({**settings.model_dump(), "webhook_secret": SECRET})) as address:
        yield address


@pytest.fixture
def token(context: Context) -> None:
    with session(context.database_url) as opened:
        tokens.add(opened, name="webhook", rights=["check"], gpu_s=3600, who="ada")


def github(server: str, event: str, payload: Any, delivery: str = "d-1", **headers: str) -> requests.Response:
    body = json.dumps(payload).encode()
    signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    about = {"X-GitHub-Event": event, "X-GitHub-Delivery": delivery, "X-Hub-Signature-256": signature, **headers}
    return requests.post(f"{server}/v1/hooks/github", data=body, headers=about, timeout=30)


def gitlab(server: str, event: str, payload: Any, delivery: str = "d-1", secret: str = SECRET) -> requests.Response:
    about = {"X-Gitlab-Event": event, "X-Gitlab-Event-UUID": delivery, "X-Gitlab-Token": secret}
    return requests.post(f"{server}/v1/hooks/gitlab", json=payload, headers=about, timeout=30)


def actions(context: Context) -> list[Action]:
    with session(context.database_url) as opened:
        return list(opened.scalars(select(Action).order_by(Action.id)))


def carry_out(settings: Settings, context: Context) -> list[CheckRow]:
    submit_requests.carry_out(settings)
    with session(context.database_url) as opened:
        return list_checks(opened)


@pytest.mark.usefixtures("token")
def test_a_pull_request_is_compared_with_the_commit_at_which_it_left_once(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    taken = github(server, "pull_request", github_pull_request(shas["trunk"], shas["topic"]))
    assert (taken.status_code, taken.json()["detail"]) == (
        202,
        "a check is submitted within a minute: pull request 12",
    )
    again = github(server, "pull_request", github_pull_request(shas["trunk"], shas["topic"]))
    assert (again.status_code, again.json()["detail"]) == (200, "this delivery was taken before")
    (check,) = carry_out(settings, context)
    assert (check.base_sha, check.head_sha, check.who) == (shas["left"], shas["topic"], "token webhook")
    (action,) = actions(context)
    assert (action.who, action.state, action.wanted["of"]) == ("token webhook", "done", "pull request 12")
    assert action.wanted["checks"] == [check.id]
    github(server, "pull_request", github_pull_request(shas["trunk"], shas["topic"]))
    assert len(carry_out(settings, context)) == len(actions(context)) == 1


@pytest.mark.usefixtures("token")
def test_a_push_is_compared_with_what_was_there_before(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    assert github(server, "push", github_push(shas["left"], shas["topic"])).status_code == 202
    assert gitlab(server, "Push Hook", gitlab_push(shas["left"], shas["trunk"], "refs/heads/trunk")).status_code == 202
    compared = {(check.base_sha, check.head_sha) for check in carry_out(settings, context)}
    assert compared == {(shas["left"], shas["topic"]), (shas["left"], shas["trunk"])}


@pytest.mark.usefixtures("token")
def test_a_pull_request_with_another_base_is_compared_with_it(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    github(server, "pull_request", github_pull_request(shas["trunk"], shas["topic"]), delivery="d-1")
    changes = {"base": {"ref": {"from": "trunk"}, "sha": {"from": shas["trunk"]}}}
    moved = github_pull_request(shas["topic"], shas["trunk"], "edited", base_ref="topic", changes=changes)
    assert github(server, "pull_request", moved, delivery="d-2").status_code == 202
    assert {(check.base_sha, check.head_sha) for check in carry_out(settings, context)} == {
        (shas["left"], shas["topic"]),
        (shas["left"], shas["trunk"]),
    }


@pytest.mark.usefixtures("token")
def test_a_merge_queue_gets_the_check_that_it_waits_for(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    answer = github(server, "merge_group", github_merge_group(shas["left"], shas["topic"]))
    assert answer.json()["detail"] == "a check is submitted within a minute: merge queue for trunk"
    (check,) = carry_out(settings, context)
    assert (check.base_sha, check.head_sha) == (shas["left"], shas["topic"])


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("is_draft", [True, False])
def test_a_draft_is_compared_like_any_other_and_once(
    server: str, settings: Settings, context: Context, shas: dict[str, str], *, is_draft: bool
) -> None:
    for number, action in enumerate(("opened", "ready_for_review")):
        asked = github_pull_request(shas["trunk"], shas["topic"], action, draft=is_draft)
        assert github(server, "pull_request", asked, delivery=f"d-{number}").status_code == 202
    assert len(carry_out(settings, context)) == 1


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    ("attributes", "changes"),
    [
        ({"oldrev": "c" * 40}, {}),
        ({}, {"target_branch": {"previous": "release", "current": "trunk"}}),
        ({"draft": False}, {"draft": {"previous": True, "current": False}}),
    ],
)
def test_an_update_of_a_merge_request_is_compared_where_something_else_is_to_be_merged(
    server: str,
    settings: Settings,
    context: Context,
    shas: dict[str, str],
    attributes: dict[str, Any],
    changes: dict[str, Any],
) -> None:
    asked = gitlab_merge_request(shas["topic"], "update", changes=changes, **attributes)
    assert gitlab(server, "Merge Request Hook", asked).status_code == 202
    (check,) = carry_out(settings, context)
    assert (check.base_sha, check.head_sha) == (shas["left"], shas["topic"])
    edited = gitlab_merge_request(shas["topic"], "update", changes={"title": {"previous": "a", "current": "b"}})
    assert "neither a commit" in gitlab(server, "Merge Request Hook", edited, delivery="d-2").json()["detail"]


@pytest.mark.usefixtures("token")
def test_a_merge_request_is_compared_with_its_target_once(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    for _ in range(2):
        gitlab(server, "Merge Request Hook", gitlab_merge_request(shas["topic"]))
    (check,) = carry_out(settings, context)
    assert (check.base_sha, check.head_sha) == (shas["left"], shas["topic"])


@pytest.fixture
def train(
    settings: Settings, context: Context, shas: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The commits of a merge train with two merge requests, by their numbers, of a repository that was added. Only refs
    of GitLab's own lead to them."""
    folder = settings.repository
    tiny_repository.git(folder, "checkout", "--quiet", "-b", "other", shas["left"])
    tiny_repository.commit(folder, "Quintuple", factor=5)
    other = tiny_repository.git(folder, "rev-parse", "HEAD").strip()
    made, last = dict[str, str](), shas["trunk"]
    for request, head in (("3", shas["topic"]), ("4", other)):
        tree = tiny_repository.git(folder, "rev-parse", f"{head}^{{tree}}").strip()
        line = (
            "commit-tree",
            tree,
            "-p",
            last,
            "-p",
            head,
            "-m",
            f"Merge branch into refs/merge-requests/{request}/train",
        )
        made[request] = last = tiny_repository.git(folder, *line).strip()
        tiny_repository.git(folder, "update-ref", f"refs/merge-requests/{request}/train", last)
    address = GITLAB_PROJECT["git_http_url"]
    for name, value in {"COUNT": "1", "KEY_0": f"url.{folder}.insteadOf", "VALUE_0": str(address)}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    with session(context.database_url) as opened:
        watched.add(opened, settings, str(address), name=None, branch="trunk")
    return {**shas, **made}


@pytest.mark.usefixtures("token")
def test_a_merge_train_is_compared_with_its_target_before_it_merges(
    server: str, settings: Settings, context: Context, train: dict[str, str]
) -> None:
    answers = [
        gitlab(server, "Pipeline Hook", gitlab_pipeline(train["4"], status), delivery=status).status_code
        for status in ("created", "pending", "running", "success")
    ]
    assert answers == [200, 202, 200, 200], "the pipeline asks once"
    (check,) = carry_out(settings, context)
    assert (check.base_sha, check.head_sha) == (train["trunk"], train["4"])
    (action,) = actions(context)
    assert (action.wanted["of"], action.wanted["repository"]) == ("pipeline 31 of merge request 3", "kernels")


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (gitlab_pipeline("b" * 40, source="push"), "is of no merge request"),
        (gitlab_pipeline("b" * 40, "success"), "does not begin with this event"),
        (gitlab_pipeline("b" * 40, source_project_id=2), "is from a fork"),
    ],
)
def test_a_pipeline_that_asks_for_no_check(server: str, context: Context, event: Any, reason: str) -> None:
    assert reason in gitlab(server, "Pipeline Hook", event).json()["detail"]
    assert actions(context) == []


@pytest.mark.usefixtures("token")
def test_a_payload_in_a_form_is_read_too(server: str, context: Context, shas: dict[str, str]) -> None:
    body = urlencode({"payload": json.dumps(github_push(shas["left"], shas["topic"]))}).encode()
    signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    about = {
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": "d-1",
        "X-Hub-Signature-256": signature,
        "Content-Type": "application/x-www-form-urlencoded",
    }
    assert requests.post(f"{server}/v1/hooks/github", data=body, headers=about, timeout=30).status_code == 202
    assert len(actions(context)) == 1


@pytest.mark.usefixtures("token")
def test_what_nobody_signed_is_refused(server: str, context: Context, shas: dict[str, str]) -> None:
    asked = github_push(shas["left"], shas["topic"])
    for signature in ("", "sha256=", "sha256=" + "0" * 64, "sha1=" + "0" * 40, "\xe9"):
        assert github(server, "push", asked, **{"X-Hub-Signature-256": signature}).status_code == 401
    for secret in ("", "a common secre", "a common secret2"):
        assert gitlab(server, "Push Hook", asked, secret=secret).status_code == 401
    assert actions(context) == []


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    ("event", "payload", "reason"),
    [
        ("ping", {"zen": "Keep it simple."}, "the event 'ping' asks for no check"),
        ("push", github_push("a" * 40, ZEROS), "the branch topic was deleted"),
        ("push", github_push(ZEROS, "a" * 40), "the branch topic is new, so there is nothing before it"),
        ("push", github_push("a" * 40, "b" * 40, "refs/tags/v1"), "refs/tags/v1 is not a branch"),
        ("pull_request", github_pull_request("a" * 40, "b" * 40, "labeled"), "neither a commit"),
        ("pull_request", github_pull_request("a" * 40, "b" * 40, "converted_to_draft"), "neither a commit"),
        ("pull_request", github_pull_request("a" * 40, "b" * 40, "enqueued"), "neither a commit"),
        (
            "pull_request",
            github_pull_request("a" * 40, "b" * 40, "edited", changes={"title": {"from": "Old"}}),
            "neither a commit nor another base came with it",
        ),
        ("merge_group", github_merge_group("a" * 40, "b" * 40, "destroyed"), "no check is asked for"),
        ("pull_request", github_pull_request("a" * 40, "b" * 40, head_repository=FORK), "is from a fork"),
        ("pull_request", github_pull_request("a" * 40, "b" * 40, head_repository=None), "is from a fork"),
    ],
)
def test_an_event_that_asks_for_no_check_is_answered_with_the_reason(
    server: str, context: Context, event: str, payload: Any, reason: str
) -> None:
    answer = github(server, event, payload)
    assert answer.status_code == 200
    assert reason in answer.json()["detail"]
    assert actions(context) == []


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"action": "close"}, "neither a commit nor another base came with it"),
        ({"action": "update"}, "neither a commit nor another base came with it"),
        ({"source_project_id": 2}, "is from a fork"),
    ],
)
def test_a_merge_request_that_asks_for_no_check(
    server: str, context: Context, attributes: dict[str, Any], reason: str
) -> None:
    answer = gitlab(server, "Merge Request Hook", gitlab_merge_request("b" * 40, **attributes))
    assert reason in answer.json()["detail"]
    assert actions(context) == []


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        {"ref": 1},
        github_push("--all", "b" * 40),
        github_push("a" * 40, "b" * 39 + "\n"),
        github_push("a" * 40, "b" * 40, "refs/heads/to\0pic"),
    ],
)
def test_a_body_that_is_none_is_refused_in_a_sentence(server: str, context: Context, payload: Any) -> None:
    answer = github(server, "push", payload)
    assert (answer.status_code, answer.json()["detail"]) == (422, "the body is not that of the event 'push' of github")
    assert github(server, "push", payload, delivery="").status_code == 422
    assert actions(context) == []


def test_without_the_token_webhook_a_forge_may_do_nothing(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    asked = github_push(shas["left"], shas["topic"])
    refused = github(server, "push", asked)
    assert refused.status_code == 403
    assert "tilewatch token add webhook --may check" in refused.json()["detail"]
    with serve(settings) as without_secret:
        assert github(without_secret, "push", asked).status_code == 403
    with session(context.database_url) as opened:
        tokens.add(opened, name="webhook", rights=["check"], gpu_s=0, who="ada")
    assert github(server, "push", asked).status_code == 202
    assert carry_out(settings, context) == []
    (action,) = actions(context)
    assert action.state == "refused"
    assert "try again later" in str(action.outcome)


@pytest.mark.usefixtures("token")
def test_a_check_waits_for_its_commit_and_holds_up_no_other(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    github(server, "push", github_push(shas["left"], "b" * 40), delivery="d-1")
    github(server, "push", github_push(shas["left"], shas["topic"]), delivery="d-2")
    assert [check.head_sha for check in carry_out(settings, context)] == [shas["topic"]]
    assert [action.state for action in actions(context)] == ["asked", "done"]
    with session(context.database_url) as opened:
        opened.execute(update(Action).values(asked_at=Action.asked_at - submit_requests.FETCHED_WITHIN))
    carry_out(settings, context)
    waited, _ = actions(context)
    assert waited.state == "refused"
    assert "has no commit" in str(waited.outcome)


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("address", ["https://github.example/own/kernels", "ssh://git@GITHUB.example/own/kernels.git"])
def test_the_repository_is_the_one_with_the_address_of_the_forge(
    settings: Settings, context: Context, shas: dict[str, str], address: str
) -> None:
    both = settings.model_validate({**settings.model_dump(), "webhook_secret": SECRET})
    with session(context.database_url) as opened:
        repositories.add(opened, "another", "https://github.example/own/another.git", "main")
        repositories.add(opened, "ours", address, "main")
    with serve(both) as server:
        assert github(server, "push", github_push(shas["left"], shas["topic"])).status_code == 202
    (action,) = actions(context)
    assert action.wanted["repository"] == "ours"
