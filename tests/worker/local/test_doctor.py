"""`tilewatch doctor` checks this machine as it is, and with parts missing."""

import os
import socket
from http import HTTPStatus
from pathlib import Path

import pytest

from tilewatch.db import session
from tilewatch.db.lifecycle import repositories
from tilewatch.kernels.children import gpu_user, sandbox
from tilewatch.kernels.device import GPU_MODELS, Gpu
from tilewatch.worker.local import doctor
from tilewatch.worker.local.doctor import report
from tilewatch.worker.local.doctor_servers import Finding
from tilewatch.worker.process.http_server import SmallHandler, serve
from tilewatch.worker.settings import Settings


def _settings(home: Path, **given: object) -> Settings:
    values = {"database_url": None, "broker_url": None, **given}
    return Settings(home=home, **values)  # type: ignore[arg-type]  # a test hands over what each test is about


def _found(settings: Settings) -> dict[str, Finding]:
    return {finding.name: finding for finding in report(settings)}


def test_everything_that_is_needed_is_looked_for(tmp_path: Path) -> None:
    names = set(_found(_settings(tmp_path)))
    assert names >= {"Python", "git", "setpriv", "repository", "tile compiler", "cuobjdump", "nvdisasm", "data folder"}
    assert names >= {"disk space", "dashboard", "CuPy", "CUPTI", "DeepGEMM", "nvcc"}


def test_the_level_of_the_sandbox_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "find_level", lambda: sandbox.Level.NETWORK)
    monkeypatch.setattr(sandbox, "find_gpu_level", lambda: sandbox.Level.NONE)
    found = _found(_settings(tmp_path))["sandbox"]
    assert (found.ok, found.found) == (
        None,
        "a library's code is kept from network; while it measures on a GPU, from nothing",
    )
    for asked, said in (("1", "its own process can measure is refused"), ("0", "may be measured by its own process")):
        monkeypatch.setenv(sandbox.REQUIRE_APART, asked)
        assert f"{said}, whatever its watch file says" in _found(_settings(tmp_path))["sandbox"].found
    monkeypatch.setenv(sandbox.REQUIRE, "1")
    assert _found(_settings(tmp_path))["sandbox"].ok is False
    monkeypatch.setattr(sandbox, "find_level", lambda: sandbox.Level.FULL)
    assert _found(_settings(tmp_path))["sandbox"].ok is True


@pytest.mark.parametrize(("refusal", "ok", "said"), [(None, True, "has a user of its own"), ("why", None, "root: why")])
def test_where_root_s_library_runs_as_root_on_a_gpu_is_named_with_the_reason(
    refusal: str | None, ok: bool | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "gpus", lambda: (Gpu(0, "GPU-0", "NVIDIA H200", "580.65", None),))
    monkeypatch.setattr(gpu_user, "find_refusal", lambda gpu, _: refusal if gpu == "GPU-0" else "another GPU")
    for is_root in (False, True):
        monkeypatch.setattr(gpu_user, "is_of_root", lambda is_root=is_root: is_root)
        found = _found(_settings(tmp_path)).get("users on GPU 0")
        assert (found is not None) == is_root
    assert found is not None
    assert (found.ok, found.ok or bool(found.fix)) == (ok, True)
    assert said in found.found


def test_whatever_is_wrong_comes_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    wrong = [finding for finding in report(_settings(tmp_path, repository=tmp_path)) if finding.ok is False]
    assert {finding.name for finding in wrong} >= {"git", "setpriv", "repository"}
    assert [finding.name for finding in wrong if not finding.fix] == []


def test_the_channels_are_named_or_what_is_wrong_with_them(tmp_path: Path) -> None:
    def channels(toml: str | None, **given: object) -> Finding:
        if toml is not None:
            (tmp_path / "notify.toml").write_text(toml)
        return _found(_settings(tmp_path, **given))["channels"]

    assert channels(None).ok is None
    assert channels("[channels.board]\nwebhook = 'https://board.example/hunter2'").found == "board"
    assert channels("[channels.commits]\nforge = 'owner/name'").fix == "set TILEWATCH_FORGE_TOKEN"
    assert channels("[channels.commits]\nforge = 'owner/name'", forge_token="t").ok  # noqa: S106 - a test's
    wrong = channels("[channels.board]\nwebhock = 'https://board.example/hunter2'")
    assert wrong.ok is False
    assert "hunter2" not in wrong.found


def test_the_policy_is_named_or_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    assert _found(_settings(tmp_path))["policy"].ok is True
    file = tmp_path / "bolder.json"
    missing = _found(_settings(tmp_path, policy=file))["policy"]
    assert (missing.ok, missing.found) == (False, f"the policy cannot be read: there is no file {file}")
    file.write_text("{}")
    assert _found(_settings(tmp_path, policy=file))["policy"] == Finding("policy", True, f"bolder ({file})")


def test_a_file_with_a_secret_that_others_may_read_is_named_with_the_way_to_close_it(tmp_path: Path) -> None:
    file = tmp_path / "notify.toml"
    file.write_text("")
    file.chmod(0o644)
    found = _found(_settings(tmp_path))["secrets"]
    assert (found.ok, found.found, found.fix) == (False, f"other users may read {file}", f"chmod 600 {file}")
    file.chmod(0o600)
    assert _found(_settings(tmp_path))["secrets"].ok is True


def test_a_cubin_store_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    assert _found(_settings(tmp_path))["cubin store"] == Finding("cubin store", True, (tmp_path / "cubins").as_uri())
    wrong = _found(_settings(tmp_path, store_url="sss://cubins"))["cubin store"]
    assert (wrong.ok, wrong.found) == (False, "the cubin store sss://cubins cannot be used: Protocol not known: sss")


def test_the_repositories_that_were_added_are_named_or_why_one_cannot_be_fetched(
    tmp_path: Path, database_url: str, broker_url: str
) -> None:
    settings = _settings(tmp_path, database_url=database_url, broker_url=broker_url)
    with session.session(database_url) as opened:
        for name in ("one", "two"):
            repositories.add(opened, name, f"https://example.org/{name}.git", "main")
    assert _found(settings)["repository"] == Finding("repository", True, "one, two")
    with session.session(database_url) as opened:
        repositories.write_fetch_failure(opened, "two", "two cannot be fetched: no route to host")
    failing = _found(settings)["repository"]
    assert (failing.ok, failing.found) == (False, "two cannot be fetched: no route to host")


def test_servers_that_run_are_named_by_their_address_alone(tmp_path: Path, database_url: str, broker_url: str) -> None:
    findings = _found(_settings(tmp_path, database_url=database_url, broker_url=broker_url))
    assert findings["Postgres"].ok, findings["Postgres"]
    assert findings["Redis"].ok, findings["Redis"]
    for url, name in ((database_url, "Postgres"), (broker_url, "Redis")):
        assert url.rpartition("@")[2].partition("/")[0].removeprefix("redis://") in findings[name].found
        assert "://" not in findings[name].found


def test_servers_that_do_not_answer_are_named_without_their_passwords(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: refused at once
        port = unused.getsockname()[1]
        findings = _found(
            _settings(
                tmp_path,
                database_url=f"postgresql://tilewatch:hunter2@127.0.0.1:{port}/tilewatch",
                broker_url=f"redis://:hunter2@127.0.0.1:{port}/0",
            )
        )
    for name in ("Postgres", "Redis"):
        assert findings[name].ok is False
        assert f"127.0.0.1:{port}" in findings[name].found
        assert "hunter2" not in findings[name].found


def test_a_machine_without_servers_is_no_fault(tmp_path: Path) -> None:
    finding = _found(_settings(tmp_path))["Postgres and Redis"]
    assert finding.ok is None
    assert "make up" in finding.found


def test_a_taken_port_is_reported_with_the_way_to_another(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        finding = _found(_settings(tmp_path, port=port))["dashboard"]
    assert finding == Finding(
        "dashboard", False, f"port {port}: Address already in use", "choose another with TILEWATCH_PORT"
    )


def test_another_tilewatch_at_these_ports_is_not_taken_for_this_one(
    tmp_path: Path, database_url: str, broker_url: str
) -> None:
    """No servers are known to these settings, so what answers at their ports cannot be theirs."""

    class Healthy(SmallHandler):
        def do_GET(self) -> None:
            self.answer(HTTPStatus.OK, "text/plain", b"ok")

    with serve(Healthy, "127.0.0.1") as other:
        port = other.server_port
        ports = {"port": port, "compile_health_port": port, "health_address": "127.0.0.1"}
        strange = _found(_settings(tmp_path, **ports))
        own = _found(_settings(tmp_path, database_url=database_url, broker_url=broker_url, **ports))
    assert strange["dashboard"].ok is False
    assert strange["dashboard"].found == f"port {port}: another Tilewatch answers"
    assert strange["compile worker"].ok is None
    assert "another Tilewatch answers" in strange["compile worker"].found
    assert (own["dashboard"].ok, own["compile worker"].ok) == (True, True)


def test_a_data_folder_below_a_file_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert _found(_settings(tmp_path / "file" / "home"))["data folder"].ok is False


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_of_somebody_else_is_not_writable() -> None:
    assert _found(_settings(Path("/tilewatch")))["data folder"].ok is False


def test_on_a_machine_with_a_gpu_what_measures_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(0, "GPU-1", "NVIDIA H200", "570.1", GPU_MODELS[1])
    monkeypatch.setattr(doctor, "gpus", lambda: (gpu,))
    findings = _found(_settings(tmp_path))
    assert (findings["GPU 0"].ok, findings["GPU 0"].fix) == (False, "install NVIDIA driver 580 or newer")
    assert None not in {findings[name].ok for name in ("CuPy", "CUPTI", "DeepGEMM", "nvcc")}
