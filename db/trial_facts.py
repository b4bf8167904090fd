"""Counts the compilations of a sweep's trials by outcome.

db/fact_writes.py stores the counts with the sweep when no trial waits any more. Otherwise a page would read the trials
of hundreds of sweeps, 500 each, all over the disk. Sweeps without stored counts are counted when read.
"""

from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, func, select
from sqlalchemy.dialects.postgresql import JSONB

from tilewatch.db.models import Compilation, Sweep, Trial


def count() -> ScalarSelect[dict[str, Any]]:
    """Returns a subquery that counts the trials of the enclosing query's sweep, as one JSON object. `settled` trials
    have a compilation, `spilling` trials use stack, `tma` trials load only by TMA, and `tensor_core` trials compute all
    products on Tensor Cores. `compile_s` is a sum. Medians and `compiler` are null if no trial is settled."""
    ok = Compilation.status == "ok"

    def counted(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.count().filter(condition)

    values: dict[str, ColumnElement[Any]] = {
        "trials": func.count(),
        "not_compiled": counted(Trial.status == "not_compiled"),
        "settled": func.count(Compilation.id),
        "compiled": counted(ok),
        "timeouts": counted(Compilation.status == "timeout"),
        "errors": counted(Compilation.status == "error"),
        "spilling": counted(Compilation.stack_bytes > 0),
        "most_stack_bytes": func.coalesce(func.max(Compilation.stack_bytes), 0),
        "tma": counted((Compilation.loads > 0) & (Compilation.tma_loads == Compilation.loads)),
        "tensor_core": counted((Compilation.mmas > 0) & (Compilation.tensor_core_mmas == Compilation.mmas)),
        "median_registers": func.percentile_cont(0.5).within_group(Compilation.registers),
        "compile_s": func.coalesce(func.sum(Compilation.compile_s), 0.0),
        "compiler": func.max(Compilation.compiler),
    }
    pairs = [each for name, value in values.items() for each in (name, value)]
    return (
        select(func.jsonb_build_object(*pairs, type_=JSONB))
        .select_from(Trial)
        .outerjoin(Compilation, Compilation.id == Trial.compilation_id)
        .where(Trial.sweep_id == Sweep.id)
        .correlate(Sweep)
        .scalar_subquery()
    )


def of_sweep() -> ColumnElement[dict[str, Any]]:
    """Returns the stored counts of the enclosing query's sweep, or else what `count` computes."""
    return func.coalesce(Sweep.trial_facts, count(), type_=JSONB)
