"""Shows a card with the next action for each item that needs a person."""

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st
from sqlalchemy.orm import Session

from tilewatch.dashboard.frames import inbox, reads
from tilewatch.dashboard.frames.inbox import Item
from tilewatch.dashboard.panels import headline, judge_score, run_action
from tilewatch.dashboard.widgets import badges, page_head
from tilewatch.db.lifecycle import actions, regressions
from tilewatch.db.lifecycle.regressions import NotPossible
from tilewatch.text import count_text, plain

COLOURS = {
    inbox.REGRESSION: badges.BADLY,
    inbox.ALARM: badges.UNSURE,
    inbox.UNDECIDED: badges.UNSURE,
    inbox.IMPROVEMENT: badges.WELL,
}
MOST_CARDS = 50
"""The most cards that are shown. Each card has a dozen page elements, which make the page slow."""

ABOUT = (
    "Everything that needs a person, of all repositories: regressions that a replay confirmed, improvements to accept, "
    "alarms, and verdicts that no coming night decides."
)


def page(url: str) -> None:
    page_head.show("Inbox", ABOUT)
    run_action.show_outcome()
    found = reads.inbox(url)
    st.markdown(f"#### {headline.sentence(found, is_measured=not reads.series(url).empty)[1]}")
    if found.items:
        who = run_action.find_actor()
        for item in found.items[:MOST_CARDS]:
            _card(url, item, who)
        if len(found.items) > MOST_CARDS:
            st.caption(f"The first {MOST_CARDS} are shown; the others follow when these are done.")
    with st.container(horizontal=True):
        st.page_link("views/regressions.py", label="All confirmed changes, also those that ended")
    _apart("planted example", "Somebody planted these to show what a regression looks like.", found.examples)
    _apart("recorded change", "These came with recordings: people were notified where they ran.", found.recorded)
    judge_score.show(url)


def _card(url: str, item: Item, who: str | None) -> None:
    with st.container(border=True):
        st.markdown(f":{COLOURS[item.kind]}-badge[{item.kind}] **{plain(item.title)}**")
        st.text("\n".join(item.facts))
        if item.diff:
            st.code(item.diff, language="bash", wrap_lines=True)
        with st.container(horizontal=True, vertical_alignment="center"):
            _links(item)
            if who is not None:
                _buttons(url, item, who)


def _buttons(url: str, item: Item, who: str) -> None:
    key = f"{item.kind}-{item.regression_id or item.run_ids}"
    if item.can_acknowledge:
        _button(url, "Acknowledge", f"ack-{key}", partial(_triage, item, who, "acknowledge"))
    if item.kind == inbox.IMPROVEMENT:
        _button(url, "Accept", f"accept-{key}", partial(_triage, item, who, "expect"))
    if item.run_ids:
        _button(url, "Replay now", f"replay-{key}", partial(_replay, item, who))


def _button(url: str, label: str, key: str, act: Callable[[Session], object]) -> None:
    if st.button(label, key=key):
        run_action.run(url, act, f"{label}: done")


def _triage(item: Item, who: str, action: str, opened: Session) -> None:
    assert item.regression_id is not None
    regressions.triage(opened, item.regression_id, action, who)


def _replay(item: Item, who: str, opened: Session) -> str:
    """Requests replays of the item's runs, and returns a message. Raises NotPossible if every request is refused."""
    refusals = []
    for run_id in item.run_ids:
        try:
            actions.replay(opened, run_id, who)
        except NotPossible as refused:
            refusals.append(refused)
    if len(refusals) == len(item.run_ids):
        raise refusals[0]
    return f"asked for {count_text(len(item.run_ids) - len(refusals), 'replay')}; a worker queues them within a minute"


def _apart(noun: str, why: str, items: Sequence[Item]) -> None:
    if not items:
        return
    st.markdown(f"##### {count_text(len(items), noun)}, not counted")
    st.caption(why)
    for item in items:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f":{COLOURS[item.kind]}-badge[{item.kind}] {plain(item.title)}", width="content")
            _links(item)


def _links(item: Item) -> None:
    for label, parameters in item.links.items():
        st.page_link(item.page, label=plain(label), query_params=dict(parameters))


page(reads.database_url())
