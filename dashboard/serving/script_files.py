"""Finds the files of Streamlit's browser scripts: about 150 files with a hash of their content in the name."""

import re
from collections.abc import Iterable
from pathlib import Path

import streamlit as st

FOLDER = Path(st.__file__).parent / "static" / "static" / "js"
IMPORTED = re.compile(r'(?:from|import)"\./([\w.-]+\.js)"')


def find(name: str) -> str | None:
    """Returns the file of a script. Returns None if this Streamlit has no such file, which makes pages only slower."""
    return next((path.name for path in FOLDER.glob(f"{name}.*.js")), None)


def list_needed(names: Iterable[str]) -> list[str]:
    """Lists the files of these scripts and of everything that they import, without duplicates."""
    needed: dict[str, None] = {}
    waiting = [file for file in map(find, names) if file]
    while waiting:
        file = waiting.pop()
        if file not in needed:
            needed[file] = None
            waiting += IMPORTED.findall((FOLDER / file).read_text(encoding="utf-8"))
    return list(needed)
