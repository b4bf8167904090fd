"""Opens, changes and withdraws pull requests that replace slow entries of tuned tables."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from tilewatch.configs import config_key
from tilewatch.db.lifecycle import pull_requests
from tilewatch.db.lifecycle.pull_requests import GOING_ON
from tilewatch.db.models import PullRequest
from tilewatch.db.session import session
from tilewatch.errors import ExpectedError
from tilewatch.worker.detection import policy as policies
from tilewatch.worker.git import clones, commits, push, watched
from tilewatch.worker.git.clones import Clone, FetchFailed
from tilewatch.worker.git.watched import WatchedRepository
from tilewatch.worker.isolation import isolate
from tilewatch.worker.notify import routing, table_text
from tilewatch.worker.notify.pull_requests import ForgeAway, PullRequestForge
from tilewatch.worker.notify.table_text import PullRequestText
from tilewatch.worker.settings import Settings
from tilewatch.worker.transfer import stale_tables
from tilewatch.worker.transfer.stale_tables import ShippedEntry, ShippedTables, TableState

log = structlog.get_logger()


@dataclass(frozen=True)
class Action:
    """A pull request to open if `stored` is None, to close if `state` is None, else to update."""

    stored: PullRequest | None
    state: TableState | None
    text: PullRequestText | None = None


@dataclass(frozen=True)
class MendingPlan:
    """The changes to a repository's pull requests. `tables` is None if the commit `tip` has no tuned table."""

    tip: str
    tables: ShippedTables | None
    actions: Sequence[Action]


def decide(states: Iterable[TableState], stored: Sequence[PullRequest], table_sha256: str) -> list[Action]:
    """Returns the changes to pull requests, at most one per table. It only computes."""
    declined = {
        (each.kernel, each.gpu_model, problem, config_key(base))
        for each in stored
        if each.state == "declined"
        for problem, base, _ in each.entries
    }
    by_key = {
        state.key: replace(
            state,
            stale=tuple(
                each for each in state.stale if (*state.key, each.problem, config_key(each.base)) not in declined
            ),
        )
        for state in states
    }
    open_ones = {(each.kernel, each.gpu_model): each for each in stored if each.state in GOING_ON}
    actions = []
    for key in sorted({*by_key, *open_ones}):
        state, row = by_key.get(key), open_ones.get(key)
        if row is None:
            actions += [Action(None, state)] if state is not None and state.stale else []
        elif row.state == "closing" or state is None:
            actions.append(Action(row, None))
        elif not {each.problem for each in state.unknown} & {problem for problem, _, _ in row.entries}:
            is_same = (row.entries, row.table_sha256) == (_list_entries(state.stale), table_sha256)
            if not state.stale or row.number is None or not is_same:
                actions.append(Action(row, state if state.stale else None))
    return actions


@dataclass(frozen=True)
class Mender:
    """Manages a repository's pull requests. `forge` is None if they are disabled. Methods raise ExpectedError."""

    settings: Settings
    repository: WatchedRepository
    forge: PullRequestForge | None

    @property
    def url(self) -> str:
        return self.settings.connection().database_url

    def plan(self) -> MendingPlan:
        """Returns the changes to make for the newest fetched commit."""
        tip = commits.find_tips(self.repository.folder, self.repository.branch)[-1]
        tables = stale_tables.read_tables(self.repository.folder, tip)
        with session(self.url) as opened:
            stored = pull_requests.list_pull_requests(opened, self.repository.name)
            if tables is None:
                return MendingPlan(tip, None, decide((), stored, ""))
            policy = policies.load(self.settings.policy)
            sweeps, states = stale_tables.compare(opened, self.repository.name, tables, policy)
        address, actions = self.settings.dashboard_url.rstrip("/"), []
        for each in decide(states, stored, _hash(tables)):
            text = None if each.state is None else table_text.write(tables, each.state, sweeps, address)
            actions.append(replace(each, text=text))
        return MendingPlan(tip, tables, actions)

    def mend(self) -> None:
        """Fetches the repository and updates its pull requests."""
        forge, clone = self.forge, self.repository.clone
        assert forge is not None
        assert clone is not None
        clone = push.with_token(clone, forge.token)
        with session(self.url) as opened:
            stored = pull_requests.list_pull_requests(opened, clone.name)
        # Before the fetch, so that the fetch contains every merge that is read here.
        for each in stored:
            if each.state in GOING_ON and each.number is not None:
                state = forge.read(each.number).state
                if state != "open":
                    closed = "withdrawn" if each.state == "closing" else "declined"
                    self._store(each, state="merged" if state == "merged" else closed)
        clones.fetch(clone)
        plan, failed = self.plan(), []
        for action in plan.actions:
            try:
                if action.state is not None:
                    self._propose(forge, clone, plan, action)
                elif action.stored is not None:
                    self._withdraw(forge, action.stored)
            except ForgeAway:
                raise
            except ExpectedError as error:  # the other tables do not wait for this one
                failed.append(error)
        if failed:
            raise failed[0]

    def _propose(self, forge: PullRequestForge, clone: Clone, plan: MendingPlan, action: Action) -> None:
        stored, state, text, tables = action.stored, action.state, action.text, plan.tables
        assert state is not None
        assert text is not None, "`plan` wrote it"
        assert tables is not None, "there is no state without tables"
        content = {"entries": _list_entries(state.stale), "table_sha256": _hash(tables)}
        if stored is None:
            of_table = {"repository": clone.name, "kernel": state.key[0], "gpu_model": state.key[1]}
            with session(self.url) as opened:
                stored = pull_requests.add(opened, **of_table, **content)
        branch = _name_branch(stored)
        sha = push.commit_file(clone.folder, plan.tip, tables.path, text.content, text.message)
        push.push_branch(clone, branch, sha)
        found = forge.find(branch) if stored.number is None else forge.change(stored.number, text.title, text.body)
        if found is None or (stored.number is None and found.state != "open"):
            found = forge.create(branch, self.repository.branch, text.title, text.body)
        self._store(stored, number=found.number, url=found.url, **content)

    def _withdraw(self, forge: PullRequestForge, stored: PullRequest) -> None:
        self._store(stored, state="closing")
        found = forge.find(_name_branch(stored)) if stored.number is None else forge.read(stored.number)
        if found is not None and found.state == "open":
            forge.close(found.number, table_text.WITHDRAWAL)
        self._store(stored, state="withdrawn")

    def _store(self, stored: PullRequest, **columns: object) -> None:
        with session(self.url) as opened:
            pull_requests.change(opened, stored.id, **columns)
        shown = {name: columns[name] for name in ("state", "url") if name in columns}
        log.info("pull request", repository=stored.repository, kernel=stored.kernel, gpu=stored.gpu_model, **shown)


def make_menders(settings: Settings, *, switched_on: bool = True) -> list[Mender]:
    """Returns a Mender for each watched repository. Raises BadNotifySettings or ExpectedError for wrong settings."""
    places, token = routing.load(settings.notify_file if switched_on else None).pull_requests, settings.forge_token
    if places and token is None:
        raise ExpectedError("notify.toml switches on pull requests and TILEWATCH_FORGE_TOKEN is not set")
    forges = {name: PullRequestForge(place, token.get_secret_value()) for name, place in places.items() if token}
    with session(settings.connection().database_url) as opened:
        found = watched.list_watched(opened, settings)
    return [Mender(settings, each, forges.get(each.name) if each.clone else None) for each in found]


def mend_all(settings: Settings) -> None:
    """Updates the pull requests of all repositories that enable them. A failure does not stop the others."""
    for each in make_menders(settings):
        if each.forge is None:
            continue
        name = each.repository.name
        with session(each.url) as turn:
            if pull_requests.take_turn(turn):
                with isolate(turn, name, "its tuned tables cannot be mended"):
                    try:
                        each.mend()
                    except (ForgeAway, FetchFailed) as trouble:
                        log.warning("no pull requests for now", repository=name, reason=str(trouble))


def _list_entries(stale: Iterable[ShippedEntry]) -> list[list[object]]:
    """Returns entries of a tuned table as the database table `pull_requests` stores them."""
    return [[each.problem, dict(each.base), dict(each.head)] for each in stale]


def _hash(tables: ShippedTables) -> str:
    return hashlib.sha256(tables.text.encode()).hexdigest()


def _name_branch(stored: PullRequest) -> str:
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{stored.kernel}-{stored.gpu_model}")
    return f"tilewatch/tuned-{readable}-{stored.id}"
