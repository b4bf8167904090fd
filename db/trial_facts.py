"""Counts the compilations of a sweep's trials by outcome. Finished sweeps store these counts, because pages would
otherwise read too many trials."""

from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, func, select
from sqlalchemy.dialects.postgresql import JSONB

from tilewatch.db.models import Compilation, Sweep, Trial


def count() -> ScalarSelect[dict[str, Any]]:
    """Returns a subquery that counts the trials of the enclosing query's sweep, as one JSON object."""
    ok = Compilation.status == "ok"

    def counted(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.count().filter(condition)

    values: dict[str, ColumnElement[Any]] = {
        "trials": func.count(),
        "not_compiled": counted(Trial.status == "not_compiled"),
        "settled": func.count(Compilation.id),  # have a compilation
        "compiled": counted(ok),
        "timeouts": counted(Compilation.status == "timeout"),
        "errors": counted(Compilation.status == "error"),
        "spilling": counted(Compilation.stack_bytes > 0),  # use stack
        "most_stack_bytes": func.coalesce(func.max(Compilation.stack_bytes), 0),
        # load only by TMA
        "tma": counted((Compilation.loads > 0) & (Compilation.tma_loads == Compilation.loads)),
        # compute all products on Tensor Cores
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
    """Returns the counts of the enclosing query's sweep, which are computed if they are not stored."""
    return func.coalesce(Sweep.trial_facts, count(), type_=JSONB)
