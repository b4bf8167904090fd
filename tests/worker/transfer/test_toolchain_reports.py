"""Comparisons of toolchains that come as files from elsewhere."""

import json
import os
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.conftest import NewDatabase
from tilewatch.db import models
from tilewatch.db.page_reads.toolchain_reports import find_report, list_reports, list_reports_of
from tilewatch.db.session import session
from tilewatch.kernels.comparing.toolchains.comparison import begin_report
from tilewatch.kernels.comparing.toolchains.compile_sides import ComparedSide
from tilewatch.kernels.comparing.toolchains.report_file import (
    BadReport,
    ToolchainName,
    ToolchainReport,
    list_rows,
    read_report,
)
from tilewatch.kernels.toolchains.toolchain import Toolchain
from tilewatch.worker.transfer.toolchain_reports import import_report

ROOT = Path(__file__).parents[3]


def write(file: Path, a: str, compiler: str) -> Path:
    report = ToolchainReport((ToolchainName(a, compiler), ToolchainName("next", "B")), "2026-11-23 09:00 UTC")
    file.write_text(json.dumps(list_rows(report)))
    return file


def test_a_report_whose_text_cannot_be_stored_or_shown_is_refused_in_a_sentence(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    file = tmp_path / "a..b.json"
    with new_database() as database_url:
        with pytest.raises(BadReport, match=r"cannot be imported: 'a\\x1b\[2J' is not the name of a toolchain"):
            import_report(database_url, write(file, "a\x1b[2J", "A"))
        with pytest.raises(BadReport, match=r"a\.\.b\.json cannot be imported: .*NUL"):
            import_report(database_url, write(file, "installed", "A\0"))
        assert import_report(database_url, write(file, "installed", "A\\u0000")).created
        with session(database_url) as opened:
            assert [row.title for row in list_reports(opened)] == ["installed → next"]


def test_reports_of_one_minute_are_two_and_what_a_report_gains_is_stored_in_it(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    """The second one, of another kernel for example, took the place of the first."""
    sides = (ComparedSide("installed", Toolchain("installed", None)), ComparedSide("next", Toolchain("next", None)))
    file = tmp_path / "a..b.json"
    with new_database() as database_url:
        for verbs in (["imported the"], ["imported the", "imported what is new"]):
            report = begin_report(sides)
            for minutes, verb in enumerate(verbs):
                report.made_at, report.static_wall_s = "2026-11-23 09:00 UTC", 60.0 * minutes
                file.write_text(json.dumps(list_rows(report)))
                assert import_report(database_url, file).sentence.startswith(verb)
        with session(database_url) as opened:
            assert len(list_reports(opened)) == 2


def test_a_recorded_report_is_read_and_stored(new_database: NewDatabase) -> None:
    file = ROOT / "recordings" / "toolchains" / "h200-13.4.92..13.5.37.json"
    with new_database() as database_url:
        import_report(database_url, file)
        with session(database_url) as opened:
            (row,) = list_reports(opened)
            story = find_report(opened, row.id)
            assert story is not None
            assert row.title == "13.4.92 → 13.5.37"
            assert {each.head for each in story.operators} == {"13.5.37"}
            assert len(story.frozen) == 72
            (base, head) = story.compilers
            assert [each.id for each in list_reports_of(opened, (base, head))] == [row.id]
            assert list_reports_of(opened, (head, base)) == []


def test_parts_of_one_report_come_in_any_order(tmp_path: Path, new_database: NewDatabase) -> None:
    """Two GPU nodes continue one report, or an older copy comes later. The last file replaced what the others had."""
    whole = json.loads((ROOT / "recordings" / "toolchains" / "h200-13.4.92..13.5.37.json").read_text())
    with new_database() as database_url:
        files = []
        for number, rows in enumerate((whole["frozen"][:30], whole["frozen"][20:])):
            short = [{**row, "base_us": row["base_us"][:2], "head_us": row["head_us"][:2]} for row in rows[:5]]
            files.append(tmp_path / f"{number}.json")
            files[-1].write_text(json.dumps({**whole, "frozen": [*short, *rows[5:]]}))
        sentences = [import_report(database_url, file).sentence for file in (*files, *files)]
        assert [" ".join(sentence.split()[:2]) for sentence in sentences[:2]] == ["imported the", "imported what"]
        assert sentences[2:] == [f"{file.name} was imported before; nothing changed" for file in files]
        with session(database_url) as opened:
            (row,) = list_reports(opened)
            story = find_report(opened, row.id)
            assert story is not None
            assert len(story.frozen) == 72
            (contents,) = opened.scalars(select(models.ToolchainReport.contents))
    launches = {(row["kernel"], row["problem"]): len(row["base_us"]) for row in contents["frozen"]}
    wanted = {(row["kernel"], row["problem"]): len(row["base_us"]) for row in whole["frozen"]}
    assert {key for key, number in wanted.items() if launches[key] < number} == {*list(wanted)[:5]}


@pytest.mark.parametrize("content", ["[]", "7", "null", "{}", '{"tilewatch_toolchain_report": 4}', "[" * 100_000, "\0"])
def test_a_file_of_others_is_no_report(tmp_path: Path, content: str) -> None:
    (tmp_path / "a..b.json").write_text(content)
    with pytest.raises(BadReport, match=r"a\.\.b\.json is not a report of `tilewatch toolchain compare`: \w"):
        read_report(tmp_path / "a..b.json")


DELETE = ...


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("made_at",), 7),
        (("made_at",), "yesterday"),
        (("id",), 7),
        (("fail_over",), "x"),
        (("fail_over",), float("nan")),
        (("static_wall_s",), None),
        (("static_jobs",), []),
        (("sides",), []),
        (("sides", 0, "packages"), 7),
        (("pairs", 0, "kernel"), []),
        (("pairs", 0, "base"), []),
        (("pairs", 0, "head", 0), DELETE),
        (("pairs", 0, "head", 0, "cpu_s"), float("nan")),
        (("gpus", 0, "model"), "x"),
        (("frozen", 0, "problem"), DELETE),
        (("frozen", 0, "base_us"), 7),
        (("frozen", 0, "base_us", 0), DELETE),
        (("frozen", 0, "base_us", 0), -1),
        (("frozen", 0, "head_us", 0), 1e308),
        (("retunings", 0, "side"), 7),
    ],
    ids=repr,
)
def test_a_report_with_a_wrong_value_is_refused_in_a_sentence(
    tmp_path: Path, database_url: str, place: tuple[str | int, ...], value: object
) -> None:
    contents = json.loads((ROOT / "recordings" / "toolchains" / "h200-13.4.92..13.5.37.json").read_text())
    within = contents
    for name in place[:-1]:
        within = within[name]
    if value is DELETE:
        del within[place[-1]]
    else:
        within[place[-1]] = value
    (tmp_path / "a..b.json").write_text(json.dumps(contents))
    with pytest.raises(BadReport, match=r"a\.\.b\.json is not a report of `tilewatch toolchain compare`: ."):
        import_report(database_url, tmp_path / "a..b.json")


def test_what_has_no_end_is_no_report(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "zero.json"):
        with pytest.raises(BadReport, match=f"{name} is not a file"):
            read_report(tmp_path / name)
