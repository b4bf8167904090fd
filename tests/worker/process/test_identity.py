"""A worker that cannot measure or compile rightly does not start, and says what to do."""

import pytest

from tilewatch.kernels.children import gpu_user
from tilewatch.kernels.device import GPU_MODELS, OLDEST_DRIVER, Gpu
from tilewatch.kernels.toolchains.versions import compiler_version
from tilewatch.worker.context import Context
from tilewatch.worker.gpu import visible_gpu
from tilewatch.worker.gpu.visible_gpu import WrongWorker
from tilewatch.worker.process.identity import identify
from tilewatch.worker.settings import Settings

H200 = next(model for model in GPU_MODELS if model.slug == "h200")


def gpu(driver: str) -> Gpu:
    return Gpu(0, "GPU-0", "NVIDIA H200", driver, H200)


def test_an_old_driver_is_refused_with_the_one_to_install(monkeypatch: pytest.MonkeyPatch, context: Context) -> None:
    monkeypatch.setattr(visible_gpu, "gpus", lambda: (gpu("570.12"),))
    with pytest.raises(WrongWorker, match=rf"has driver 570\.12.*install NVIDIA driver {OLDEST_DRIVER} or newer"):
        identify("gpu0@n", ["gpu.h200"], context)


def test_a_gpu_worker_without_its_packages_is_refused(monkeypatch: pytest.MonkeyPatch, context: Context) -> None:
    monkeypatch.setattr(visible_gpu, "gpus", lambda: (gpu("580.65"),))
    monkeypatch.setattr(visible_gpu, "versions", lambda _: {})
    with pytest.raises(WrongWorker, match=r"CuPy, .* is not installed here.*make install"):
        identify("gpu0@n", ["gpu.h200"], context)
    monkeypatch.setattr(visible_gpu, "versions", lambda _: {"cupy-cuda13x": "14.2.0"})
    assert identify("gpu0@n", ["gpu.h200"], context).gpu == gpu("580.65")


@pytest.mark.parametrize(
    ("is_root", "refusal", "said"), [(True, "why", "why"), (True, None, None), (False, "why", None)]
)
def test_a_gpu_worker_says_why_host_code_is_root_there(
    is_root: bool, refusal: str | None, said: str | None, monkeypatch: pytest.MonkeyPatch, context: Context
) -> None:
    monkeypatch.setattr(visible_gpu, "gpus", lambda: (gpu("580.65"),))
    monkeypatch.setattr(visible_gpu, "versions", lambda _: {"cupy-cuda13x": "14.2.0"})
    monkeypatch.setattr(gpu_user, "is_of_root", lambda: is_root)
    monkeypatch.setattr(gpu_user, "find_refusal", lambda gpu, _: refusal if gpu == "GPU-0" else "another GPU")
    assert identify("gpu0@n", ["gpu.h200"], context).toolchain.get("as_root") == said


def test_a_worker_is_of_the_node_that_the_settings_name(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's host name is another one each time."""
    monkeypatch.setattr(visible_gpu, "gpus", lambda: (gpu("580.65"),))
    monkeypatch.setattr(visible_gpu, "versions", lambda _: {"cupy-cuda13x": "14.2.0"})
    named = Context.of(settings.model_copy(update={"node": "rack7"}))
    assert {identify("w@n", [queue], named).host for queue in ("gpu.h200", "compile", "judge")} == {"rack7"}


def test_a_compile_worker_with_another_compiler_than_the_fleets_is_refused(context: Context) -> None:
    assert identify("c@n", ["compile"], context, compiler_version()).toolchain["compiler"] == compiler_version()
    with pytest.raises(WrongWorker, match=r"but TILEWATCH_COMPILER wants cuda-tile 0\.9: run `make install`"):
        identify("c@n", ["compile"], context, "cuda-tile 0.9")
    assert identify("j@n", ["judge"], context, "cuda-tile 0.9").kind == "judge"


def test_a_worker_that_sends_messages_alone_is_of_another_kind_than_one_that_judges_too(context: Context) -> None:
    assert identify("t@n", ["tell"], context).kind == "tell"
    assert identify("j@n", ["tell", "judge"], context).kind == "judge"
