"""Shows one run beside the chart of its series: its verdict, its times and the likely causes."""

from collections.abc import Iterator
from functools import partial

import streamlit as st

from tilewatch.dashboard.frames import evidence, explanation, reads
from tilewatch.dashboard.frames.differences import write_plan
from tilewatch.dashboard.frames.reads import Evidence
from tilewatch.dashboard.frames.series_choice import COMMIT, RUN, SUBMISSION, find_key
from tilewatch.dashboard.panels import run_action
from tilewatch.dashboard.panels.series.code_diff import why_missing
from tilewatch.dashboard.text import (
    commit_address,
    commit_text,
    label_baseline,
    ratio_text,
    source_text,
    time_text,
    timer_text,
)
from tilewatch.dashboard.widgets import address, badges, tables
from tilewatch.db.lifecycle import actions
from tilewatch.db.page_reads.evidence import RunRow
from tilewatch.mechanisms.find import write_mechanisms
from tilewatch.text import change_text, count_text, plain, plain_code, short_sha


def show(url: str, found: Evidence) -> None:
    run, before = found.run, found.before
    of = f" of {run.repository}" if len(reads.repositories(url)) > 1 else ""
    st.markdown(f"##### {plain(f'{short_sha(run.sha)} {run.subject}')}")
    if run.verdict:
        reason = run.reason or ""
        plan = f"; {write_plan(reason, is_recorded=run.origin == 'recorded')}" if run.verdict == "undecided" else ""
        st.markdown(f":{badges.VERDICTS[run.verdict]}-badge[{run.verdict}] {plain(reason + plan)}")
    run_action.show_outcome()
    show_change(found)
    show_diff(run.repository, before.sha if before and len(found.commits) > 1 else None, run.sha)
    source = source_text(run.origin, run.machine, run.measured_at)
    st.caption(
        plain(
            f"Run {run.run_id}{of}, {commit_text('', run.author, run.committed_at).lstrip(', ')}; "
            f"{source} ({run.device_name}{timer_text(run.timer)}); {_name_before(found)}."
        )
    )
    _lead_on(url, found)


def show_change(found: Evidence) -> None:
    """Shows the times of a run and of the run before, and why they differ."""
    for sentence in list_causes(found):
        st.text(sentence)
    tables.show_few(_tabulate_times(found))
    st.caption("  \n".join(map(plain, list_circumstances(found))))


def show_diff(repository: str, base_sha: str | None, head_sha: str) -> None:
    """Shows a Git command for the diff from `base_sha` to `head_sha`, and a link to the commit `head_sha`."""
    head = short_sha(head_sha)
    show = f"git show {head}" if base_sha is None else f"git log --patch {short_sha(base_sha)}..{head}"
    st.markdown(plain_code(show))  # the script of st.code comes late, and moved what stands below (2026-11-28)
    if forge := commit_address(repository, head_sha):
        st.link_button("Open the commit at its forge", forge)


def show_repeat(found: Evidence) -> None:
    """Shows commands that repeat a run's sweep, and time its winner against the earlier run's winner."""
    st.subheader("Repeat it", anchor=False)
    st.caption(f"On a machine with this GPU model, {plain(found.run.gpu_name)}, in a clone of the repository:")
    st.code(evidence.repeat_commands(found), language="bash", wrap_lines=True)


def list_causes(found: Evidence) -> Iterator[str]:
    """Yields sentences on why the time changed, from replays and the machine code."""
    is_changed = found.run.verdict != "unchanged"
    if is_changed and (change := explanation.find_change(found)):
        yield f"Mechanism of the change: {write_mechanisms(change)}."
    if found.suspicion is not None:
        yield f"{found.suspicion.state}: {found.suspicion.reason}"
    yield from map(evidence.replay_sentence, found.replays)
    if found.diff_to_before is not None:
        yield found.diff_to_before.sentence or "Nothing differs in the winners' code."
    elif is_changed and found.winner is not None and found.winner_before is not None:
        yield f"Code of the winners: {why_missing(found.winner_before, found.winner, found.run.origin)}"


def _tabulate_times(found: Evidence) -> list[dict[str, str]]:
    rows = []
    for name, row, old in evidence.pair_times(found):
        cells = {"time": time_text(row.median_us)}
        if found.sampled_before:
            cells = {"before": time_text(old.median_us) if old else "", **cells}
            cells["change"] = change_text(row.median_us / old.median_us - 1) if old else ""
        if row.baseline is not None:
            cells[f"to {plain(label_baseline(row.baseline))}"] = "" if row.ratio is None else ratio_text(row.ratio)
        rows.append({"": plain(name), **cells})
    return rows


def list_circumstances(found: Evidence) -> Iterator[str]:
    """Yields sentences on other possible causes, such as the toolchain and the clocks."""
    if found.before is not None:
        changed = evidence.differences(found.before.toolchain, found.run.toolchain).to_dict("records")
        moved = [f"{row['']} {row['before']} → {row['this run']}" for row in changed]
        yield f"Toolchain: {', '.join(moved)}." if moved else "The toolchain is the same as before."
    yield evidence.describe_clocks(found.run.telemetry)
    counted = explanation.tabulate_counters(found)
    if "change" in counted:
        moved = [f"{row['counter']} {row['change']}" for row in counted.to_dict("records") if row["change"] != "+0.0 %"]
        yield f"Counters that moved: {', '.join(moved)}." if moved else "No counter moved."


def _name_before(found: Evidence) -> str:
    if found.before is None:
        return "the first of its series"
    before = found.before
    elsewhere = "" if before.machine == found.run.machine else f" on another machine, {before.machine}"
    commits = f", {count_text(len(found.commits), 'commit')} before" if len(found.commits) > 1 else ""
    return f"compared with {short_sha(before.sha)}{commits}{elsewhere}"


def _lead_on(url: str, found: Evidence) -> None:
    with st.container(horizontal=True):
        if found.before is not None:
            before = {RUN: str(found.before.run_id)}
            st.button(
                "The run before", on_click=address.pick, args=(before,), kwargs={"instead_of": (COMMIT, SUBMISSION)}
            )
        if actions.is_replay_offered(found.run):
            _offer_replay(url, found.run)
        levels = reads.levels(url, *find_key(found))
        for level in levels[levels["bad_position"] == found.run.position].to_dict("records") if len(levels) else ():
            number = str(level["regression_id"])
            label = f"{level['direction'].capitalize()} #{number}: triage, history"
            st.page_link("views/regressions.py", label=label, query_params={"regression": number})


def _offer_replay(url: str, run: RunRow) -> None:
    with st.popover("Replay now"):
        st.caption(f"Times this cubin beside that of the run before on any {plain(run.gpu_name)}, ahead of the sweeps.")
        who = run_action.find_actor()
        if st.button("Ask for a replay", disabled=who is None) and who:
            run_action.run(url, partial(actions.replay, run_id=run.run_id, who=who))
