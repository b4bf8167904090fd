"""Reads short_lists.json, which contains the configs that each nightly sweep times."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewatch.given_files import BadFile, NoFile, read_given_text
from tilewatch.kernels.contract import Config, ShortList
from tilewatch.kernels.library_errors import LibraryError

FILE = "short_lists.json"


def read_short_lists(library: Path) -> dict[str, dict[str, ShortList]]:
    """Maps each kernel, and then each architecture, to a short list. Raises LibraryError if the file is wrong."""
    try:
        stored = json.loads(read_given_text(library / FILE))
        found: dict[str, dict[str, ShortList]] = {}
        for entry in stored:
            for kernel in entry["kernels"]:
                found.setdefault(kernel, {})[entry["arch"]] = _read_list(entry)
    except NoFile:
        return {}
    except (BadFile, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise LibraryError(f"{FILE} is wrong: {type(error).__name__}: {error}") from None
    return found


def _read_list(entry: Mapping[str, Any]) -> ShortList:
    axes, configs = list(entry["axes"]), {tuple(each) for each in entry["configs"]}

    def has(config: Config) -> bool:
        return tuple(config.get(axis) for axis in axes) in configs

    return ShortList(has, *(entry[name] for name in ("compiler", "gpus", "source", "date")))
