"""Reads webhook deliveries. Pull requests from forks are not checked: a check would run a stranger's code."""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from tilewatch.errors import ExpectedError

SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
BRANCH = re.compile(r"[^\x00-\x20-][^\x00-\x20]{0,254}")
DRAFT_TITLE = re.compile(r"\s*(draft:|\(draft\)|\[draft\])", re.IGNORECASE)  # GitLab's
NO_COMMIT = "0"
"""The digit of an all-zero commit hash: `before` of a push that creates a branch, `after` of one that deletes it."""

OPENED = ("opened", "reopened", "synchronize", "ready_for_review", "open", "reopen")
"""The actions on a pull request (GitHub) or merge request (GitLab) that ask for a check. Drafts are checked too. A
draft that becomes ready asks for the same check again, which is not repeated."""

STARTED = ("pending", "running")
"""The states of a GitLab pipeline that begins. A pipeline may skip the first of them."""


class BadDelivery(ExpectedError):
    """Raised for a delivery whose content cannot be read. The message is a sentence."""


class Unsigned(ExpectedError):
    """Raised for a delivery whose sender does not have the shared secret."""


@dataclass(frozen=True)
class WantedCheck:
    """A request to compare `head` with the merge base of `base` and `head`. Requests with equal keys share a check."""

    base: str
    head: str
    of: str
    addresses: tuple[str, ...]
    key: str | None = None


@dataclass(frozen=True)
class Nothing:
    """The reason why an event asks for no check."""

    reason: str


@dataclass(frozen=True)
class Delivery:
    """A delivery and the check that it asks for. A repeated delivery has the same `key`."""

    key: str
    asks: WantedCheck | Nothing


def read_github(secret: str, headers: Mapping[str, str], body: bytes) -> Delivery:
    """Reads a delivery of GitHub. Raises Unsigned for a wrong signature, and BadDelivery for an unreadable delivery."""
    # https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
    signed = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signed.encode(), headers.get("x-hub-signature-256", "").encode()):
        raise Unsigned("this delivery is not signed with the secret of this Tilewatch")
    if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        body = parse_qs(body.decode(errors="replace")).get("payload", [""])[0].encode()
    event = headers.get("x-github-event", "")
    return _delivery("github", headers.get("x-github-delivery", ""), event, body, GITHUB.get(event))


def read_gitlab(secret: str, headers: Mapping[str, str], body: bytes) -> Delivery:
    """Reads a delivery of GitLab. Raises Unsigned for a wrong secret, and BadDelivery for an unreadable delivery."""
    if not hmac.compare_digest(secret.encode(), headers.get("x-gitlab-token", "").encode()):
        raise Unsigned("this delivery does not have the secret of this Tilewatch")
    event = headers.get("x-gitlab-event", "")
    delivery = headers.get("idempotency-key", "") or headers.get("x-gitlab-event-uuid", "")
    return _delivery("gitlab", delivery, event, body, GITLAB.get(event))


def _delivery(forge: str, delivery: str, event: str, body: bytes, read: Any) -> Delivery:
    if not re.fullmatch(r"[\x21-\x7e]{1,200}", delivery):
        raise BadDelivery(f"the delivery of {forge} has no number by which a second one would be known")
    key = f"{forge}:{delivery}"
    if read is None:
        return Delivery(key, Nothing(f"the event '{event[:50]}' asks for no check"))
    try:
        asks = read(json.loads(body))
        return Delivery(f"{forge}:{asks.key}" if isinstance(asks, WantedCheck) and asks.key else key, asks)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadDelivery(f"the body is not that of the event '{event}' of {forge}") from None


def _push(event: Any) -> WantedCheck | Nothing:
    before, after, ref = event["before"], event["after"], event["ref"]
    branch = ref.removeprefix("refs/heads/")
    if branch == ref:
        return Nothing(f"{ref} is not a branch")
    if not BRANCH.fullmatch(branch):
        raise ValueError(branch)
    if not after.strip(NO_COMMIT):
        return Nothing(f"the branch {branch} was deleted")
    if not before.strip(NO_COMMIT):
        return Nothing(f"the branch {branch} is new, so there is nothing before it")
    return WantedCheck(_sha(before), _sha(after), f"push to {branch}", _addresses(event))


def _pull_request(event: Any) -> WantedCheck | Nothing:
    request = event["pull_request"]
    of = f"pull request {int(event['number'])}"
    has_new_base = event["action"] == "edited" and "base" in (event.get("changes") or {})
    if event["action"] not in OPENED and not has_new_base:
        return Nothing(f"{of}: neither a commit nor another base came with it")
    if not request["head"]["repo"] or request["head"]["repo"]["id"] != request["base"]["repo"]["id"]:
        return Nothing(f"{of} is from a fork, whose code is not run here")
    return WantedCheck(_sha(request["base"]["sha"]), _sha(request["head"]["sha"]), of, _addresses(event))


def _merge_request(event: Any) -> WantedCheck | Nothing:
    request = event["object_attributes"]
    of = f"merge request {int(request['iid'])}"
    if request.get("action") not in OPENED and not _is_update_to_compare(event):
        return Nothing(f"{of}: neither a commit nor another base came with it")
    return _compare_with_target(event, request, _sha(request["last_commit"]["id"]), of)


def _compare_with_target(event: Any, request: Any, head: str, of: str, key: str | None = None) -> WantedCheck | Nothing:
    if request["source_project_id"] != request["target_project_id"]:
        return Nothing(f"{of} is from a fork, whose code is not run here")
    branch = request["target_branch"]
    if not BRANCH.fullmatch(branch):
        raise ValueError(branch)
    return WantedCheck(branch, head, of, _addresses(event), key)


def _is_update_to_compare(event: Any) -> bool:
    """Returns whether a merge request got new commits or another target branch, or is no longer a draft."""
    # GitLab does not name every change. A new target branch only showed as a merge status that became "unchecked" again
    # (2020-12-08), and a draft that became ready only showed as a new title (2023-07-02).
    request, changes = event["object_attributes"], event.get("changes") or {}
    draft, title, status = (changes.get(name) or {} for name in ("draft", "title", "merge_status"))
    has_new_base = "target_branch" in changes or status.get("current") == "unchecked"
    was_draft, is_draft = (DRAFT_TITLE.match(title.get(when) or "") for when in ("previous", "current"))
    is_ready = draft.get("current") is False or (was_draft and not is_draft)
    return request.get("action") == "update" and bool(request.get("oldrev") or has_new_base or is_ready)


def _pipeline(event: Any) -> WantedCheck | Nothing:
    """Returns the check to run when a merge request's pipeline starts, or Nothing with the reason for no check."""
    # For a merge train, GitLab sends the commits in this event only, and does not say that there is a merge train.
    pipeline, request = event["object_attributes"], event.get("merge_request")
    of = f"pipeline {int(pipeline['id'])}"
    if request is None:
        return Nothing(f"{of} is of no merge request")
    if pipeline["status"] not in STARTED:
        return Nothing(f"{of} does not begin with this event")
    key = f"{of} of project {int(event['project']['id'])}"
    of = f"{of} of merge request {int(request['iid'])}"
    return _compare_with_target(event, request, _sha(pipeline["sha"]), of, key)


def _merge_group(event: Any) -> WantedCheck | Nothing:
    """Returns the check for a merge queue, or Nothing. Forks are allowed, as only trusted people can queue them."""
    group = event["merge_group"]
    of = f"merge queue for {str(group['base_ref']).removeprefix('refs/heads/')}"
    if event["action"] != "checks_requested":
        return Nothing(f"{of}: no check is asked for")
    return WantedCheck(_sha(group["base_sha"]), _sha(group["head_sha"]), of, _addresses(event))


def _addresses(event: Any) -> tuple[str, ...]:
    of_github = [event.get("repository", {}).get(name) for name in ("clone_url", "ssh_url", "html_url")]
    of_gitlab = [event.get("project", {}).get(name) for name in ("git_http_url", "git_ssh_url", "web_url")]
    return tuple(str(address) for address in of_github + of_gitlab if address)


def _sha(text: str) -> str:
    if not SHA.fullmatch(text):
        raise ValueError(text)
    return text


GITHUB = {"push": _push, "pull_request": _pull_request, "merge_group": _merge_group}
GITLAB = {"Push Hook": _push, "Merge Request Hook": _merge_request, "Pipeline Hook": _pipeline}
