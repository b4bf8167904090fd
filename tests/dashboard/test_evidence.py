"""What leaves the evidence page, and what differs between two runs, from made values."""

import csv
import json

from sqlalchemy.orm import Session

from dashboard import data, evidence, evidence_charts
from db import queries
from tests.dashboard.filled import SHAS


def found(filled: Session, url: str) -> data.Evidence:
    shown = data.evidence(url, queries.newest_runs(filled)[0].run_id)
    assert shown is not None
    return shown


def test_the_commands_check_out_both_commits(filled: Session, filled_url: str) -> None:
    lines = evidence.commands(found(filled, filled_url)).splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("git checkout")] == [SHAS[2], SHAS[1]]
    assert lines.count("python -m kernels sweep gemm_fp8 320x32576x7168") == 2


def test_the_csv_has_every_sample_of_both_runs(filled: Session, filled_url: str) -> None:
    rows = list(csv.DictReader(evidence.samples_csv(found(filled, filled_url)).splitlines()))
    assert len(rows) == 2 * 3 * 21
    assert {row["sha"] for row in rows} == {SHAS[2], SHAS[1]}


def test_the_json_has_everything(filled: Session, filled_url: str) -> None:
    told = json.loads(evidence.as_json(found(filled, filled_url)))
    assert told["run"]["verdict"] == "regression"
    assert len(told["sampled"][0]["samples_us"]) == 21
    assert told["before"]["sha"] == SHAS[1]


def test_only_what_differs_is_a_difference() -> None:
    changed = evidence.differences({"driver": "580", "torch": "2.11"}, {"driver": "590", "torch": "2.11", "cupy": "14"})
    assert changed.to_numpy().tolist() == [["driver", "580", "590"], ["cupy", "none", "14"]]


def test_static_facts_stand_beside_each_other(filled: Session, filled_url: str) -> None:
    shown = found(filled, filled_url)
    facts = evidence.static_facts(before=shown.winner_before, this_run=shown.winner)
    assert list(facts.columns) == ["", "before", "this run"]
    registers = facts[facts[""] == "registers per thread"].iloc[0]
    assert registers["before"] == registers["this run"] == "192"
    assert evidence.static_facts(before=None, this_run=None).empty


def test_a_remark_that_only_one_cubin_has_is_told(filled: Session, filled_url: str) -> None:
    shown = found(filled, filled_url)
    assert evidence.remarks_moved(shown.winner, shown.winner).empty
    assert evidence.remarks_moved(None, shown.winner)[""].tolist() == ["only this run"] * 2


def test_the_clock_and_the_power_have_an_axis_each_and_unreadable_readings_are_left_out() -> None:
    reading = {"when": "before rounds", "unix_s": 5.0, "sm_clock_mhz": 1980, "power_w": 400.0, "temperature_c": 50}
    missing = {"when": "prepared", "unix_s": 4.0, "missing": "NVML: no permission"}
    capped = {**reading, "unix_s": 7.0, "throttled": ["sw power cap"]}
    figure = evidence_charts.telemetry([missing, reading, capped])
    assert [list(trace.x) for trace in figure.data] == [[0.0, 2.0]] * 2
    assert [trace.yaxis for trace in figure.data] == ["y", "y2"]
    assert "sw power cap" in figure.data[0].customdata[1]
