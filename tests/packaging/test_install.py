"""requirements/install.py, which runs before anything is installed: what it says, and that it repeats nothing."""

import hashlib
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "requirements" / "install.py"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module that would install into a temporary folder, on a machine where nobody is root."""
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "VENV", tmp_path / "venv")
    monkeypatch.setattr(module, "LISTS", tmp_path)
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    return module


def test_a_machine_without_a_suitable_python_is_told_which_are(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(install.Stop, match=r"needs Python 3\.11 to 3\.13, and this is Python \d"):
        install.use_another_python("product")


def test_a_missing_program_is_named_with_the_way_to_get_it(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(install.Stop, match=r"git is missing .*`sudo apt-get install git`"):
        install.need_program("git", "it is needed")


def test_a_python_without_ensurepip_and_pip_is_told_the_package(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(install.Stop, match=r"neither ensurepip nor pip: run `sudo apt-get install python3\.\d+-venv`"):
        install.make_venv()


def test_without_ensurepip_the_system_s_pip_fills_the_environment(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = importlib.util.find_spec
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else has("pip"))
    install.make_venv()
    python = str(install.VENV / "bin" / "python")
    assert install.pip() == [sys.executable, "-m", "pip", "--python", python]
    assert subprocess.run([python, "-c", ""], check=False).returncode == 0


def test_a_list_that_is_installed_is_not_installed_again(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    (install.LISTS / "base.txt").write_text("one==1 --hash=sha256:00\n")
    install.VENV.mkdir()
    runs: list[str] = []
    monkeypatch.setattr(install, "follow", lambda _, step, __: runs.append(step))
    install.install("base.txt", "the product")
    install.install("base.txt", "the product")
    assert len(runs) == 1


def test_a_list_that_changed_is_installed_again(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    (install.LISTS / "base.txt").write_text("one==2 --hash=sha256:00\n")
    install.VENV.mkdir()
    (install.VENV / ".installed-base.txt").write_text(hashlib.sha256(b"one==1 --hash=sha256:00\n").hexdigest())
    runs: list[str] = []
    monkeypatch.setattr(install, "follow", lambda _, step, __: runs.append(step))
    install.install("base.txt", "the product")
    assert len(runs) == 1


def test_a_failed_installation_is_one_sentence_and_is_tried_again(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    (install.LISTS / "base.txt").write_text("one==1 --hash=sha256:00\n")
    install.VENV.mkdir()
    monkeypatch.setattr(install, "pip", lambda: [sys.executable, "-c", "print('ERROR: no such package'); exit(1)"])
    for _ in range(2):
        with pytest.raises(install.Stop, match="installing the product failed: ERROR: no such package"):
            install.install("base.txt", "the product")


def test_a_port_that_is_in_use_is_named_before_the_installation() -> None:
    plan = subprocess.run(["make", "--dry-run", "up"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert plan.index("create_server") < plan.index("install.py product") < plan.index("tilewatch up\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = ["make", "--silent", "free-port", f"BIN={ROOT / 'nowhere'}"]
        environment = {**os.environ, "TILEWATCH_PORT": str(port)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout == f"port {port} cannot be used for the dashboard; set TILEWATCH_PORT to another\n"
        assert done.returncode != 0
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def test_it_wants_to_know_what_to_install() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "usage: python3 requirements/install.py product|dev\n")
