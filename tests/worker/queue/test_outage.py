"""While Postgres is away an act is tried again, ever more slowly, and its result is returned once it is committed."""

import errno

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tilewatch.kernels.compiling.store import StoreError
from tilewatch.worker.git.clones import FetchFailed
from tilewatch.worker.queue import outage
from tilewatch.worker.queue.outage import FIRST_WAIT_S, LONGEST_WAIT_S, NotNow, once_postgres_is_back, passing

NOBODY = "postgresql+psycopg://nobody@127.0.0.1:1/none"


class Given(Exception):
    """The test has seen enough."""


def test_each_wait_for_postgres_is_twice_as_long_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def sleep(wait_s: float) -> None:
        waits.append(wait_s)
        if len(waits) == 8:
            raise Given

    monkeypatch.setattr(outage.time, "sleep", sleep)
    with pytest.raises(Given):
        once_postgres_is_back(NOBODY, lambda opened: opened.execute(text("select 7")))
    assert waits[:3] == [FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S]
    assert waits == sorted(waits)
    assert waits[-2:] == [LONGEST_WAIT_S] * 2


def test_the_result_is_that_of_the_attempt_that_was_committed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(outage.time, "sleep", waits.append)

    def act(opened: Session) -> int:
        if len(waits) < 2:
            raise OperationalError("select 1", {}, Exception("the server closed the connection"))
        return int(opened.execute(text("select 7")).scalar_one())

    assert once_postgres_is_back(database_url, act) == 7
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (NotNow("the GPU is busy"), "the GPU is busy"),
        (StoreError("the store is away"), "the store is away"),
        (FetchFailed("no route to host"), "no route to host"),
        (OSError(errno.ENOSPC, "full", "/data/a"), "no space is left for /data/a"),
        (OSError(errno.EDQUOT, "full"), "no space is left for a file"),
        (OSError(errno.EACCES, "closed", "/data/a"), None),
        (ValueError("the kernel is wrong"), None),
    ],
    ids=lambda given: type(given).__name__,
)
def test_an_error_that_passes_by_itself_has_a_sentence_and_others_have_none(
    error: Exception, sentence: str | None
) -> None:
    assert passing(error) == sentence
