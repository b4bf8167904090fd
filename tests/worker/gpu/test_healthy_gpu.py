"""A step has the GPU of its worker only while the GPU is well, and learns at the end if it was not."""

import pytest
from sqlalchemy.dialects.postgresql import insert

from tilewatch.db.lifecycle import quarantine
from tilewatch.db.models import GpuModel
from tilewatch.db.session import session
from tilewatch.kernels.device import GpuMissing
from tilewatch.kernels.measuring.measure import MeasureFailed
from tilewatch.kernels.measuring.other_processes import GpuBusy
from tilewatch.kernels.measuring.replay import ReplayFailed
from tilewatch.worker.context import Context
from tilewatch.worker.gpu import quarantine as gpu_quarantine
from tilewatch.worker.gpu.healthy_gpu import FellIll, use_gpu
from tilewatch.worker.gpu.simulated import SimulatedGpu
from tilewatch.worker.queue.outage import NotNow


def fall_ill(context: Context, failure: Exception | None = None) -> None:
    gpu = SimulatedGpu(context.simulation).own_gpu()
    with session(context.database_url) as opened:
        opened.execute(insert(GpuModel).values(slug="sim", name="S", arch="sm_90").on_conflict_do_nothing())
        quarantine.begin(opened, gpu_uuid=gpu.uuid, gpu_model="sim", host="n", kind="xid", reason="Xid 79", evidence={})
    if failure is not None:
        raise failure


def fall_ill_for_a_while(context: Context) -> None:
    fall_ill(context)
    recover(context)


def recover(context: Context) -> None:
    with session(context.database_url) as opened:
        ill = quarantine.find_open(opened, SimulatedGpu(context.simulation).own_gpu().uuid)
        assert ill is not None
        quarantine.write_canary(opened, ill.id, "clean", clean=True)


def test_a_step_gets_the_gpu_and_how_often_it_was_ill(context: Context) -> None:
    for times_ill in (0, 1):
        with use_gpu(context, "sim") as own:
            assert own.gpu == SimulatedGpu(context.simulation).own_gpu()
            assert own.times_ill == times_ill
        fall_ill_for_a_while(context)


def test_a_gpu_that_is_ill_or_another_one_is_not_given(context: Context) -> None:
    with pytest.raises(NotNow, match="for GPU another"), use_gpu(context, "sim", "another"):
        pytest.fail("another GPU was asked for")
    fall_ill(context)
    with pytest.raises(NotNow, match=r"is in quarantine since .*: Xid 79") as ended, use_gpu(context, "sim"):
        pytest.fail("it is ill")
    assert not isinstance(ended.value, FellIll)


def test_a_gpu_that_fell_ill_meanwhile_is_named_at_the_end_even_if_it_is_well_again(context: Context) -> None:
    with pytest.raises(FellIll, match=r"is in quarantine since .*: Xid 79"), use_gpu(context, "sim"):
        fall_ill(context)
    recover(context)
    with pytest.raises(FellIll, match="was in quarantine meanwhile"), use_gpu(context, "sim"):
        fall_ill_for_a_while(context)


@pytest.mark.parametrize("failure", [MeasureFailed("it stopped"), ReplayFailed("a side is wrong")])
def test_what_fails_on_a_gpu_that_fell_ill_is_not_blamed_on_the_job(
    failure: Exception, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_quarantine, "NOTICED_S", 0.0)
    with pytest.raises(type(failure)), use_gpu(context, "sim"):
        raise failure
    with pytest.raises(FellIll), use_gpu(context, "sim"):
        fall_ill(context, failure)


@pytest.mark.parametrize("trouble", [GpuBusy("somebody's"), GpuMissing("gone")])
def test_a_gpu_that_is_in_use_or_gone_leaves_the_job_to_another_worker(trouble: Exception, context: Context) -> None:
    with pytest.raises(NotNow, match=str(trouble)), use_gpu(context, "sim"):
        raise trouble
