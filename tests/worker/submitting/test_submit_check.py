"""The GPU models of a check: those that are named, or all with a worker that was here lately."""

import pytest
from sqlalchemy import text, update

from tilewatch.db import fact_writes
from tilewatch.db.models import Worker
from tilewatch.db.session import session
from tilewatch.kernels import device
from tilewatch.worker.submitting.submit_check import NoGpuForCheck, _find_models

NEVER, LATELY = "no GPU worker of b200 was ever here to answer", "no GPU worker was here lately to answer"


@pytest.mark.parametrize(
    ("here", "named", "found"),
    [
        ((), (), LATELY),
        ((), ("b200",), NEVER),
        ((), ("sim",), ["sim"]),
        (("sim",), (), LATELY),
        (("h200",), (), ["h200"]),
        (("b200", "h200", "sim"), (), ["b200", "h200"]),
        (("b200", "h200"), ("h200", "sim", "h200"), ["h200", "sim"]),
        (("h200",), ("h200", "b200"), NEVER),
    ],
)
def test_a_check_is_for_the_named_models_or_for_all_real_ones_with_a_worker(
    database_url: str, here: tuple[str, ...], named: tuple[str, ...], found: list[str] | str
) -> None:
    with session(database_url) as opened:
        for slug in here:
            fact_writes.add_gpu_model(opened, **device.gpu_model(slug).stored)
            opened.add(Worker(name=slug, kind="gpu", host=slug, gpu_model=slug, gpu_uuid=f"GPU-{slug}", toolchain={}))
    if isinstance(found, str):
        with pytest.raises(NoGpuForCheck, match=found):
            _find_models(database_url, named)
    else:
        assert [model.slug for model in _find_models(database_url, named)] == found


def test_a_worker_that_left_answers_only_for_a_model_that_is_named(database_url: str) -> None:
    """A named model waits for its worker to come back."""
    with session(database_url) as opened:
        fact_writes.add_gpu_model(opened, **device.gpu_model("b200").stored)
        opened.add(Worker(name="w", kind="gpu", host="n", gpu_model="b200", gpu_uuid="GPU-1", toolchain={}))
        opened.flush()
        opened.execute(update(Worker).values(seen_at=text("now() - interval '400 days'")))
    assert [model.slug for model in _find_models(database_url, ("b200",))] == ["b200"]
    with pytest.raises(NoGpuForCheck, match=LATELY):
        _find_models(database_url, ())
