"""Whether root's children that run a library on a GPU have users of their own: tried once, on the fake GPU, with real
processes of real users."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.fixtures.fake_gpu import MODULES, ROOT, UUID, install_for_children
from tilewatch.kernels.children import compile_cache, gpu_user, sandbox
from tilewatch.kernels.children.child_process import ChildDied, ChildProcess
from tilewatch.kernels.children.sandbox import SandboxMissing

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot make another one")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    install_for_children(monkeypatch)
    monkeypatch.delenv(sandbox.SWITCH, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    gpu_user.find_refusal.cache_clear()
    yield tmp_path / "home"
    gpu_user.find_refusal.cache_clear()


REPORT = """
import getpass, os
def attempt(act):
    try:
        return str(act())
    except OSError as error:
        return type(error).__name__
kept = os.path.expanduser("~/compiled")
found = {
    "user": os.getuid(),
    "name": getpass.getuser(),
    "home": os.environ["HOME"],
    "of the child before": attempt(lambda: open(kept).read()),
    "compiles": attempt(lambda: open(kept, "a").write("x")),
    "into CuPy's": attempt(lambda: open(os.environ["CUPY_CACHE_DIR"] + "/kernel.cubin", "a").write("x")),
    "shares": attempt(lambda: open(f"{OTHERS}-not", "w").write("x")),
    "shares a folder": attempt(lambda: os.makedirs(f"{OTHERS}-not-folder/inner")),
    "of others": attempt(lambda: open(OTHERS, "r+")),
    "name of a thread": attempt(lambda: open(f"/proc/self/task/{os.getpid()}/comm", "w").write("x")),
}
raise RuntimeError(f"found {found} end")
"""


@pytest.fixture
def others() -> Iterator[Path]:
    """A file in shared memory that root's other processes use. What a library of root leaves beside it is deleted."""
    path = gpu_user.SHARED_FILES / f"tilewatch-test-of-others-{os.getpid()}"
    path.write_text("theirs")
    yield path
    path.unlink()
    Path(f"{path}-not").unlink(missing_ok=True)
    shutil.rmtree(f"{path}-not-folder", ignore_errors=True)


def run_library(folder: Path, others: Path) -> dict[str, Any]:
    """What a library finds that runs on the GPU."""
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text("[tool.tilewatch]\n")  # its files may import what they like
    (folder / "look.py").write_text(f"OTHERS = {str(others)!r}\n{REPORT}")
    child = ChildProcess("library", library=folder, environment={"CUDA_VISIBLE_DEVICES": UUID})
    with pytest.raises(ChildDied) as died:
        child.ask({"ask": "import", "library": str(folder), "others": []}, deadline_s=60)
    found: dict[str, Any] = eval(str(died.value).partition("found ")[2].partition(" end")[0])  # noqa: S307
    return found


def test_a_library_on_a_gpu_has_a_user_who_keeps_what_its_commit_compiled_and_leaves_nothing_else(
    tmp_path: Path, others: Path, home: Path
) -> None:
    compiled = home / ".cupy" / "kernel_cache" / "kernel.cubin"
    compiled.parent.mkdir(parents=True)
    compiled.write_text("ours")
    first, again, other = (run_library(tmp_path / name, others) for name in ("a", "a", "b"))
    assert first["user"] >= sandbox.FIRST_GPU_USER
    assert first["user"] == again["user"] != other["user"]
    wanted = {"compiles": "1", "into CuPy's": "1", "shares": "1", "shares a folder": "None", "name of a thread": "1"}
    for each in (first, again, other):
        assert {name: each[name] for name in wanted} == wanted
        assert each["of others"] == "PermissionError"
        assert each["name"] == "tilewatch", "PyTorch names a folder so"
    assert [each["of the child before"] for each in (first, again, other)] == [
        "FileNotFoundError",
        "x",
        "FileNotFoundError",
    ], "what another commit compiled is not loaded"
    assert compiled.read_text() == "ours"
    users = {first["user"], other["user"]}
    assert [each for each in gpu_user.SHARED_FILES.iterdir() if each.lstat().st_uid in users] == []


def test_where_another_child_holds_its_home_a_library_compiles_into_a_folder_of_its_own(
    tmp_path: Path, others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "open_home", lambda *_, **__: None)
    found = [run_library(tmp_path / "a", others) for _ in range(2)]
    assert [each["into CuPy's"] for each in found] == ["1", "1"]
    assert found[0]["home"] != found[1]["home"]


def test_what_one_child_shares_stays_until_the_last_of_its_user_ends(tmp_path: Path) -> None:
    libraries = {"library": tmp_path, "environment": {"CUDA_VISIBLE_DEVICES": UUID}}
    one, other = ChildProcess("library", **libraries), ChildProcess("library", **libraries)
    assert one._home is not None
    user = sandbox.name_user(one._home.folder)
    shared = gpu_user.SHARED_FILES / f"tilewatch-test-shared-{os.getpid()}"
    shared.touch()
    os.chown(shared, user, user)
    one.close()
    assert shared.exists()
    other.close()
    assert not shared.exists()


OF_ANOTHER_USER = """
def open_handle(handle):
    if os.stat(handle.rstrip(b"\\0")).st_uid != os.geteuid():
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: of another user")
    return open_own(handle)
open_own, cuda.runtime.ipcOpenMemHandle = cuda.runtime.ipcOpenMemHandle, open_handle
"""
NO_DEVICE = """
def asarray(values):
    if os.geteuid():
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return fake.asarray(values)
"""
NO_CUPTI = """
fake.gpu.cupti = "missing" if os.geteuid() else "works"
"""
OTHER_NUMBERS = """
def asarray(values):
    return fake.asarray([0 * each for each in values])
"""


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (OF_ANOTHER_USER, "cannot be copied from its process: cudaErrorInvalidResourceHandle: of another user"),
        (NO_DEVICE, "cudaErrorNoDevice: no CUDA-capable device is detected"),
        (OTHER_NUMBERS, "CUDA passed other numbers on from one user to another"),
        ("raise ImportError('no CuPy here')", "no CuPy here"),
        (NO_CUPTI, "its timer would be events and not cupti"),
    ],
)
def test_where_a_driver_refuses_it_the_library_runs_as_root_and_the_log_says_why(
    fault: str, reason: str, tmp_path: Path, others: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    fake = "tests.kernels.fixtures.fake_gpu.modules.cupy"
    (modules / "cupy.py").write_text(f"import os\nfrom {fake} import *\nimport {fake} as fake\n{fault}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (modules, MODULES, ROOT))))
    with caplog.at_level(logging.WARNING):
        refusal = gpu_user.find_refusal(UUID, ChildProcess)
    assert refusal is not None
    assert reason in refusal
    assert f"commits' host code runs as root on GPU {UUID}: {refusal}" in caplog.text
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (MODULES, ROOT))))
    found = run_library(tmp_path / "a", others)
    assert (found["user"], found["compiles"], found["into CuPy's"]) == (0, "1", "1")


def test_a_child_that_stays_root_though_it_was_given_a_user_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "name_user", lambda _: 0)
    assert gpu_user.find_refusal(UUID, ChildProcess) == "a child that should have had another user was still root"


def test_no_request_of_the_trial_waits_longer_than_the_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A driver that hangs in one process must not stop the worker."""
    deadlines_s: list[float] = []

    class Trial:
        def __init__(self, role: str, *, environment: dict[str, str]) -> None:
            self.given: dict[str, Any] = {"timer": "cupti", "user": role, "shared": "a handle"}
            assert environment == {"CUDA_VISIBLE_DEVICES": UUID}

        def begin(self, request: dict[str, Any]) -> None:
            assert request == {"ask": "start"}

        def finish(self, *, deadline_s: float) -> dict[str, Any]:
            deadlines_s.append(deadline_s)
            return self.given

        def ask(self, request: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
            deadlines_s.append(deadline_s)
            numbers.extend(request.get("numbers", ()))
            return {**self.given, "numbers": numbers}

        def close(self) -> None:
            closed.append(self)

    numbers, closed = list[int](), list[Trial]()
    monkeypatch.setattr(sandbox, "find_need_of_root", lambda: None)
    assert gpu_user.find_refusal(UUID, Trial) is None
    assert not caplog.records, "nothing is wrong"
    assert deadlines_s == [gpu_user.DEADLINE_S] * 4
    assert len(set(closed)) == 2


@pytest.mark.parametrize("error", [OSError("no file is left"), SandboxMissing("no file is left")])
def test_a_trial_that_cannot_start_is_a_reason_to_stay_root(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sandbox, "find_need_of_root", lambda: None)
    assert gpu_user.find_refusal(UUID, fail) == "no file is left"


def test_shared_files_of_one_user_are_removed_and_not_what_links_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, target = tmp_path / "shared", tmp_path / "target"
    monkeypatch.setattr(gpu_user, "SHARED_FILES", shared)
    (shared / "folder" / "inner").mkdir(parents=True)
    target.mkdir()
    (shared / "link").symlink_to(target)
    for name in ("file", "of others"):
        (shared / name).touch()
    user = sandbox.FIRST_GPU_USER
    for name in ("folder", "link", "file"):
        os.chown(shared / name, user, user, follow_symlinks=False)
    gpu_user.remove_shared_files(user)
    assert [each.name for each in shared.iterdir()] == ["of others"]
    assert target.is_dir()


def test_it_is_tried_once_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(gpu_user, "_try", lambda gpu, _: tried.append(gpu))
    for gpu in (UUID, "GPU-1", UUID):
        child = ChildProcess("library", environment={"CUDA_VISIBLE_DEVICES": gpu})
        child.close()
    assert tried == [UUID, "GPU-1"]


def test_nothing_is_tried_where_the_container_has_no_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "find_need_of_root", lambda: "this container has no other users")
    monkeypatch.setattr(gpu_user, "_try", None)
    assert gpu_user.find_refusal(UUID, ChildProcess) == "this container has no other users"


@pytest.mark.parametrize(("user", "switch"), [(1000, ""), (0, "off")])
def test_an_ordinary_user_s_child_and_one_without_a_sandbox_have_the_parent_s_user(
    user: int, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sandbox.SWITCH, switch)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert not gpu_user.is_of_root()


def test_a_device_that_is_closed_to_its_user_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.kernels.fixtures import fake_gpu

    fake_gpu.install(monkeypatch)
    from tilewatch.kernels.gpu import user_trial
    from tilewatch.kernels.library_errors import LibraryError

    monkeypatch.setattr(user_trial, "_list_devices", lambda: [Path("/dev/nvidia0"), Path("/dev/null")])
    with pytest.raises(LibraryError, match=r"its user may not read and write /dev/nvidia0$"):
        user_trial.answer({"ask": "share", "numbers": [1]})
