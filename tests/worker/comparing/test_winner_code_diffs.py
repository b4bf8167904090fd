"""The code of a new winner is compared with the one before and with the next best config, once."""

import pytest
from sqlalchemy import select

from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.nights import do_nights
from tilewatch.db.models import CodeDiff, Run
from tilewatch.db.page_reads import evidence
from tilewatch.db.session import session
from tilewatch.kernels.compiling.store import CubinStore, StoreError
from tilewatch.worker.comparing import winner_code_diffs
from tilewatch.worker.comparing.winner_code_diffs import Compared
from tilewatch.worker.context import Context
from tilewatch.worker.settings import Settings

A_MINUTE_S = 60.0


def compare(context: Context, budget_s: float = A_MINUTE_S) -> Compared:
    return winner_code_diffs.compare_new_winners(context.database_url, context.store_url, budget_s)


def refuse(*_: object, **__: object) -> None:
    raise StoreError("the bucket cannot be reached")


def test_a_commit_s_line_and_its_instructions_are_kept_for_the_pages(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tiny_repository.git(settings.repository, "rev-parse", "HEAD").strip()
    second = tiny_repository.commit(settings.repository, "Multiply by 3", factor=3)
    context = do_nights(settings, first, second)
    assert compare(context, budget_s=-1.0) == Compared(0, 0), "no time, no run"
    with monkeypatch.context() as away:
        away.setattr(winner_code_diffs, "diff_cubins", refuse)
        away.setattr(CubinStore, "require_access", refuse)
        assert compare(context) == Compared(0, 0), "while the store is away, no run counts as compared"
    assert compare(context).runs == 4
    assert compare(context) == Compared(0, 0), "each run once"
    with session(context.database_url) as opened:
        newest = opened.scalars(select(Run.id).order_by(Run.id.desc())).first()
        assert newest is not None
        before = evidence.find_run_before(opened, newest)
        assert before is not None
        sides = []
        for run_id in (before, newest):
            run = evidence.find_run(opened, run_id)
            winner = evidence.list_samples(opened, run_id)[0].config_id
            assert run is not None
            assert winner is not None
            sides.append((run.sweep_id, winner, evidence.find_cubin(opened, run.sweep_id, winner)))
        (_, _, old), (sweep_id, winner, new) = sides
        diff = evidence.find_code_diff(opened, old, new)
        assert diff is not None
        line = 1 + tiny_repository.SOURCE[: tiny_repository.SOURCE.index("FACTOR")].count("\n")
        assert diff.sentence.startswith(f"double.py:{line} does something else (")
        assert diff.changes[0]["line"] == f"double.py:{line}"
        assert diff.instructions[0]["base"] != diff.instructions[0]["head"]
        next_best = evidence.find_next_best(opened, sweep_id, winner)
        assert next_best not in (None, winner)
        assert next_best is not None
        other = evidence.find_cubin(opened, sweep_id, next_best)
        assert evidence.find_code_diff(opened, other, new) is not None
        kept = opened.query(CodeDiff).count()
    again = tiny_repository.commit(settings.repository, "Say nothing new", factor=3)
    do_nights(settings, again)
    assert compare(context) == Compared(2, 0), "the same code needs no comparison"
    with session(context.database_url) as opened:
        assert opened.query(CodeDiff).count() == kept
