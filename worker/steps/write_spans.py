"""Stores the spans of a night's operators as series. A span is the time from an operator's first launch to the end of
its last launch."""

from sqlalchemy.orm import Session

from tilewatch.db import fact_writes
from tilewatch.db.models import Measurement, Run, Sweep
from tilewatch.db.worker_reads.judging import Scope, list_unstored_spans
from tilewatch.kernels.statistics import median_interval
from tilewatch.metrics import SPAN_METRICS, SpanMetric, name_series
from tilewatch.worker.measurement_rows import MEASURED_COLUMNS, Sampled, measurement_rows


def write(session: Session, scope: Scope) -> None:
    """Writes the spans of a night's runs. A second call changes nothing."""
    for metric in SPAN_METRICS:
        for sweep, run, measured in list_unstored_spans(session, scope, metric):
            _write(session, metric, sweep, run, measured)


def _write(session: Session, metric: SpanMetric, sweep: Sweep, run: Run, measured: Measurement) -> None:
    kernel, span_us = name_series(sweep.kernel, metric), measured.detail[f"{metric}_us"]
    sweep_id = fact_writes.add_sweep(
        session,
        **{name: getattr(sweep, name) for name in SWEEP_KEPT},
        kernel=kernel,
        space={"axes": sweep.space["axes"]},
        space_size=1,
    )
    fact_writes.add_winner(session, sweep_id, measured, median_interval(span_us).median)
    run_id = fact_writes.add_run(
        session,
        **{name: getattr(run, name) for name in RUN_KEPT},
        key=name_series(run.key, metric),
        sweep_id=sweep_id,
        sweep_gpu_s=0.0,
        tie=[],
    )
    detail = {"rounds": len(span_us)} | {name: each for name, each in measured.detail.items() if name in KEPT}
    sampled = Sampled(kernel, "kernel", measured.config_id, span_us, detail)
    fact_writes.add_measurements(session, {run_id: measurement_rows([sampled])})


SWEEP_KEPT = ("submission_id", "commit_id", "problem", "gpu_model", "arch", "source_sha256", "flops", "bytes")
RUN_KEPT = ("origin", *MEASURED_COLUMNS, "recording_id")
"""The columns that spans have in common with the sweep and the run of their operator."""

KEPT = ("parts_us", "library_runs_apart", "stated", "not_apart", "unchecked", "sandbox")
"""The run's details that its spans copy: how it was measured, and launch times with whose sum a span is compared."""
