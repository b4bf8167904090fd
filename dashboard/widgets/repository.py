"""Which repository a page is about. There is nothing to choose where only one was ever submitted.

The first is the one that this Tilewatch watches itself; others are watched beside it or came with recordings.
"""

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlencode

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import filters

KEY = "repository"
WIDTH_PX = 420


def pick_repository(url: str) -> str:
    """The picked one; a name that no row has where nothing was submitted."""
    known = reads.repositories(url)
    if len(known) < 2:
        return next(iter(known), "")
    return pick_from(known)


def pick_from(names: Sequence[str]) -> str:
    return filters.pick("Repository", names, KEY, width=WIDTH_PX)


def repository_parameters(url: str, row: Mapping[str, object]) -> dict[str, str]:
    """What the address of another page needs to be about a row's repository."""
    return _link(row, several=_several(url))


def series_parameters(url: str, row: Mapping[str, object]) -> dict[str, str]:
    """What the address of another page needs to be about a row's series."""
    return _series(row, several=_several(url))


def trend_links(url: str) -> Callable[[Mapping[str, object]], str]:
    """Rows to the address of their series' trend. Asks once, for callers with hundreds of rows."""
    several = _several(url)
    return lambda row: f"trends?{urlencode(_series(row, several=several))}"


def _several(url: str) -> bool:
    return len(reads.repositories(url)) > 1


def _series(row: Mapping[str, object], *, several: bool) -> dict[str, str]:
    about = {"kernel": row["kernel"], "problem": row["problem"], "gpu": row["gpu_model"]}
    return {**{name: str(value) for name, value in about.items()}, **_link(row, several=several)}


def _link(row: Mapping[str, object], *, several: bool) -> dict[str, str]:
    return {KEY: str(row["repository"])} if several else {}
