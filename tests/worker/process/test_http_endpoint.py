"""/healthz says ok or why not in one sentence, /metrics has the numbers that alarms are made of."""

import contextlib
import datetime as dt
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import select, text, update

from tests.worker.fixtures.celery_process import celery_worker, wait_for
from tests.worker.fixtures.compiled_sweep import add_gpu_worker, end_wait, ready_sweep
from tests.worker.fixtures.odd_requests import ask, list_harmless, list_refused
from tilewatch.db.lifecycle import jobs, quarantine, repositories
from tilewatch.db.lifecycle.quarantine import OpenQuarantine
from tilewatch.db.models import Commit, Job, Run, Submission, Worker
from tilewatch.db.server.free_ports import find_free_port
from tilewatch.db.session import session
from tilewatch.db.worker_reads import steps
from tilewatch.kernels.device import GPU_MODELS, SIMULATED, Gpu
from tilewatch.worker.context import Context, Simulation
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.gpu.sweep_to_measure import SweepToMeasure
from tilewatch.worker.process import health_checks, heartbeat
from tilewatch.worker.process.http_endpoint import Endpoint
from tilewatch.worker.process.http_server import SmallHandler, SmallServer
from tilewatch.worker.process.identity import Identity
from tilewatch.worker.process.lifecycle import health_port
from tilewatch.worker.process.prometheus import exposition, queue_metrics_of, worker_metrics
from tilewatch.worker.queue import dispatch
from tilewatch.worker.queue.reconcile import reconcile
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly


def asked(port: int, path: str = "/healthz") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def test_odd_requests_are_refused_or_harmless_and_none_holds_a_thread_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint("127.0.0.1", 0, lambda: (), lambda: (), lambda: b"")
    port = endpoint.start()
    assert port is not None
    try:
        with monkeypatch.context() as hasty:  # too hasty for a plain request on a busy machine
            hasty.setattr(SmallHandler, "timeout", SmallHandler.timeout / 100)
            for sent in (
                *list_refused("/metrics", "/healthz").values(),
                *list_harmless("/metrics").values(),
                b"",
                b"GET /",
            ):
                assert all(status == 200 or 400 <= status < 502 for status in ask(port, sent)), sent[:100]
        assert asked(port, "/metrics") == (200, "")
    finally:
        endpoint.stop()


def test_a_well_worker_says_ok_and_another_why_not() -> None:
    wrong: Sequence[str] = ()
    stuck: Sequence[str] = ()
    endpoint = Endpoint("127.0.0.1", 0, lambda: wrong, lambda: stuck, lambda: b"tilewatch_healthy 1.0\n")
    port = endpoint.start()
    assert port is not None
    try:
        assert asked(port) == (200, "ok\n")
        assert asked(port, "/metrics") == (200, "tilewatch_healthy 1.0\n")
        assert asked(port, "/") == (404, "expected /healthz, /livez or /metrics\n")
        wrong = ("Postgres is away",)
        assert asked(port) == (503, "Postgres is away\n")
        assert asked(port, "/livez") == (200, "ok\n"), "a restart does not bring Postgres back"
        stuck = ("it hangs",)
        assert asked(port, "/livez") == (503, "it hangs\n")
        assert Endpoint("127.0.0.1", port, lambda: (), lambda: (), lambda: b"").start() is None
    finally:
        endpoint.stop()


def test_many_clients_at_once_are_connected_before_one_is_answered() -> None:
    with SmallServer(("127.0.0.1", 0), SmallHandler) as server, contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(server.server_address, timeout=60))


def test_what_keeps_a_worker_from_working_is_said_without_a_password(settings: Settings, context: Context) -> None:
    well = health_checks.list_health_checks("judge", None, context, settings.home, lambda: 1.0, lambda: None)
    assert well() == ()
    away = replace(
        context, database_url="postgresql://me:hunter2@127.0.0.1:9/x", broker_url="redis://:hunter2@127.0.0.1:9/0"
    )
    unserved = health_checks.list_health_checks("tell", None, away, settings.home, lambda: 1.0, lambda: None)
    postgres, valkey = unserved()
    assert postgres.startswith("Postgres cannot be used at 127.0.0.1:9/x")
    assert valkey.startswith("Redis cannot be used at 127.0.0.1:9")
    assert "hunter2" not in postgres + valkey
    silent = health_checks.list_health_checks("judge", None, context, settings.home, lambda: 200.0, lambda: None)
    assert silent() == ("this worker has written no heartbeat for 200 s, at most 60 s were expected",)


def test_a_worker_is_alive_as_long_as_its_heartbeat_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: now_s))
    tried = threading.Event()
    away = "postgresql://me:hunter2@127.0.0.1:9/x"
    beating = heartbeat.Heartbeat(away, Identity("judge@n", "judge", "n"), refuses=lambda: tried.set() or "away")
    now_s = 1000.0
    assert health_checks.stuck(beating.tried_s()) == (
        "this worker has not tried to write a heartbeat for 1000 s, at most 120 s were expected",
    )
    beating.start()
    assert tried.wait(60)
    beating.stop()
    assert health_checks.stuck(beating.tried_s()) == ()
    assert beating.silent_s() == 1000.0


@pytest.mark.parametrize("kind", ["compile", "gpu", "judge"])
def test_a_store_that_cannot_be_read_is_a_trouble_of_every_worker(
    settings: Settings, context: Context, kind: str
) -> None:
    settings.home.mkdir(parents=True, exist_ok=True)
    (settings.home / "cubins").write_text("a file where the folder should be")
    (answer,) = health_checks.list_health_checks(kind, None, context, settings.home, lambda: 0.0, lambda: None)()
    assert answer.startswith("the cubin store file://")


def test_a_quarantine_is_a_trouble_of_that_gpus_worker(settings: Settings, context: Context) -> None:
    add_gpu_worker(context)
    with session(context.database_url) as opened:
        quarantine.begin(opened, gpu_uuid="GPU-1", gpu_model="h200", host="n", kind="xid", reason="Xid 79", evidence={})
    (answer,) = health_checks.list_health_checks("gpu", "GPU-1", context, settings.home, lambda: 0.0, lambda: None)()
    assert answer.startswith("GPU GPU-1 is in quarantine since ")
    assert answer.endswith(": Xid 79")
    assert health_checks.list_health_checks("gpu", "GPU-2", context, settings.home, lambda: 0.0, lambda: None)() == ()


def test_the_queues_vital_signs(settings: Settings, context: Context) -> None:
    add_gpu_worker(context)
    submit_nightly(settings, gpus=("h200",))
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(created_at=text("now() - interval '2 minutes'")))
        opened.execute(update(Worker).values(seen_at=text("now()")))
        quarantine.begin(opened, gpu_uuid="GPU-1", gpu_model="h200", host="n", kind="xid", reason="Xid 79", evidence={})
    answer = exposition(queue_metrics_of(context.database_url, settings))().decode()
    for line in (
        'tilewatch_jobs{kind="compile",state="queued"} 1.0',
        'tilewatch_jobs{kind="measure",state="waiting"} 2.0',
        'tilewatch_queue_depth{queue="compile"} 1.0',
        'tilewatch_workers{gpu_model="h200",kind="gpu"} 1.0',
        'tilewatch_gpus_quarantined{gpu_model="h200"} 1.0',
        "tilewatch_database_up 1.0",
    ):
        assert line in answer, answer
    (oldest,) = [line for line in answer.splitlines() if line.startswith("tilewatch_oldest_queued_seconds{")]
    assert 120 <= float(oldest.split()[-1]) < 600
    assert "tilewatch_last_good_nightly_timestamp_seconds{" not in answer
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(state="done", finished_at=text("'2026-11-21 04:00+00'")))
    answer = exposition(queue_metrics_of(context.database_url, settings))().decode()
    assert 'nightly_timestamp_seconds{gpu_model="h200",repository="watched"} 1.7952336e+09' in answer
    with session(context.database_url) as opened:
        opened.execute(update(Commit).values(repository="watched (branch under next)"))
    answer = exposition(queue_metrics_of(context.database_url, settings))().decode()
    assert "tilewatch_last_good_nightly_timestamp_seconds{" not in answer, "another toolchain's night hides no late one"
    assert (
        "tilewatch_database_up 0.0"
        in exposition(queue_metrics_of("postgresql://me:x@127.0.0.1:9/x", settings))().decode()
    )


def test_a_dead_repository_is_not_hidden_by_a_living_one(settings: Settings, context: Context) -> None:
    """The newest good nightly of a GPU model was that of any repository."""
    submit_nightly(settings, gpus=("h200",))
    with session(context.database_url) as opened:
        opened.execute(update(Job).values(state="done", finished_at=text("'2026-11-21 04:00+00'")))
        for name, ended in (("dead", "2026-11-01 04:00+00"), ("removed", "2026-11-02 04:00+00")):
            repositories.add(opened, name, f"https://example.org/{name}.git", "main")
            commit = Commit(repository=name, sha=name, position=1, committed_at=text("now()"), subject="Begin")
            opened.add(commit)
            opened.flush()
            night = Submission(key=name, reason="nightly", commit_id=commit.id, gpu_model="h200", measure=True)
            opened.add(night)
            opened.flush()
            jobs.add(opened, key=name, kind="judge", queue="judge", subject="s", payload={}, submission_id=night.id)
            opened.execute(update(Job).where(Job.key == name).values(state="done", finished_at=text(f"'{ended}'")))
        repositories.remove(opened, "removed")
    answer = exposition(queue_metrics_of(context.database_url, settings))().decode()
    ended_at = re.findall(r'nightly_timestamp_seconds{gpu_model="h200",repository="(.*)"} (.*)', answer)
    assert {name: float(at) for name, at in ended_at} == {"watched": 1.7952336e9, "dead": 1.7935056e9}


def test_what_lies_in_the_spool_is_counted(tmp_path: Path) -> None:
    for name in ("job-1.json", "job-2.json", "job-3.refused"):
        (tmp_path / name).write_text("{}")
    answer = exposition(worker_metrics("gpu", lambda: (), tmp_path))().decode()
    assert 'tilewatch_spool_files{state="waiting"} 2.0' in answer
    assert 'tilewatch_spool_files{state="refused"} 1.0' in answer
    assert "tilewatch_healthy 1.0" in answer
    assert "spool" not in exposition(worker_metrics("judge", lambda: ("away",), tmp_path))().decode()


@pytest.mark.parametrize(
    ("kind", "gpu", "port"),
    [
        ("compile", None, 9471),
        ("judge", None, 9472),
        ("tell", None, 9473),
        ("gpu", Gpu(3, "GPU-3", "NVIDIA H200", "580", GPU_MODELS[1]), 9483),
        ("gpu", Gpu(-1, "SIM-n", "Simulated GPU", "none", SIMULATED), 9480),
    ],
)
def test_each_worker_of_a_machine_has_a_port_of_its_own(tmp_path: Path, kind: str, gpu: Gpu | None, port: int) -> None:
    who = Identity("w@n", kind, "n", {}, gpu)
    assert health_port(Settings(home=tmp_path), who) == port
    nowhere = Settings(home=tmp_path, compile_health_port=0, judge_health_port=0, tell_health_port=0, gpu_health_port=0)
    assert health_port(nowhere, who) == 0


def test_a_worker_whose_gpu_falls_ill_says_so_leaves_its_queue_and_comes_back(
    settings: Settings, context: Context
) -> None:
    """The whole road with a real Celery worker of the simulated GPU."""
    job_id = ready_sweep(settings, context)
    port = find_free_port()
    with_port = settings.model_copy(
        update={
            "sim_seed": seed_that_falls_ill_once(context, job_id),
            "sim_ill": 0.5,
            "canary_every_s": 6.0,
            "gpu_health_port": port,
        }
    )
    log = settings.home / "gpu0@test.log"
    with celery_worker(with_port, "gpu.sim", "gpu0@test"):
        wait_for(lambda: "health endpoint" in log.read_text(), log)
        assert asked(port) == (200, "ok\n")
        send_again(context)
        wait_for(lambda: "is in quarantine since" in asked(port)[1], log)
        end_wait(context, job_id)
        wait_for(lambda: asked(port) == (200, "ok\n"), log)
        send_again(context)
        wait_for(lambda: runs(context) == 1, log)
        assert 'tilewatch_sweep_seconds_count{gpu_model="sim"} 2.0' in asked(port, "/metrics")[1]
    answer = log.read_text()
    for words in ("takes no sweeps", "Canceling queue gpu.sim", "takes sweeps again", "Started consuming from gpu.sim"):
        assert words in answer
    assert "Traceback" not in answer


def seed_that_falls_ill_once(context: Context, job_id: int) -> int:
    """OpenQuarantine in its first try of the sweep and not in the second, and well at the first canary."""
    with session(context.database_url) as opened:
        facts = steps.read_sweep_facts(opened, opened.get_one(Job, job_id).sweep_id or 0)

    def fits(seed: int) -> bool:
        backend = SimulatedGpu(Simulation(seed, 0.0, 0.5))
        gpu = backend.own_gpu()
        sweeps = (SweepToMeasure("job", facts, (), "library", (), times_ill=times) for times in (0, 1))
        first, second = (backend.measure(sweep, gpu, on_trial=lambda _: None).telemetry[1] for sweep in sweeps)
        (canary,) = backend.probe(gpu).canary(
            OpenQuarantine(1, gpu.uuid, "xid", "Xid 79", dt.datetime.now(dt.UTC), 0, 0.0)
        )
        return bool(first["xids"]) and not second["xids"] and not second["ecc_uncorrected"] and not canary["xids"]

    return next(seed for seed in range(10_000) if fits(seed))


def send_again(context: Context) -> None:
    with session(context.database_url) as opened:
        opened.execute(update(Job).where(Job.state == "queued").values(sent_at=None))
    lost = reconcile(context.database_url, context.broker_url)
    dispatch.send(dispatch.sender(context.broker_url), context.database_url, lost)


def runs(context: Context) -> int:
    with session(context.database_url) as opened:
        return len(opened.scalars(select(Run.id)).all())
