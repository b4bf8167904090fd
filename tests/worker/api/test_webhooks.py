"""A forge's signed delivery becomes a check, once; one that nobody signed, or that asks for none, becomes nothing.

The bodies are recorded ones, of which each has a test here. That of a destroyed merge group is made from the recorded
one by another value of a field, as nobody published one.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from sqlalchemy import select, update

from tests.worker.fixtures import compiled_sweep, tiny_repository
from tests.worker.fixtures.api_server import serve
from tests.worker.fixtures.forge_events import AS_RECORDED, ForgeEvent, list_events, read_event
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


def deliver(
    server: str, event: ForgeEvent, delivery: str = "d-1", *, secret: str = SECRET, **headers: str
) -> requests.Response:
    body = json.dumps(event.body).encode()
    signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    about = {
        "github": {"X-GitHub-Event": event.kind, "X-GitHub-Delivery": delivery, "X-Hub-Signature-256": signature},
        "gitlab": {"X-Gitlab-Event": event.kind, "X-Gitlab-Event-UUID": delivery, "X-Gitlab-Token": secret},
    }[event.forge]
    return requests.post(f"{server}/v1/hooks/{event.forge}", data=body, headers={**about, **headers}, timeout=60)


def push(before: str, after: str, ref: str = "refs/heads/topic", forge: str = "github") -> ForgeEvent:
    return read_event(f"{forge}/push", {"before": before, "after": after, "ref": ref})


def pull_request(action: str, base: str, head: str, values: Mapping[str, Any] = AS_RECORDED) -> ForgeEvent:
    commits = {"pull_request.base.sha": base, "pull_request.head.sha": head}
    return read_event(f"github/pull_request_{action}", {**commits, **values})


def merge_group(base: str, head: str) -> ForgeEvent:
    commits = {"merge_group.base_sha": base, "merge_group.head_sha": head}
    return read_event("github/merge_group_checks_requested", commits)


def merge_request(change: str, head: str, values: Mapping[str, Any] = AS_RECORDED) -> ForgeEvent:
    about = {"object_attributes.last_commit.id": head, "object_attributes.target_branch": "trunk"}
    return read_event(f"gitlab/merge_request_{change}", {**about, **values})


def pipeline(sha: str, status: str = "pending", values: Mapping[str, Any] = AS_RECORDED) -> ForgeEvent:
    about = {"object_attributes.sha": sha, "object_attributes.status": status, "merge_request.target_branch": "trunk"}
    return read_event("gitlab/pipeline_of_merge_request", {**about, **values})


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
    opened = pull_request("opened", shas["trunk"], shas["topic"])
    taken = deliver(server, opened)
    assert (taken.status_code, taken.json()["detail"]) == (202, "a check is submitted within a minute: pull request 2")
    again = deliver(server, opened)
    assert (again.status_code, again.json()["detail"]) == (200, "this delivery was taken before")
    (check,) = carry_out(settings, context)
    assert (check.base_sha, check.head_sha, check.who) == (shas["left"], shas["topic"], "token webhook")
    (action,) = actions(context)
    assert (action.who, action.state, action.wanted["of"]) == ("token webhook", "done", "pull request 2")
    assert action.wanted["checks"] == [check.id]
    deliver(server, opened)
    assert len(carry_out(settings, context)) == len(actions(context)) == 1


@pytest.mark.usefixtures("token")
def test_a_push_is_compared_with_what_was_there_before(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    assert deliver(server, push(shas["left"], shas["topic"])).status_code == 202
    assert deliver(server, push(shas["left"], shas["trunk"], "refs/heads/trunk", "gitlab")).status_code == 202
    compared = {(check.base_sha, check.head_sha) for check in carry_out(settings, context)}
    assert compared == {(shas["left"], shas["topic"]), (shas["left"], shas["trunk"])}


@pytest.mark.usefixtures("token")
def test_a_pull_request_with_another_base_is_compared_with_it(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    deliver(server, pull_request("synchronize", shas["trunk"], shas["topic"]), "d-1")
    assert deliver(server, pull_request("edited_base", shas["topic"], shas["trunk"]), "d-2").status_code == 202
    assert {(check.base_sha, check.head_sha) for check in carry_out(settings, context)} == {
        (shas["left"], shas["topic"]),
        (shas["left"], shas["trunk"]),
    }


@pytest.mark.usefixtures("token")
def test_a_merge_queue_gets_the_check_that_it_waits_for(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    answer = deliver(server, merge_group(shas["left"], shas["topic"]))
    assert answer.json()["detail"] == "a check is submitted within a minute: merge queue for main"
    (check,) = carry_out(settings, context)
    assert (check.base_sha, check.head_sha) == (shas["left"], shas["topic"])


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("is_draft", [True, False])
def test_a_draft_is_compared_like_any_other_and_once(
    server: str, settings: Settings, context: Context, shas: dict[str, str], *, is_draft: bool
) -> None:
    for number, action in enumerate(("opened", "ready_for_review")):
        asked = pull_request(action, shas["trunk"], shas["topic"], {"pull_request.draft": is_draft})
        assert deliver(server, asked, f"d-{number}").status_code == 202
    assert len(carry_out(settings, context)) == 1


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    ("change", "values"),
    [
        ("new_commit", {}),
        ("edited_target", {}),
        ("edited_title", {"changes": {"target_branch": {"previous": "release", "current": "trunk"}}}),
        ("ready", {"object_attributes.action": "update"}),
        ("ready_by_title", {}),
    ],
)
def test_an_update_of_a_merge_request_is_compared_where_something_else_is_to_be_merged(
    server: str, settings: Settings, context: Context, shas: dict[str, str], change: str, values: dict[str, Any]
) -> None:
    assert deliver(server, merge_request(change, shas["topic"], values)).status_code == 202
    (check,) = carry_out(settings, context)
    assert (check.base_sha, check.head_sha) == (shas["left"], shas["topic"])


@pytest.mark.usefixtures("token")
def test_a_merge_request_is_compared_with_its_target_once(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    for _ in range(2):
        deliver(server, merge_request("opened", shas["topic"]))
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
    address = pipeline(last).body["project"]["git_http_url"]
    for name, value in {"COUNT": "1", "KEY_0": f"url.{folder}.insteadOf", "VALUE_0": address}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    with session(context.database_url) as opened:
        watched.add(opened, settings, address, name="kernels", branch="trunk")
    return {**shas, **made}


@pytest.mark.usefixtures("token")
def test_a_merge_train_is_compared_with_its_target_before_it_merges(
    server: str, settings: Settings, context: Context, train: dict[str, str]
) -> None:
    answers = [
        deliver(server, pipeline(train["4"], status), status).status_code
        for status in ("created", "pending", "running", "success")
    ]
    assert answers == [200, 202, 200, 200], "the pipeline asks once"
    (check,) = carry_out(settings, context)
    assert (check.base_sha, check.head_sha) == (train["trunk"], train["4"])
    (action,) = actions(context)
    assert (action.wanted["of"], action.wanted["repository"]) == ("pipeline 31 of merge request 1", "kernels")


@pytest.mark.usefixtures("token")
def test_a_payload_in_a_form_is_read_too(server: str, context: Context, shas: dict[str, str]) -> None:
    event = push(shas["left"], shas["topic"])
    body = urlencode({"payload": json.dumps(event.body)}).encode()
    signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    about = {
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": "d-1",
        "X-Hub-Signature-256": signature,
        "Content-Type": "application/x-www-form-urlencoded",
    }
    assert requests.post(f"{server}/v1/hooks/github", data=body, headers=about, timeout=60).status_code == 202
    assert len(actions(context)) == 1


@pytest.mark.usefixtures("token")
def test_what_nobody_signed_is_refused(server: str, context: Context, shas: dict[str, str]) -> None:
    asked = push(shas["left"], shas["topic"])
    for signature in ("", "sha256=", "sha256=" + "0" * 64, "sha1=" + "0" * 40, "\xe9"):
        assert deliver(server, asked, **{"X-Hub-Signature-256": signature}).status_code == 401
    asked = push(shas["left"], shas["topic"], forge="gitlab")
    for secret in ("", "a common secre", "a common secret2"):
        assert deliver(server, asked, secret=secret).status_code == 401
    assert actions(context) == []


NO_COMMIT_OR_BASE = "neither a commit nor another base came with it"
OF_DRAFT = {"title": {"previous": "Draft: wider", "current": "draft: wider tiles"}}


ASKS_FOR_NO_CHECK = [
    (read_event("github/ping"), "the event 'ping' asks for no check"),
    (push("a" * 40, ZEROS), "the branch topic was deleted"),
    (read_event("github/push_new_branch"), "the branch master is new, so there is nothing before it"),
    (read_event("github/push_deleted_tag"), "refs/tags/simple-tag is not a branch"),
    *(
        (read_event(f"github/pull_request_{action}"), f"pull request {number}: {NO_COMMIT_OR_BASE}")
        for action, number in (("labeled", 2), ("converted_to_draft", 2), ("closed", 2), ("edited_title", 88))
    ),
    (read_event("github/pull_request_opened_from_fork"), "pull request 1624 is from a fork"),
    (read_event("github/pull_request_opened", {"pull_request.head.repo": None}), "pull request 2 is from a fork"),
    (read_event("github/merge_group_checks_requested", {"action": "destroyed"}), "no check is asked for"),
    (read_event("gitlab/merge_request_closed"), f"merge request 4: {NO_COMMIT_OR_BASE}"),
    (read_event("gitlab/merge_request_edited_title"), f"merge request 3: {NO_COMMIT_OR_BASE}"),
    (read_event("gitlab/merge_request_edited_title", {"changes": OF_DRAFT}), NO_COMMIT_OR_BASE),
    (read_event("gitlab/merge_request_opened_from_fork"), "merge request 4 is from a fork"),
    (read_event("gitlab/pipeline_of_branch"), "pipeline 58 is of no merge request"),
    (read_event("gitlab/pipeline_of_merge_request", {"merge_request": None}), "is of no merge request"),
    (read_event("gitlab/pipeline_of_merge_request"), "does not begin with this event"),
    (pipeline("b" * 40, "pending", {"merge_request.source_project_id": 2}), "is from a fork"),
]


@pytest.mark.usefixtures("token")
def test_an_event_that_asks_for_no_check_is_answered_with_the_reason(server: str, context: Context) -> None:
    for event, reason in ASKS_FOR_NO_CHECK:
        answer = deliver(server, event)
        assert (answer.status_code, reason in answer.json()["detail"]) == (200, True), (reason, answer.text)
    assert actions(context) == []


@pytest.mark.usefixtures("token")
def test_each_recorded_event_is_read_and_its_kind_without_a_body_is_not(server: str) -> None:
    for name in list_events():
        event = read_event(name)
        assert deliver(server, event, name).status_code in (200, 202), name
        empty = ForgeEvent(event.forge, event.kind, {})
        assert (deliver(server, empty).status_code == 422) is (event.kind != "ping"), name


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"ref": 1},
        push("--all", "b" * 40).body,
        push("a" * 40, "b" * 39 + "\n").body,
        push("a" * 40, "b" * 40, "refs/heads/to\0pic").body,
    ],
)
def test_a_body_that_is_none_is_refused_in_a_sentence(server: str, context: Context, body: Any) -> None:
    event = ForgeEvent("github", "push", body)
    answer = deliver(server, event)
    assert (answer.status_code, answer.json()["detail"]) == (422, "the body is not that of the event 'push' of github")
    assert deliver(server, event, "").status_code == 422
    assert actions(context) == []


def test_without_the_token_webhook_a_forge_may_do_nothing(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    asked = push(shas["left"], shas["topic"])
    refused = deliver(server, asked)
    assert refused.status_code == 403
    assert "tilewatch token add webhook --may check" in refused.json()["detail"]
    with serve(settings) as without_secret:
        assert deliver(without_secret, asked).status_code == 403
    with session(context.database_url) as opened:
        tokens.add(opened, name="webhook", rights=["check"], gpu_s=0, who="ada")
    assert deliver(server, asked).status_code == 202
    assert carry_out(settings, context) == []
    (action,) = actions(context)
    assert action.state == "refused"
    assert "try again later" in str(action.outcome)


@pytest.mark.usefixtures("token")
def test_a_check_waits_for_its_commit_and_holds_up_no_other(
    server: str, settings: Settings, context: Context, shas: dict[str, str]
) -> None:
    deliver(server, push(shas["left"], "b" * 40), "d-1")
    deliver(server, push(shas["left"], shas["topic"]), "d-2")
    assert [check.head_sha for check in carry_out(settings, context)] == [shas["topic"]]
    assert [action.state for action in actions(context)] == ["asked", "done"]
    with session(context.database_url) as opened:
        opened.execute(update(Action).values(asked_at=Action.asked_at - submit_requests.FETCHED_WITHIN))
    carry_out(settings, context)
    waited, _ = actions(context)
    assert waited.state == "refused"
    assert "has no commit" in str(waited.outcome)


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    "address",
    ["https://github.com/baxterthehacker/public-repo", "ssh://git@GITHUB.com/baxterthehacker/public-repo.git"],
)
def test_the_repository_is_the_one_with_the_address_of_the_forge(
    settings: Settings, context: Context, shas: dict[str, str], address: str
) -> None:
    both = settings.model_validate({**settings.model_dump(), "webhook_secret": SECRET})
    with session(context.database_url) as opened:
        repositories.add(opened, "another", "https://github.com/baxterthehacker/another.git", "main")
        repositories.add(opened, "ours", address, "main")
    with serve(both) as server:
        assert deliver(server, push(shas["left"], shas["topic"])).status_code == 202
    (action,) = actions(context)
    assert action.wanted["repository"] == "ours"
