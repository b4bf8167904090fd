"""A language model's total is made of the newest run of each of its problems in one night."""

from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.db.fixtures.rows import KERNEL, Rows
from tilewatch.db.models import TOTAL, Verdict
from tilewatch.db.worker_reads import judging, totals


def _weigh(**weights: float) -> dict[str, dict[str, float]]:
    return {model: {"weight": weight, "parts": 12} for model, weight in weights.items()}


def test_the_parts_of_a_model_are_its_problems_with_their_newest_runs(db_session: Session, rows: Rows) -> None:
    night = rows.night()
    sweep = rows.sweep(night, parts_of=_weigh(decode=28.0, prefill=2.0))
    verdicts = []
    for number in (90_001, 90_002, 90_000):
        run = rows.run(sweep, id=number)
        rows.measure(run, 10.0, baseline="deepgemm")
        rows.measure(run, 5.0, role="baseline", implementation="copy")
        rows.measure(run, float(number), role="baseline", implementation="deepgemm")
        verdicts.append(rows.verdict(run, reason=f"of {number}"))
    without = rows.measured(night, problem="128", parts_of=_weigh(decode=1.0))
    rows.measured(night, problem="256")
    rows.measured(night, problem="512", parts_of=_weigh(decode=1.0), origin="simulated")
    rows.measured(problem="1024", parts_of=_weigh(decode=1.0))
    other = rows.measured(night, kernel="softmax", problem="1", parts_of=_weigh(decode=1.0))
    db_session.execute(update(Verdict).where(Verdict.run_id == 90_002).values(reason="judged again"))
    scope = judging.read_scope(db_session, without.id)
    parts = totals.list_parts(db_session, scope)
    assert {model: [each.run.id for each in found] for model, found in parts.items()} == {
        "decode": [without.id, 90_002, other.id],
        "prefill": [90_002],
    }
    assert parts["decode"][1].verdict is verdicts[1]
    first, last, _ = parts["decode"]
    assert (first.weight, first.parts, first.baseline_us, first.verdict) == (1.0, 12, (), None)
    assert (last.weight, last.parts, last.baseline_us, parts["prefill"][0].weight) == (28.0, 12, (90_002.0,), 2.0)
    assert last.verdict is not None
    assert (last.sweep.id, last.measured.role, last.verdict.reason) == (sweep.id, "kernel", "judged again")


def test_the_total_of_a_model_is_found_in_its_night(db_session: Session, rows: Rows) -> None:
    night = rows.night()
    rows.measured(night, problem="decode")
    rows.measured(night, kernel=TOTAL, problem="prefill")
    run = rows.measured(night, kernel=KERNEL)
    rows.measured(kernel=TOTAL, problem="decode")
    scope = judging.read_scope(db_session, run.id)
    assert totals.find_run_of_total(db_session, scope, "decode") is None
    total = rows.measured(night, kernel=TOTAL, problem="decode")
    assert totals.find_run_of_total(db_session, scope, "decode") == total.id
