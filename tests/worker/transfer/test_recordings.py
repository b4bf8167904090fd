"""Recordings: what travels, what a second import does, and files that change nothing."""

import datetime as dt
import functools
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import String, cast, func, select, update

from tests.conftest import NewDatabase
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.made_run import make_run
from tests.worker.fixtures.worker_context import do_all_jobs, settings_for
from tilewatch.db import fact_writes
from tilewatch.db.models import (
    Base,
    Commit,
    Compilation,
    Config,
    GpuModel,
    Measurement,
    Recording,
    Run,
    Submission,
    Sweep,
    Trial,
)
from tilewatch.db.server.embedded import Servers
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.db.worker_reads.export import ExportFilter
from tilewatch.kernels.recording import recording_file
from tilewatch.kernels.recording.recording_file import BadRecording
from tilewatch.worker.context import Context
from tilewatch.worker.transfer.exporting import NothingToExport, export_file
from tilewatch.worker.transfer.importing import import_file

Line = dict[str, Any]


@pytest.fixture(scope="module")
def source(new_database: NewDatabase, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """A database where two runs at one commit were measured."""
    folder = tmp_path_factory.mktemp("source")
    with new_database() as url:
        settings = settings_for(folder / "home", tiny_repository.make(folder / "watched"), url, servers.broker_url)
        context = Context.of(settings)
        drain = functools.partial(do_all_jobs, context)
        make_run(settings, context, drain)
        make_run(settings, context, drain, minute=1)
        yield context


@pytest.fixture
def recording(source: Context, tmp_path: Path) -> Path:
    file = tmp_path / "h200.jsonl.gz"
    assert export_file(source.database_url, file, ExportFilter()) > 0
    return file


def counts(database_url: str) -> dict[str, int]:
    with session(database_url) as opened:
        return {
            table.name: opened.execute(select(func.count()).select_from(table)).scalar_one()
            for table in Base.metadata.sorted_tables
        }


def contents(database_url: str) -> dict[str, list[tuple[Any, ...]]]:
    """What must survive a journey."""
    trial = select(Sweep.kernel, Sweep.problem, Config.sha256, Trial.status, Trial.failure, Trial.samples_us).order_by(
        Sweep.kernel, Sweep.problem, Config.sha256
    )
    run = select(Run.key, Run.gpu_uuid, Run.toolchain_sha256, Run.telemetry, Run.started_at).order_by(Run.key)
    measurement = select(
        Run.key, Measurement.implementation, Measurement.samples_us, Measurement.median_us, Measurement.ratio
    ).order_by(Run.key, Measurement.implementation)
    compilation = select(Compilation.code_key, Compilation.registers, Compilation.remarks, Compilation.status)
    with session(database_url) as opened:
        return {
            "trials": [tuple(row) for row in opened.execute(trial.select_from(Trial).join(Sweep).join(Config))],
            "runs": [tuple(row) for row in opened.execute(run)],
            "measurements": [tuple(row) for row in opened.execute(measurement.select_from(Measurement).join(Run))],
            "compilations": [tuple(row) for row in opened.execute(compilation.order_by(Compilation.code_key))],
        }


def rewritten(file: Path, change: Callable[[list[Line]], list[Line]]) -> Path:
    """The same recording with its lines changed, and its closing count put right."""
    lines = change([json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()])
    lines[-1]["rows"] = len(lines) - 2
    other = file.with_name("changed.jsonl.gz")
    other.write_bytes(gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
    return other


def test_a_recording_arrives_as_it_left(recording: Path, source: Context, new_database: NewDatabase) -> None:
    with new_database() as elsewhere:
        imported = import_file(elsewhere, recording)
        assert imported.created
        assert imported.sentence.startswith("imported 2 runs recorded on n1, NVIDIA H200, 2026-11-01")
        assert contents(elsewhere) == contents(source.database_url)
        with session(elsewhere) as opened:
            assert set(opened.scalars(select(Run.origin))) == {"recorded"}
            assert set(opened.scalars(select(Submission.reason))) == {"recorded"}
            assert opened.scalars(select(Recording)).one().machine == "n1, NVIDIA H200"


def test_what_left_the_branch_has_left_it_elsewhere_too(
    recording: Path, source: Context, tmp_path: Path, new_database: NewDatabase
) -> None:
    before, rewrite = recording.read_bytes(), dt.datetime(2026, 11, 2, 3, tzinfo=dt.UTC)
    try:
        with session(source.database_url) as opened:
            opened.execute(update(Commit).values(left_branch_at=rewrite))
        export_file(source.database_url, tmp_path / "after.jsonl.gz", ExportFilter())
    finally:
        with session(source.database_url) as opened:
            opened.execute(update(Commit).values(left_branch_at=None))
    assert (tmp_path / "after.jsonl.gz").read_bytes() != before
    for files in ((recording, tmp_path / "after.jsonl.gz"), (tmp_path / "after.jsonl.gz", recording)):
        with new_database() as elsewhere:
            for file in files:
                import_file(elsewhere, file)
            with session(elsewhere) as opened:
                assert list(opened.scalars(select(Commit.left_branch_at))) == [rewrite]


def test_a_sweep_of_which_only_medians_are_left_arrives(
    source: Context, tmp_path: Path, new_database: NewDatabase
) -> None:
    """After 90 days a sweep's losers keep their median alone, and the whole file was refused elsewhere."""
    file = tmp_path / "old.jsonl.gz"
    with session(source.database_url) as opened:
        kept = opened.execute(
            select(Trial.sweep_id, Trial.config_id, Trial.samples_us).where(Trial.status == "timed")
        ).all()
        medians = sorted(opened.scalars(select(Trial.median_us).where(Trial.status == "timed")))
    try:
        with session(source.database_url) as opened:
            opened.execute(update(Trial).values(samples_us=None))
        export_file(source.database_url, file, ExportFilter())
    finally:
        with session(source.database_url) as opened:
            for sweep_id, config_id, samples_us in kept:
                of_trial = update(Trial).where(Trial.sweep_id == sweep_id, Trial.config_id == config_id)
                opened.execute(of_trial.values(samples_us=samples_us))
    with new_database() as elsewhere:
        assert import_file(elsewhere, file).created
        with session(elsewhere) as opened:
            assert sorted(opened.scalars(select(Trial.median_us).where(Trial.status == "timed"))) == medians


def test_a_wrong_output_of_any_size_arrives(recording: Path, new_database: NewDatabase) -> None:
    """Wrong configs return what was in the memory. One such number had the whole file refused elsewhere."""
    file = rewritten(recording, with_value("trial", "error", 3.4e38))
    with new_database() as elsewhere:
        assert import_file(elsewhere, file).created
        with session(elsewhere) as opened:
            assert set(opened.scalars(select(Trial.error).where(Trial.status == "wrong"))) == {3.4e38}


def test_runs_of_many_nodes_arrive(source: Context, tmp_path: Path, new_database: NewDatabase) -> None:
    """The header once had more characters than an import accepts, and the whole file was refused."""
    file = tmp_path / "cluster.jsonl.gz"
    try:
        with session(source.database_url) as opened:
            opened.execute(update(Run).values(host=func.repeat(cast(Run.id, String), 300)))
        export_file(source.database_url, file, ExportFilter())
    finally:
        with session(source.database_url) as opened:
            opened.execute(update(Run).values(host="n1"))
    with new_database() as elsewhere:
        assert import_file(elsewhere, file).created
        with session(elsewhere) as opened:
            assert sorted(map(len, opened.scalars(select(Run.host)))) == [300, 300]


def test_a_file_is_imported_once_and_not_even_read_again(
    recording: Path, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_database() as elsewhere:
        import_file(elsewhere, recording)
        before = counts(elsewhere)
        monkeypatch.delattr(recording_file, "read")
        again = import_file(elsewhere, recording)
        assert not again.created
        assert counts(elsewhere) == before


def test_a_run_that_is_known_from_another_file_is_not_repeated(recording: Path, new_database: NewDatabase) -> None:
    def first_sweep_only(lines: list[Line]) -> list[Line]:
        (other,) = [line["key"] for line in lines if line.get("row") == "run" and line["sweep"] != 1]
        return [
            line for line in lines if line.get("sweep", 1) == 1 and line.get("id", 1) == 1 and line.get("run") != other
        ]

    with new_database() as elsewhere:
        import_file(elsewhere, rewritten(recording, first_sweep_only))
        assert counts(elsewhere)["runs"] == 1
        assert "1 more were here already" in import_file(elsewhere, recording).sentence
        assert (counts(elsewhere)["runs"], counts(elsewhere)["sweeps"]) == (2, 2)


def test_a_recording_of_our_own_repository_changes_no_fact_of_ours(recording: Path, new_database: NewDatabase) -> None:
    lines = [json.loads(line) for line in gzip.decompress(recording.read_bytes()).splitlines()]
    (sweep, *_) = [line for line in lines if line.get("row") == "sweep"]
    (failed,) = [line for line in lines if line.get("row") == "compilation" and line["status"] != "ok"]
    commit = {**sweep["commit"], "committed_at": dt.datetime.fromisoformat(sweep["commit"]["committed_at"])}

    def hostile(lines: list[Line]) -> list[Line]:
        for line in lines:
            if line.get("row") == "sweep":
                line["commit"]["position"] = 9_999_999
                line["gpu_model"] |= {"name": "PWNED", "fp8_tflops": 0.001}
        return lines

    with new_database() as here:
        with session(here) as opened:
            fact_writes.add_gpu_model(opened, **sweep["gpu_model"])
            commit_id = fact_writes.add_commit(opened, **commit)
            fact_writes.add_submission(
                opened,
                key="own",
                reason="nightly",
                night=None,
                commit_id=commit_id,
                gpu_model=sweep["gpu_model"]["slug"],
                measure=True,
            )
        import_file(here, rewritten(recording, hostile))
        with session(here) as opened:
            assert opened.scalars(select(Commit.position)).all() == [commit["position"]]
            model = opened.scalars(select(GpuModel)).one()
            assert (model.name, model.fp8_tflops) == (sweep["gpu_model"]["name"], sweep["gpu_model"]["fp8_tflops"])
            code_key, compiler = failed["code_key"], failed["compiler"]
            assert steps.read_compiled_keys(opened, [code_key], compiler, 0.0) == {}
            columns = {name: value for name, value in failed.items() if name != "row"}
            fact_writes.add_compilations(opened, [{**columns, "failure": "our own"}])
            assert steps.read_compiled_keys(opened, [code_key], compiler, 0.0) == {code_key: None}


def test_our_own_export_is_nothing_new(recording: Path, source: Context) -> None:
    before = counts(source.database_url)
    import_file(source.database_url, recording)
    assert counts(source.database_url) == {**before, "recordings": 1}


def test_a_sweep_that_waited_for_its_gpu_is_of_the_day_when_it_was_measured(source: Context, tmp_path: Path) -> None:
    """Submitted on Saturday and measured on Sunday, it was in neither of the files that were written every day."""
    file = tmp_path / "sunday.jsonl.gz"
    with session(source.database_url) as opened:
        opened.execute(update(Sweep).values(created_at=dt.datetime(2026, 10, 31, 22, tzinfo=dt.UTC)))
    assert export_file(source.database_url, file, ExportFilter(since=dt.date(2026, 11, 1))) > 0
    with pytest.raises(NothingToExport):
        export_file(source.database_url, file, ExportFilter(since=dt.date(2026, 11, 2)))


def test_imported_runs_are_not_passed_on(recording: Path, tmp_path: Path, new_database: NewDatabase) -> None:
    with new_database() as elsewhere:
        import_file(elsewhere, recording)
        with pytest.raises(NothingToExport, match="no worker of this database"):
            export_file(elsewhere, tmp_path / "again.jsonl.gz", ExportFilter())


def test_the_same_runs_give_the_same_file(recording: Path, source: Context, tmp_path: Path) -> None:
    export_file(source.database_url, tmp_path / "again.jsonl.gz", ExportFilter())
    assert (tmp_path / "again.jsonl.gz").read_bytes() == recording.read_bytes()


def test_one_repository_of_several_is_exported_and_its_name_here_may_be_another(
    source: Context, tmp_path: Path, new_database: NewDatabase
) -> None:
    with pytest.raises(NothingToExport):
        export_file(source.database_url, tmp_path / "none.jsonl.gz", ExportFilter(repository="another"))
    file = tmp_path / "watched.jsonl.gz"
    assert export_file(source.database_url, file, ExportFilter(repository="watched")) > 0
    with new_database() as elsewhere:
        with pytest.raises(BadRecording, match=r"'wat\\x1bched' cannot be the name of a repository"):
            import_file(elsewhere, file, named="wat\x1bched")
        import_file(elsewhere, file, named="https://example.org/watched.git")
        with session(elsewhere) as opened:
            assert set(opened.scalars(select(Sweep.repository))) == {"https://example.org/watched.git"}


def test_medians_and_ratios_are_derived_again(recording: Path, new_database: NewDatabase) -> None:
    def doubled(lines: list[Line]) -> list[Line]:
        for line in lines:
            if line.get("row") == "measurement" and line["implementation"] == "deepgemm":
                line["samples_us"] = [2 * sample for sample in line["samples_us"]]
        return lines

    with new_database() as elsewhere:
        import_file(elsewhere, rewritten(recording, doubled))
        with session(elsewhere) as opened:
            ratios = opened.scalars(select(Measurement.ratio).where(Measurement.role == "kernel")).all()
        assert ratios == pytest.approx([1.8, 1.8], abs=0.02)


def without(name: str, kind: str) -> Callable[[list[Line]], list[Line]]:
    return lambda lines: [
        {key: value for key, value in line.items() if key != name} if line.get("row") == kind else line
        for line in lines
    ]


def with_value(kind: str, name: str, value: object) -> Callable[[list[Line]], list[Line]]:
    return lambda lines: [{**line, name: value} if line.get("row") == kind else line for line in lines]


def with_part(part: str, name: str, value: object) -> Callable[[list[Line]], list[Line]]:
    return lambda lines: [{**line, part: {**line[part], name: value}} if part in line else line for line in lines]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("host", "run"), "the run's host: field required"),
        (with_value("run", "sweep", 99), "a row names or lacks 99"),
        (with_part("commit", "branch", "main"), "a value does not fit its column: Unconsumed column names: branch"),
        (with_part("gpu_model", "fp4_tflops", 1.0), "Unconsumed column names: fp4_tflops"),
        (with_value("run", "timer", "sundial"), "violates check constraint"),
        (with_value("run", "started_at", "yesterday"), "the run's started_at: input should be a valid datetime"),
        (
            with_value("measurement", "samples_us", ["fast"]),
            "samples_us.0: input should be a valid number",
        ),
        (
            with_value("compilation", "registers", "many"),
            "registers: input should be a valid integer",
        ),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], "this sweep is there twice"),
        (lambda lines: [{**lines[0], "tilewatch_recording": 2}, *lines[1:]], "this Tilewatch reads version 1"),
    ],
)
def test_a_bad_recording_is_a_sentence_and_changes_nothing(
    recording: Path, new_database: NewDatabase, change: Callable[[list[Line]], list[Line]], words: str
) -> None:
    with new_database() as elsewhere:
        before = counts(elsewhere)
        with pytest.raises(BadRecording, match=words):
            import_file(elsewhere, rewritten(recording, change))
        assert counts(elsewhere) == before


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: data[: len(data) // 2], "truncated"),
        (lambda data: gzip.decompress(data), "is not gzip"),
        (lambda data: gzip.compress(b"\n".join(gzip.decompress(data).splitlines()[:-1]) + b"\n"), "truncated"),
    ],
)
def test_a_damaged_file_is_a_sentence_and_changes_nothing(
    recording: Path, new_database: NewDatabase, spoil: Callable[[bytes], bytes], words: str
) -> None:
    recording.write_bytes(spoil(recording.read_bytes()))
    with new_database() as elsewhere:
        before = counts(elsewhere)
        with pytest.raises(BadRecording, match=words):
            import_file(elsewhere, recording)
        assert counts(elsewhere) == before


def test_a_missing_file_is_named(database_url: str, tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match="there is no file"):
        import_file(database_url, tmp_path / "nowhere.jsonl.gz")
