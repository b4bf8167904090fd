"""Finds files with secrets that other users may read, and cookie secrets that are too short."""

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tilewatch.given_files import MOST_TOML_BYTES, BadFile, parse_toml, read_given_text
from tilewatch.text import count_text

SHORTEST_COOKIE_SECRET = 16
"""The fewest characters of a cookie secret. Who knows it can sign in as anybody. docs/use/dashboard.md asks for 32."""


@dataclass(frozen=True)
class Weakness:
    sentence: str
    fix: str


def list_sign_in_files(folders: Iterable[Path]) -> list[Path]:
    """Lists the files with secrets that Streamlit reads in these folders."""
    return [file for folder in (*folders, Path.home()) if (file := folder / ".streamlit" / "secrets.toml").is_file()]


def find_weaknesses(files: Iterable[Path]) -> list[Weakness]:
    """Lists the weaknesses of these files. Missing files have none."""
    return [weakness for file in files if file.is_file() for weakness in (*_find_readers(file), *_find_short(file))]


def _find_readers(file: Path) -> Iterable[Weakness]:
    if file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        yield Weakness(f"other users may read {file}", f"chmod 600 {file}")


def _find_short(file: Path) -> Iterable[Weakness]:
    """Yields a weakness if a file's cookie secret is too short."""
    try:
        signing = parse_toml(read_given_text(file, MOST_TOML_BYTES)).get("auth", {})
    except BadFile:
        return
    secret = signing.get("cookie_secret") if isinstance(signing, dict) else None
    if isinstance(secret, str) and len(secret) < SHORTEST_COOKIE_SECRET:
        length = count_text(len(secret), "character")
        sentence = f"cookie_secret in {file} has {length}; expected {SHORTEST_COOKIE_SECRET} at least"
        yield Weakness(sentence, "`openssl rand -hex 32` makes one")
