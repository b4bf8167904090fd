"""Counts what the compiler made of a sweep's trials.

The answer is kept with the sweep once none of its trials waits for its compilation (db/fact_writes.py writes it): a
page asks for hundreds of sweeps at once, and one has 500 trials, each with a compilation elsewhere on the disk. A sweep
without it, which still compiles or has none yet, is counted when somebody asks.
"""

from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, func, select
from sqlalchemy.dialects.postgresql import JSONB

from tilewatch.db.models import Compilation, Sweep, Trial


def count() -> ScalarSelect[dict[str, Any]]:
    """Selects one JSON object for the sweep of the enclosing query.

    `settled` have a compilation, of whatever outcome; `spilling` have stack; `tma` and `tensor_core` have all. Medians
    and `compiler` are null where nothing is settled. `compile_s` is a sum.
    """
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
        "median_code_bytes": func.percentile_cont(0.5).within_group(Compilation.code_bytes),
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
    """Selects what `count` says of the sweep, as it was kept where it was."""
    return func.coalesce(Sweep.trial_facts, count(), type_=JSONB)
