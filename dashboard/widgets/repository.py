"""Shows a choice of repository if there are several. Links to other pages then contain the repository."""

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlencode

from tilewatch.dashboard.frames import reads
from tilewatch.dashboard.widgets import filters, page_head

KEY = "repository"
WIDTH_PX = 420


def pick_repository(url: str) -> str:
    """Returns the chosen repository; an empty text if there is no repository."""
    names = reads.repositories(url)
    picked = pick_from(names) if len(names) > 1 else "".join(names)
    page_head.mark_simulated(url, picked)
    return picked


def pick_from(names: Sequence[str]) -> str:
    return filters.pick("Repository", names, KEY, width=WIDTH_PX)


def series_parameters(url: str, row: Mapping[str, object]) -> dict[str, str]:
    """Returns the address parameters that name a row's series."""
    return _series(row, several=has_several(url))


def series_links(url: str) -> Callable[[Mapping[str, object]], str]:
    """Returns a function that makes the link of a row's series."""
    several = has_several(url)
    return lambda row: f"series?{urlencode(_series(row, several=several))}"


def has_several(url: str) -> bool:
    return len(reads.repositories(url)) > 1


def _series(row: Mapping[str, object], *, several: bool) -> dict[str, str]:
    about = {"kernel": row["kernel"], "problem": row["problem"], "gpu": row["gpu_model"]}
    return {**{name: str(value) for name, value in about.items()}, **name_repository(row, several=several)}


def name_repository(row: Mapping[str, object], *, several: bool) -> dict[str, str]:
    """Returns the address parameter that names a row's repository; empty if there is only one repository."""
    return {KEY: str(row["repository"])} if several else {}
