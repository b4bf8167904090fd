"""Draws choices that are kept in the URL: each widget's key is its query parameter."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import pandas as pd
import streamlit as st

from tilewatch.dashboard.frames.metrics import METRICS, Metric
from tilewatch.dashboard.text import label_commit
from tilewatch.dashboard.widgets import address
from tilewatch.text import plain, short_sha

SHA_8 = re.compile("[0-9a-f]{8}")
MAIN = ("gemm_fp8_scaled", "gemm_fp8", "320x32576x7168", "b200", "h200")
"""The kernels, problem and GPU models that pages show first, if they exist: the FP8 GEMM that is compared with
DeepGEMM, on Blackwell or else on the H200, for which the recorded nights have complete sweeps."""
OLDEST, NEWEST, PREVIOUS = "oldest", "newest", "previous"
Picked = TypeVar("Picked")


class UnknownChoice(Exception):
    """Raised if the address names something unknown. The page shows only the message."""


def pick(
    label: str,
    options: Sequence[str],
    key: str,
    default: str | None = None,
    *,
    instead_of: Sequence[str] = (),
    width: int | Literal["stretch"] = "stretch",
    help: str | None = None,
    names: Mapping[str, str] | None = None,
) -> str:
    """Shows a select box and returns the choice. Raises UnknownChoice if the address has an unknown value."""
    given = _lengthen(st.query_params.get_all(key), options)
    unknown = _find_unknown(key, given, options)
    with st.container(key=f"choice-{key}", width=width):  # of the height that the choice will have
        if unknown is not None:
            on_change = address.restore(key, lambda _: None, instead_of=instead_of)
            st.selectbox(label, options, index=None, placeholder="Pick one", key=key, on_change=on_change, help=help)
            raise name_unknown(label, unknown)
        on_change = address.restore(
            key, lambda now: address.one_of(options, default)(_lengthen(now, options)), instead_of=instead_of
        )
        name = names.__getitem__ if names else str
        return str(st.selectbox(label, options, 0, name, key=key, on_change=on_change, help=help))


def name_unknown(label: str, value: str) -> UnknownChoice:
    return UnknownChoice(f"There is no {label} '{plain(value)}' here. The link may belong to another Tilewatch.")


def _find_unknown(key: str, given: Sequence[str], options: Sequence[str]) -> str | None:
    """Returns the first value in the address that is not an option, else None."""
    unknown = next((value for value in given if value not in options), None)
    if unknown is None or not address.was_picked_by_hand():
        return unknown
    # The unknown values belong to an earlier choice.
    kept = [value for value in given if value in options]
    address.remove([key])
    if kept:
        st.query_params[key] = kept
    return None


def pick_value(rows: pd.DataFrame, label: str, column: str, key: str) -> pd.DataFrame:
    """Shows a select box for a column and returns the rows with the chosen value."""
    return rows[rows[column] == pick(label, main_first(set(rows[column])), key)]


def main_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (MAIN.index(name) if name in MAIN else len(MAIN), name))


def pick_commit(rows: pd.DataFrame, label: str, key: str, *first: str) -> str:
    """Shows a select box with the options `first` and the commits. Returns the chosen option or short hash."""
    names = dict(zip(first, first, strict=True))
    names |= {short_sha(row.sha): f"{short_sha(row.sha)} {row.subject}" for row in rows.itertuples()}
    return pick(label, list(names), key, names=names)


def pick_or_newest(rows: pd.DataFrame, label: str, key: str, newest: str = NEWEST) -> pd.DataFrame:
    """Shows a select box of commits and returns the rows of the chosen commit, by default the newest."""
    shas, picked = rows["sha"].map(short_sha), pick_commit(rows, label, key, newest)
    return rows[shas == (shas.iloc[0] if picked == newest else picked)]


def choose(label: str, options: Sequence[str], key: str) -> str:
    """Shows a few options side by side and returns the choice, by default the first option."""
    unknown = _find_unknown(key, st.query_params.get_all(key), options)
    on_change = address.restore(key, address.one_of(options))
    with st.container(key=f"few-{key}", width="content"):
        shown = st.segmented_control(label, options, required=True, format_func=plain, key=key, on_change=on_change)
    return _require_known(label, unknown, str(shown))


def toggle(label: str, key: str) -> bool:
    unknown = _find_unknown(key, st.query_params.get_all(key), (address.YES, address.NO))
    picked = bool(st.toggle(label, key=key, on_change=address.restore(key, address.is_yes)))
    return _require_known(label, unknown, picked)


def pick_some(label: str, options: Sequence[str], key: str, **more: Any) -> list[str]:
    """Shows a list from which any number of options can be chosen. Returns the chosen options."""
    unknown = _find_unknown(key, st.query_params.get_all(key), options)
    on_change = address.restore(key, lambda given: [value for value in given if value in options])
    return _require_known(label, unknown, list(st.multiselect(label, options, key=key, on_change=on_change, **more)))


def pick_span(commits: pd.DataFrame, key: str) -> tuple[int, int]:
    """Shows a slider and returns the indices of the first and last chosen commit."""
    names = [short_sha(sha) for sha in commits["sha"]]
    labels = dict(zip(names, map(label_commit, commits["committed_at"], commits["subject"]), strict=True))
    stops = [OLDEST, *names, NEWEST]
    unknown = _find_unknown(key, _lengthen(st.query_params.get_all(key), stops), stops)
    on_change = address.restore(key, lambda given: _read_span(_lengthen(given, stops), stops))
    look: dict[str, Any] = {"format_func": lambda stop: labels.get(stop, stop), "key": key, "on_change": on_change}
    first, last = st.select_slider("Commits", stops, value=(OLDEST, NEWEST), **look)
    span = (
        0 if first == OLDEST else names.index(first) if first in names else len(names) - 1,
        len(names) - 1 if last == NEWEST else names.index(last) if last in names else 0,
    )
    return _require_known("Commit", unknown, span)


def pick_metric() -> Metric:
    """Shows a select box of metrics and returns the chosen metric."""
    label = pick("Show", [metric.label for metric in METRICS], "show")
    return next(metric for metric in METRICS if metric.label == label)


def _require_known(label: str, unknown: str | None, picked: Picked) -> Picked:
    if unknown is not None:
        raise name_unknown(label, unknown)
    return picked


def _read_span(given: list[str], stops: Sequence[str]) -> tuple[str, str]:
    ends = [value for value in given if value in stops]
    return (ends[0], ends[1]) if len(ends) == 2 else (OLDEST, NEWEST)


def _lengthen(given: list[str], options: Sequence[str]) -> list[str]:
    """Returns `given` with each shortened value, such as "#2", replaced by the option that begins with it."""
    return [
        value if value in options else next((option for option in options if _is_short_for(value, option)), value)
        for value in given
    ]


def _is_short_for(value: str, option: str) -> bool:
    # Older links to commits have hashes of 8 digits.
    return option.startswith(f"{value} ") or (SHA_8.fullmatch(value) is not None and option.startswith(value))
