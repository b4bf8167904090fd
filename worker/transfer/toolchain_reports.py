"""Imports the reports of `tilewatch toolchain compare` for the dashboard."""

import datetime as dt
from pathlib import Path

from sqlalchemy.exc import DataError

from tilewatch.db.lifecycle.toolchain_reports import JudgedReport, find_contents, write_report
from tilewatch.db.session import session
from tilewatch.kernels.comparing.toolchains import writing
from tilewatch.kernels.comparing.toolchains.report_file import (
    MADE_AT,
    VERSION,
    BadReport,
    list_rows,
    merge,
    read_report,
    read_rows,
)
from tilewatch.kernels.device import UnknownGpu
from tilewatch.text import is_name
from tilewatch.worker.transfer.importing import Imported

END = ".json"
"""The end of a report file's name. The name of a recording ends with .jsonl.gz."""


def import_report(database_url: str, path: Path) -> Imported:
    """Stores a report, or only its new parts if it is stored already. Raises BadReport if the file is wrong."""
    report = read_report(path)
    sides = (report.base, *report.heads)
    names = [side.name for side in sides]
    for name in names:
        if not is_name(name):
            raise BadReport(f"{path} cannot be imported: {name!r:.60} is not the name of a toolchain")
    key = " ".join([report.made_at, *([report.id] if report.id else (side.compiler for side in sides))])
    try:
        made_at = dt.datetime.strptime(report.made_at, MADE_AT).replace(tzinfo=dt.UTC)
        with session(database_url) as opened:
            stored = find_contents(opened, key)
            if stored.get("tilewatch_toolchain_report") == VERSION:
                report = merge(read_rows(stored), report)
            judged = JudgedReport(
                key=key,
                toolchains=names,
                made_at=made_at,
                contents=list_rows(report),
                answer=writing.make_answer(report),
                markdown=writing.write_markdown(report),
            )
            written = write_report(opened, judged)
    except DataError as error:  # a NUL, for example
        raise BadReport(f"{path} cannot be imported: {str(error.orig).splitlines()[0]}") from None
    except (ValueError, IndexError, OverflowError, UnknownGpu) as error:  # such as launches that are no pairs
        raise BadReport(f"{path} is not a report of `tilewatch toolchain compare`: {error}") from None
    if written == "unchanged":
        return Imported(False, f"{path.name} was imported before; nothing changed")
    verb = "imported" if written == "added" else "imported what is new in"
    return Imported(True, f"{verb} the comparison of {' with '.join(names)} from {path.name}")
