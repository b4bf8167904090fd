"""A GPU can work while its worker lives and nobody found the GPU ill."""

import datetime as dt
from typing import Any

import pytest
from sqlalchemy import func
from sqlalchemy.orm import Session

from tests.db.fixtures.rows import GPU, HOST, KERNEL, NOON, PROBLEM, REPOSITORY, Rows
from tilewatch.db.models import Quarantine
from tilewatch.db.query_parts import WORKER_ALIVE_S
from tilewatch.db.worker_reads import gpus
from tilewatch.db.worker_reads.gpus import NodeGpu

SILENT = func.now() - dt.timedelta(seconds=WORKER_ALIVE_S + 1)
LIVES = func.now() - dt.timedelta(seconds=WORKER_ALIVE_S)


def _quarantine(rows: Rows, gpu_uuid: str, **columns: Any) -> None:
    evidence: dict[str, Any] = {"kind": "xid", "reason": "Xid 79", "evidence": {}, "began_at": NOON}
    rows.add(Quarantine(gpu_uuid=gpu_uuid, gpu_model=GPU, host=HOST, **evidence, **columns))


def test_the_gpu_of_each_asked_run_is_read(db_session: Session, rows: Rows) -> None:
    known = rows.run(host="node-b", gpu_uuid="GPU-7")
    unknown = rows.run(toolchain={})
    rows.run()
    found = gpus.read_gpus_of_runs(db_session, [known.id, unknown.id])
    assert found == {known.id: NodeGpu("node-b", "GPU-7", "580.65"), unknown.id: NodeGpu(HOST, "GPU-1", None)}


def test_gpus_are_available_by_host_while_they_live_and_are_well(db_session: Session, rows: Rows) -> None:
    for host, gpu_uuid in (("b", "1"), ("a", "4"), ("a", "3"), ("c", "2")):
        rows.worker(f"gpu{gpu_uuid}@{host}", host=host, gpu_uuid=gpu_uuid, seen_at=LIVES, toolchain={"driver": "580"})
    rows.worker("silent", gpu_uuid="5", seen_at=SILENT)
    rows.worker("other", gpu_uuid="6", gpu_model="b200")
    rows.worker("compiles", gpu_uuid=None)
    rows.worker("ill", gpu_uuid="7")
    _quarantine(rows, "7")
    _quarantine(rows, "1", ended_at=NOON)
    found = gpus.list_available_gpus(db_session, GPU)
    assert found == [NodeGpu(host, each, "580") for host, each in (("a", "3"), ("a", "4"), ("b", "1"), ("c", "2"))]


def test_open_causes_are_the_sizes_by_the_node_or_toolchain_at_fault(db_session: Session, rows: Rows) -> None:
    ends, run = (rows.commit(3), rows.commit(8)), rows.measured()

    def change(name: str, size: float = 0.9, problem: str = PROBLEM, **columns: Any) -> None:
        of_series = {each: columns.pop(each) for each in ("gpu_model", "recovered_at") if each in columns}
        cause = rows.regression(*ends, **{"key": f"cause:{name}", "category": "node", **columns})
        rows.changed(cause, run, size, problem=problem, **of_series)

    change("a", 0.05)
    change("b", 0.06, category="toolchain", state="expected")
    change("c", 0.07, "128", state="acknowledged")
    change("d", category="code")
    change("e", repository="attention")
    change("f", state="resolved")
    change("g", gpu_model="b200")
    change("h", recovered_at=NOON)
    found = gpus.read_open_causes(db_session, REPOSITORY, GPU)
    assert found == {(KERNEL, PROBLEM): {"a": 0.05, "b": 0.06}, (KERNEL, "128"): {"c": 0.07}}


AWAY = dt.timedelta(seconds=gpus.AWAY_S)
SECOND = dt.timedelta(seconds=1)


@pytest.mark.parametrize(
    ("waits", "ran", "worker", "columns", "is_ill", "stranded"),
    [
        (AWAY, None, None, {}, False, True),
        (AWAY - SECOND, None, None, {}, False, False),
        (2 * AWAY, AWAY, SILENT, {}, False, True),
        (2 * AWAY, AWAY - SECOND, None, {}, False, False),
        (AWAY, 2 * AWAY, None, {}, False, True),
        (AWAY, None, LIVES, {}, False, False),
        (AWAY, None, LIVES, {}, True, True),
        (AWAY, None, None, {"state": "waiting"}, False, False),
        (AWAY, None, None, {"queue": "gpu.h200"}, False, False),
        (AWAY, None, None, {"queue": "compile@GPU-1"}, False, False),
    ],
)
def test_a_job_is_stranded_a_while_after_the_last_sign_of_its_gpu(
    db_session: Session, rows: Rows, waits: dt.timedelta, ran: dt.timedelta | None, worker: Any,
    columns: dict[str, Any], is_ill: bool, stranded: bool,
) -> None:  # fmt: skip
    jobs = [
        rows.job(**{"id": number, "queue": "gpu.h200@GPU-1", "created_at": func.now() - waits, **columns})
        for number in (90_001, 90_000)
    ]
    rows.run(gpu_uuid="GPU-1", origin="recorded", finished_at=func.now())
    rows.run(gpu_uuid="GPU-2", finished_at=func.now())
    rows.worker("gpu@b", gpu_uuid="GPU-2")
    if ran is not None:
        for before in (ran, 5 * AWAY):
            rows.run(gpu_uuid="GPU-1", finished_at=func.now() - before)
    if worker is not None:
        rows.worker("gpu@a", seen_at=worker)
    if is_ill:
        _quarantine(rows, "GPU-1")
    assert gpus.list_stranded_jobs(db_session) == ([each.id for each in reversed(jobs)] if stranded else [])


def test_the_confinements_and_needs_of_live_workers_are_listed_by_host(db_session: Session, rows: Rows) -> None:
    for name, host in (("1", "b"), ("2", "a"), ("3", "a"), ("4", "a"), ("7", "b")):
        toolchain = {"sandbox": "network" if name < "4" else "files", "as_root": f"reason {name}"}
        rows.worker(name, host=host, toolchain=toolchain, seen_at=LIVES)
    rows.worker("5", host="c", toolchain={"sandbox": "network", "as_root": "reason"}, seen_at=SILENT)
    rows.worker("6", host="d")
    assert gpus.list_confinements(db_session) == [(host, level) for host in "ab" for level in ("files", "network")]
    assert gpus.list_needs_of_root(db_session) == [("a", "reason 2"), ("b", "reason 1")]


def test_drivers_are_those_of_the_gpu_model_and_compilers_those_of_all_workers(db_session: Session, rows: Rows) -> None:
    rows.worker("1", toolchain={"driver": "580"}, seen_at=LIVES)
    rows.worker("2", toolchain={"driver": "", "compiler": ""})
    rows.worker("3", gpu_model="b200", toolchain={"driver": "590"})
    rows.worker("4", gpu_model=None, toolchain={"compiler": "13.4"})
    rows.worker("5", toolchain={"driver": "570", "compiler": "13.3"}, seen_at=SILENT)
    assert gpus.list_versions(db_session, GPU) == ({"580"}, {"13.4"})
