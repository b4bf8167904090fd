"""Winners are written as other projects' files: compared with files that those projects made."""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tilewatch.db.worker_reads.tuned_rows import NewestWinner
from tilewatch.kernels.contract import Problem
from tilewatch.kernels.problems.definitions import read_definitions, read_workloads
from tilewatch.worker.transfer.tuned_formats import write_records, write_serving_tables, write_traces

OTHERS = Path(__file__).parent / "others"
DEFINITIONS = {each.name: each for each in read_definitions("*.json", OTHERS / "definitions")}
WINNER = NewestWinner(
    repository="ops",
    kernel="rmsnorm_h4096",
    problem="batch_size=79",
    gpu_model="h200",
    gpu_name="NVIDIA H200",
    arch="sm_90",
    sha="ab" * 20,
    source_sha256="cd" * 32,
    toolchain={"tileiras": "13.4.92", "driver": "580.65"},
    run_id=1,
    sweep_id=1,
    config_id=1,
    config={"tile": 64},
    time_us=8.0,
    tie=[1],
    certificate=None,
    finished_at=dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC),
    baseline="torch",
    ratio=2.5,
    error=0.004,
)


def read(name: str) -> Any:
    return json.loads(OTHERS.joinpath(name).read_text())


def validate_trace(trace: dict[str, Any]) -> None:
    """Raises unless flashinfer-bench reads the line. It takes the text "NaN" for a number."""
    numbers = {key: float(value) for key, value in trace["evaluation"]["correctness"].items() if key != "extra"}
    evaluation = {**trace["evaluation"], "correctness": numbers}
    jsonschema.validate({**trace, "evaluation": evaluation}, read("flashinfer_trace.schema.json"))
    assert evaluation["status"] == "PASSED"
    assert evaluation["performance"], "it must be there for this status, and so must correctness"


@pytest.mark.parametrize(
    "case",
    [
        ("vllm.json", "NVIDIA H200", ",", "{m}x2048x512x128x128:fp8_w8a8"),
        ("sglang.json", "NVIDIA H20", ", ", "{m}x1024x2048x128x128:fp8_w8a8"),
    ],
)
def test_serving_engines_find_a_table_by_its_name(case: tuple[str, str, str, str]) -> None:
    file, gpu_name, separator, problem = case
    ((name, table),) = read(file).items()
    winners = [
        replace(WINNER, kernel="gemm", problem=problem.format(m=m), gpu_name=gpu_name, config=config)
        for m, config in reversed(table.items())
    ]
    written = write_serving_tables(winners, "M x N x K x block_n x block_k : dtype", separator)
    assert list(written.texts) == [f"gemm/{name}"]
    assert list(json.loads(written.texts[f"gemm/{name}"]).items()) == list(table.items())


def test_a_problem_names_its_own_sizes() -> None:
    winners = [replace(WINNER, problem="K=512,M=64,N=2048"), replace(WINNER, problem="E=8,K=512,M=64,N=2048")]
    written = write_serving_tables(winners, None, ",")
    assert list(written.texts) == [
        "rmsnorm_h4096/N=2048,K=512,device_name=NVIDIA_H200.json",
        "rmsnorm_h4096/E=8,N=2048,K=512,device_name=NVIDIA_H200.json",
    ]


def test_each_name_of_a_gpu_model_gets_all_configs() -> None:
    """A node with 40 GB won one problem and one with 80 GB the other, so each found half of the table."""
    names = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB")
    winners = [
        replace(WINNER, problem=f"m={m},n=8", gpu_name=name, gpu_model="a100", config={"tile": m})
        for m, name in zip((64, 128), names, strict=True)
    ]
    written = write_serving_tables([*winners, replace(winners[0], problem="n=8")], None, ",")
    files = [f"rmsnorm_h4096/N=8,device_name={name.replace(' ', '_')}.json" for name in names]
    assert list(written.texts) == files
    assert all(json.loads(text) == {"64": {"tile": 64}, "128": {"tile": 128}} for text in written.texts.values())
    assert len(written.left_out) == 1


def test_a_winner_without_a_bucket_is_named() -> None:
    written = write_serving_tables([WINNER, replace(WINNER, problem="64x64")], None, ",")
    assert written.texts == {}
    assert written.left_out[0] == ("rmsnorm_h4096 batch_size=79 on h200: it has no size m, by which configs are chosen")
    assert "write for example rows=4096,cols=1024" in written.left_out[1]


def test_no_file_leads_out_of_the_folder() -> None:
    winner = replace(WINNER, kernel="..", gpu_name="../../H200", problem="m=1")
    assert list(write_serving_tables([winner], None, ",").texts) == ["__/device_name=______H200.json"]


def test_a_trace_validates_as_those_of_flashinfer_bench_do() -> None:
    theirs = [json.loads(line) for line in OTHERS.joinpath("flashinfer_traces.jsonl").read_text().splitlines()]
    written = write_traces([WINNER], DEFINITIONS, "traces.jsonl")
    ours = json.loads(written.texts["traces.jsonl"])
    for each in (*theirs, ours):
        validate_trace(each)
    with pytest.raises(jsonschema.ValidationError, match="batch_size"):
        validate_trace({**ours, "workload": {**ours["workload"], "axes": {"batch_size": "79"}}})
    assert ours["workload"]["axes"] == theirs[1]["workload"]["axes"]
    assert ours["workload"]["inputs"] == theirs[1]["workload"]["inputs"]
    assert ours["evaluation"]["performance"] == {
        "latency_ms": 0.008,
        "reference_latency_ms": 0.02,
        "speedup_factor": 2.5,
    }


def test_the_problems_of_traces_are_watched(tmp_path: Path) -> None:
    assert read_workloads("*.jsonl", OTHERS, DEFINITIONS) == {
        "rmsnorm_h4096": [Problem(f"batch_size={size}", {"batch_size": size}) for size in (10827, 79)]
    }
    written = write_traces([WINNER], DEFINITIONS, "traces.jsonl")
    tmp_path.joinpath("traces.jsonl").write_text(written.texts["traces.jsonl"])
    assert [each.name for each in read_workloads("*.jsonl", tmp_path, DEFINITIONS)["rmsnorm_h4096"]] == [WINNER.problem]


def test_only_a_reference_makes_a_reference_time() -> None:
    written = write_traces([replace(WINNER, baseline="DeepGEMM")], DEFINITIONS, "t")
    assert json.loads(written.texts["t"])["evaluation"]["performance"] == {"latency_ms": 0.008}


def test_what_makes_no_trace_has_its_reason() -> None:
    winners = [
        replace(WINNER, kernel="gemm"),
        replace(WINNER, error=None),
        replace(WINNER, problem="79x4096"),
        replace(WINNER, problem="rows=79"),
        replace(WINNER, problem="batch_size=79,weight=bf16"),
    ]
    written = write_traces(winners, DEFINITIONS, "t")
    assert written.texts == {"t": ""}
    assert [sentence.partition(": ")[2] for sentence in written.left_out] == [
        "there is no Definition of this name",
        "its output was compared with no reference",
        "'79x4096' is not a problem: write for example rows=4096,cols=1024",
        "rmsnorm_h4096.json: axis batch_size has no value; it needs batch_size",
        "it has a choice that is no number",
    ]


def test_a_record_has_the_fields_of_pytorch_s_own() -> None:
    (theirs,) = read("pytorch_v3.json")
    (ours,) = json.loads(write_records([WINNER], "r.json").texts["r.json"])
    for part, fields in theirs.items():
        assert {name: type(ours[part][name]) for name in fields if name != "extra_info"} == {
            name: type(value) for name, value in fields.items() if name != "extra_info"
        }
    assert ours["metric"] == {"name": "latency_us", "benchmark_values": [8.0]}
    assert (ours["timestamp"], ours["runners"][0]["name"]) == (1795867200, "NVIDIA H200")
