"""A worker's heartbeat: one transaction, and a GPU's model is written once, not at each beat."""

import threading

import pytest
from sqlalchemy import text

from tilewatch.db.session import session
from tilewatch.kernels.device import SIMULATED, Gpu
from tilewatch.worker.context import Context
from tilewatch.worker.process import heartbeat
from tilewatch.worker.process.heartbeat import Heartbeat
from tilewatch.worker.process.identity import Identity

GPU = Gpu(0, "GPU-7", "Simulated", "580", SIMULATED)
MODELS = text("select xmin::text from gpu_models")
SEEN = text("select xmin::text from workers")


def test_a_model_is_written_at_the_first_beat_and_again_where_it_went(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of a row that all GPU workers share lets the others wait."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.01)
    found: list[tuple[list[str], list[str]]] = []
    enough = threading.Event()

    def look() -> None:
        with session(context.database_url) as opened:
            found.append((list(opened.scalars(MODELS)), list(opened.scalars(SEEN))))
            if len(found) == 3:
                opened.execute(text("delete from workers"))
                opened.execute(text("delete from gpu_models"))
        if len(found) == 4:
            enough.set()

    beating = Heartbeat(context.database_url, Identity("gpu@n", "gpu", "n", {}, GPU, ("gpu.sim",)), look)
    beating.start()
    assert enough.wait(60)
    beating.stop()
    models, seen = zip(*found[:4], strict=True)
    assert len({*seen[0], *seen[1], *seen[2]}) == 3, "each beat writes the worker's row"
    assert models[0] == models[1] == models[2]
    assert len(models[3]) == 1
    assert models[3] != models[2]


def test_a_refusal_that_is_over_is_not_written_again(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker said for hours that it took no job, because the thread read its own words back."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.01)
    written: list[str | None] = []
    enough = threading.Event()

    def look() -> None:
        with session(context.database_url) as opened:
            written.append(opened.scalar(text("select doing from workers")))
        if len(written) == 4:
            enough.set()

    refuse = iter(["takes no job", "takes no job"])
    identity = Identity("gpu@n", "gpu", "n", {}, GPU, ("gpu.sim",))
    beating = Heartbeat(context.database_url, identity, look, lambda: next(refuse, None))
    beating.start()
    assert enough.wait(60)
    beating.stop()
    assert written[:4] == ["takes no job", "takes no job", None, None]
