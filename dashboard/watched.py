"""Which repository a page is about. There is nothing to choose where only one was ever submitted.

The first is the one that this Tilewatch watches itself; others are watched beside it or came with recordings.
"""

from collections.abc import Mapping, Sequence

from dashboard import data, filters

KEY = "repository"
WIDTH_PX = 420


def repository(url: str) -> str:
    """The picked one; a name that no row has where nothing was submitted."""
    known = data.repositories(url)
    if len(known) < 2:
        return next(iter(known), "")
    return pick(known)


def pick(names: Sequence[str]) -> str:
    return filters.pick("Repository", names, KEY, width=WIDTH_PX)


def link(url: str, row: Mapping[str, object]) -> dict[str, str]:
    """What the address of another page needs to be about a row's repository."""
    return {KEY: str(row["repository"])} if len(data.repositories(url)) > 1 else {}
