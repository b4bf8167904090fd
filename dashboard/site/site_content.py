"""Defines a site as data: its publishers, their repositories and their pages.

One file contains all data of a site, and another site can include the file. Strangers may have written the file, so
reading checks every value.
"""

import datetime as dt
import gzip
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tilewatch.db.lifecycle.actions import BY_A_COMMIT
from tilewatch.db.page_reads.regressions import RegressionRow
from tilewatch.db.page_reads.snapshots import CommitRow, JudgedChangeRow, RecentRatiosRow, SnapshotRow
from tilewatch.errors import ExpectedError
from tilewatch.given_files import open_given

FORMAT = 1
FILE = "site.json.gz"
MOST_BYTES = 256 * 2**20
"""The largest size in bytes of an unpacked site file. All recordings of this repository take 18 MB (2026-11-28)."""
SLUG_CHARACTERS = 80
FileName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,150}\.html$")]


class BadSite(ExpectedError):
    """Raised if a file is not the data file of a site. The message is a sentence."""


@dataclass(frozen=True)
class Cell:
    """The text of a table cell, with an optional link to a page."""

    text: str
    page: FileName | None = None


@dataclass(frozen=True)
class Block:
    """One block of a page. A chart has its description as `text` and its `figure` as Plotly's JSON."""

    kind: Literal["heading", "text", "note", "code", "table", "chart"]
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    figure: str = ""
    height_px: int = 0


@dataclass(frozen=True)
class SitePage:
    """A page about one subject. `provenance` are pairs of texts on the measurement, such as commit and GPU."""

    file: FileName
    title: str
    blocks: tuple[Block, ...]
    provenance: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Section:
    """One repository's data on the front page: the newest measurements, and earlier measurements to compare with."""

    repository: str
    after: tuple[SnapshotRow, ...]
    before: tuple[SnapshotRow, ...]
    judged: tuple[JudgedChangeRow, ...]
    recent: tuple[RecentRatiosRow, ...]
    commits: tuple[CommitRow, ...]
    regressions: tuple[RegressionRow, ...]


@dataclass(frozen=True)
class Party:
    """A publisher of a site, with the publisher's repositories and pages."""

    name: str
    made_at: dt.datetime
    made_by: str
    sections: tuple[Section, ...]
    pages: tuple[SitePage, ...]
    links: tuple[Block, ...] = field(default=())


_PARTIES = TypeAdapter(tuple[Party, ...])


def name_page(kind: str, *about: object) -> str:
    """Returns the file name of a page, made of safe characters. The same arguments give the same name."""
    key = "\n".join(map(str, about))
    slug = re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, about[1:])).lower())[:SLUG_CHARACTERS].strip("-")
    return "-".join(filter(None, (kind, slug, hashlib.sha256(key.encode()).hexdigest()[:10]))) + ".html"


def name_series_page(repository: str, kernel: str, problem: str, gpu_model: str) -> str:
    return name_page("series", repository, kernel, problem, gpu_model)


def name_regression_page(row: RegressionRow) -> str:
    """Returns the file name of a change's page, which is the same in every site."""
    return name_page(*identify_change(row))


def identify_change(row: RegressionRow) -> tuple[str, ...]:
    """Returns the words that identify a change in every site."""
    # A compiler and a node, for example, may change one kernel at one commit.
    causes = () if row.category in BY_A_COMMIT else (row.cause,)
    return row.direction, row.repository, row.kernel, row.bad_sha, row.category, *causes


def write_parties(folder: Path, parties: tuple[Party, ...]) -> None:
    content = {"format": FORMAT, "parties": _PARTIES.dump_python(parties, mode="json")}
    (folder / FILE).write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))


def read_parties(place: Path) -> tuple[Party, ...]:
    """Returns the parties of a site from its folder or data file. Raises BadSite if the file is not a site."""
    file = place / FILE if place.is_dir() else place
    try:
        with open_given(file) as given, gzip.open(given) as unpacked:
            text = unpacked.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise BadSite(f"{file} has more than {MOST_BYTES >> 20} MiB")
        content = json.loads(text)
        if content.get("format") != FORMAT:
            raise BadSite(f"{file} has format {content.get('format')!r:.20}, and this Tilewatch reads format {FORMAT}")
        return _PARTIES.validate_python(content["parties"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadSite(f"{file} is not the file of a site: {where}: {first['msg']}") from None
    except (OSError, EOFError, ValueError, RecursionError, AttributeError, KeyError) as error:
        raise BadSite(f"{file} is not the file of a site: {error}") from None
