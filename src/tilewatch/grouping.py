"""Groups rows by a key."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

Key = TypeVar("Key")
Row = TypeVar("Row")


def group_by(rows: Iterable[Row], key: Callable[[Row], Key]) -> defaultdict[Key, list[Row]]:
    """Maps each key to a list of its rows, in the order of `rows`."""
    groups: defaultdict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups
