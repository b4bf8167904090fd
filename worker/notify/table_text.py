"""Writes the title, text and file of a pull request for a tuned table. It only computes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import expm1
from typing import Any

from tilewatch.configs import config_text, describe_certificate
from tilewatch.text import (
    COMMENT_CHARACTERS,
    change_text,
    count_text,
    fit_lines,
    one_line,
    plain,
    plain_code,
    short_sha,
    without_mentions,
)
from tilewatch.worker.notify.wording import evidence_link
from tilewatch.worker.transfer.stale_tables import ShippedEntry, ShippedTables, Sweeps, TableState
from tilewatch.worker.transfer.tuned_tables import make_row

INDENTS = (1, 2, 4, None)
"""The indents that a repository may use in its table file. The first is that of `tilewatch tuned export`."""

MEASURED = """### How it was measured

Tilewatch timed the shipped config and the new config of each problem side by side. Each launch is a fresh process \
that times both configs within the same minutes on one GPU. A negative change is faster."""

SEARCHED = """### How much was searched

The search space of a problem holds each config that can work on the hardware."""

NEXT = """### What happens next

Tilewatch keeps this pull request up to date. It closes the pull request when none of the shipped configs above \
is slower any more. If you do not want this change, close the pull request. Tilewatch then leaves these entries \
alone."""

WITHDRAWAL = """Tilewatch closes this pull request. None of the shipped configs that it replaces is slower than the \
best config any more."""


@dataclass(frozen=True)
class PullRequestText:
    title: str
    body: str
    content: str

    @property
    def message(self) -> str:
        """Returns the message of the pull request's commit."""
        return f"{self.title}\n\nTilewatch timed old and new configs side by side. The pull request has the evidence.\n"


def write(tables: ShippedTables, state: TableState, sweeps: Sweeps, dashboard_url: str) -> PullRequestText:
    gpu_name, kernel = state.stale[0].winner.gpu_name, state.key[0]
    what = count_text(len(state.stale), "slow config")
    title = without_mentions(f"Replace {what} of {one_line(kernel)} on {one_line(gpu_name)}")
    about = (
        f"[Tilewatch]({dashboard_url}) measures the kernels of this repository every night. The file "
        f"{plain_code(tables.path)} has a tuned config for {count_text(state.rows, 'problem')} of the kernel "
        f"{plain_code(kernel)} on {plain(gpu_name)}. For {count_text(len(state.stale), 'problem')} this config is "
        "slower than the best one that was found. This pull request replaces it."
    )
    evidence = [
        f"- {plain_code(each.problem)}: the code of commit {plain_code(short_sha(each.replay.sha))}, compiled by "
        f"{plain_code(each.replay.compiler)}. [The newest sweep]({evidence_link(dashboard_url, each.winner.run_id)}) "
        "shows the times of the other configs."
        for each in state.stale
        if each.replay is not None
    ]
    searched = [f"- {plain_code(each.problem)}: {_certify(each.winner.certificate)}" for each in state.stale]
    sections = [[about], _list_changes(state.stale), [MEASURED, "", *evidence], [SEARCHED, "", *searched]]
    body = "\n\n".join("\n".join(each) for each in [*sections, *_list_uncovered(state.uncovered), [NEXT]])
    content = _replace_rows(tables, state, sweeps, dashboard_url)
    return PullRequestText(title, "\n".join(fit_lines(body.split("\n"), COMMENT_CHARACTERS)), content)


def _list_changes(stale: Sequence[ShippedEntry]) -> list[str]:
    head = ("problem", "shipped config", "new config", "change of the time", "95 % interval", "launches")
    rows = [head, ["---"] * len(head)]
    for each in stale:
        assert each.size is not None, "a replay confirmed it"
        size, low, high = (change_text(expm1(bound)) for bound in (each.size.size, *each.size.interval))
        # Even code may not contain a bare line in a cell of a table.
        names = (each.problem, config_text(each.base), config_text(each.head))
        cells = [plain_code(name).replace("|", "\\|") for name in names]
        rows.append([*cells, size, f"{low} to {high}", str(each.size.launches)])
    return [f"| {' | '.join(cells)} |" for cells in rows]


def _certify(certificate: Mapping[str, Any] | None) -> str:
    if certificate is None:
        return "The kernel has no short list, so a sweep tries all of its configs."
    return describe_certificate(certificate)


def _list_uncovered(problems: Sequence[str]) -> list[list[str]]:
    if not problems:
        return []
    what = count_text(len(problems), "problem")
    sentence = (
        f"Tilewatch also measures {what} of this kernel on this GPU for which the table has no config. "
        "There, host code launches the config of a near problem, or its own fallback."
    )
    listed = (f"- {plain_code(problem)}" for problem in problems)
    return [["### What the table does not cover", "", sentence, "", *listed]]


def _replace_rows(tables: ShippedTables, state: TableState, sweeps: Sweeps, dashboard_url: str) -> str:
    """Returns the text of a tuned table in which the new winners replace slow configs."""
    stale = {each.problem: each for each in state.stale}
    near = [each for each in sweeps.winners if (each.kernel, each.gpu_model) == state.key]
    copied = ShippedTables(tables.path, tables.text, json.loads(tables.text))
    for table, key, row in copied.list_rows():
        if key == state.key and row.get("problem") in stale:
            entry = stale[row["problem"]]
            won, link = entry.winner, partial(evidence_link, dashboard_url)
            row.clear()
            row.update(make_row(won, near, sweeps.times, sweeps.configs, link, table.get("toolchain")))
            others = [each for each in (won.config, *row["ties"]) if each != entry.head]
            row.update(
                config=entry.head, ties=others, **({} if table.get("commit") == won.sha else {"commit": won.sha})
            )
    indent = next((each for each in INDENTS if _dump(tables.content, each) == tables.text), INDENTS[0])
    return _dump(copied.content, indent)


def _dump(content: Mapping[str, Any], indent: int | None) -> str:
    return json.dumps(content, indent=indent) + "\n"
