"""The tab of the page Compare that shows comparisons of two toolchains, with the one that this repository keeps."""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from tests.conftest import NewDatabase
from tests.dashboard.fixtures.app import APP, opened
from tilewatch.db.lifecycle.toolchain_reports import begin
from tilewatch.db.models import Regression, ToolchainReport
from tilewatch.db.session import session
from tilewatch.kernels.comparing.toolchains.report_file import ReportFile, read_report
from tilewatch.worker.transfer.toolchain_reports import import_report

KEPT = Path(__file__).parents[3] / "recordings" / "toolchains" / "h200-13.4.92..13.5.37.json"

LATER = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def url(new_database: NewDatabase) -> Iterator[str]:
    with new_database() as fresh:
        assert import_report(fresh, KEPT).created
        yield fresh


def compare(url: str, monkeypatch: pytest.MonkeyPatch, **choices: str) -> AppTest:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", url)
    app = AppTest.from_file(str(APP), default_timeout=60)
    for name, value in {"compare": "Two toolchains", **choices}.items():
        app.query_params[name] = value
    return opened(app, "compare")


def read_answer(page: AppTest) -> str:
    return str(next(each.value for each in page.markdown if "-badge[" in each.value))


def test_the_answer_comes_first_then_what_is_worst(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = compare(url, monkeypatch)
    wanted = ":red-badge[not safe] 13.5.37 is not safe to take in place of 13.4.92 on h200: of 82 operators"
    assert read_answer(page).startswith(wanted)
    table = page.dataframe[0].value
    assert len(table) == 82
    first = table.iloc[0]
    assert (first["verdict"], first["kernel"], first["problem"]) == ("not safe", "gemm_fp8", "4096x7168x2048")
    assert first["same config"] == "+61.6 % (61.5 to 61.8), slower"
    assert re.fullmatch(r"\+1\.\d % \(1\.\d to 1\.\d\), slower", first["re-tuned"])
    assert "spills 0 -> 256 bytes" in first["what moved in the code"]
    assert page.code[0].value.endswith("gemm_fp8 4096x7168x2048 --arch sm_90 --out case")


def test_a_verdict_and_an_operator_are_picked_in_the_address(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = compare(url, monkeypatch, safety="safe if re-tuned")
    (row,) = page.dataframe[0].value.to_dict("records")
    assert row["problem"] == "8192x7168"
    assert row["new best config"] == "occupancy=8 persistent=0 tile_columns=1024 tile_rows=4"


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        ("13.5.37", "Report on all operators: 13.4.92 → 13.5.37, not safe"),
        ("13.6.1", "tilewatch toolchain add cuda-tileiras-13.4.92 cuda-tile==1.7.0 nvidia-cuda-tileiras==13.4.92\n"),
    ],
)
def test_a_regression_of_another_compiler_leads_to_the_report_or_to_how_one_is_made(
    new_filled_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, after: str, shown: str
) -> None:
    names = "cuda-tile 1.7.0 cuda-nvcc {0} cuda-tileiras {0} nvvm {0} limit 15s"
    cause = f"another compiler: {names.format('13.4.92')} -> {names.format(after)}"
    with new_filled_database() as fresh:
        import_report(fresh, KEPT)
        with session(fresh) as written:
            written.execute(update(Regression).where(Regression.id == 1).values(category="toolchain", cause=cause))
        monkeypatch.setenv("TILEWATCH_DATABASE_URL", fresh)
        app = AppTest.from_file(str(APP), default_timeout=60)
        app.query_params["regression"] = "1"
        opened(app, "regressions")
        links = [each.proto.label for each in app.get("page_link")]
        assert any(words.startswith(shown) for words in [*links, *(each.value for each in app.code)])


def test_a_link_with_the_number_of_an_older_report_opens_it(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_database() as fresh:
        import_report(fresh, KEPT)
        with session(fresh) as written:
            begin(written, "later", ["one", "two"], LATER)
        page = compare(fresh, monkeypatch, report="#1")
        assert "13.5.37 is not safe to take" in read_answer(page)
        assert [each.value for each in compare(fresh, monkeypatch, report="#2").text] == [], "it has nothing yet"


def test_a_compiler_that_is_not_safe_opens_before_newer_ones_that_are(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_database() as fresh:
        for report in sorted(KEPT.parent.glob("*.json"), reverse=True):
            import_report(fresh, report)
        with session(fresh) as written:
            written.execute(
                update(ToolchainReport).where(ToolchainReport.toolchains[2] != "13.5.37").values(made_at=LATER)
            )
        page = compare(fresh, monkeypatch)
        assert "13.5.37 is not safe to take" in read_answer(page)


def test_several_heads_are_columns_of_one_table_and_losses_have_causes(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = read_report(KEPT)
    report.sides = (*report.sides, replace(report.heads[0], name="13.6"))
    same = [replace(pair, head=pair.base, head_name="13.6") for pair in report.pairs.values()]
    report.pairs |= {pair.key: pair for pair in same}
    ReportFile(tmp_path / "r.json", report).save()
    with new_database() as fresh:
        import_report(fresh, tmp_path / "r.json")
        page = compare(fresh, monkeypatch)
        older, newer, taken = read_answer(page).split("\n\n")
        assert older.startswith(":red-badge[not safe] 13.5.37 is not safe")
        assert newer.startswith("13.6 is safe to take in place of 13.4.92 on h200: ")
        assert taken == "Take 13.6: the last of these that is safe."
        operators, ladders = (page.dataframe[each].value for each in range(2))
        assert len(operators) == 82
        first = operators.iloc[0]
        assert list(operators.columns) == ["kernel", "problem", "13.5.37", "13.6"]
        assert first["13.5.37"].startswith("not safe: +61.6 % (61.5 to 61.8), slower; re-tuned +1.")
        assert first["13.6"] == "safe: identical"
        worst = ladders.iloc[0]
        assert (worst["kernel"], worst["toolchain"], worst["caused by"]) == ("gemm_fp8", "13.5.37", "compiler")
        assert worst["compiler"].startswith(f"{worst['loss']} (")
        assert page.code[0].value.endswith("--arch sm_90 --head 13.5.37 --out case")
        single = compare(fresh, monkeypatch, safety="safe if re-tuned").dataframe[0].value
        assert [cell.split(":")[0] for cell in single["13.5.37"]] == ["safe if re-tuned"]


def test_a_second_import_changes_nothing(url: str) -> None:
    assert not import_report(url, KEPT).created
