"""The demo shows what it promises: a planted regression, an improvement and a moved baseline, and a message of each."""

import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy import select

from tests.worker.fixtures.odd_requests import ask, post
from tilewatch.db.models import Alarm, Commit, Regression, RegressionSeries
from tilewatch.db.server.embedded import Servers
from tilewatch.db.session import session
from tilewatch.worker.local import demo, demo_repository
from tilewatch.worker.local.demo_messages import Message, open_mailbox


def test_twenty_nights_end_with_all_that_was_planted_and_a_message_of_each(
    tmp_path: Path, database_url: str, broker_url: str
) -> None:
    printed: list[str] = []
    with open_mailbox() as mailbox:
        settings = demo.make_settings(tmp_path, Servers(database_url, broker_url), 8501, mailbox)
        demo.play_nights(settings, mailbox, printed.append)
        with urllib.request.urlopen(mailbox.url) as page:  # noqa: S310 - our own http address
            shown = page.read().decode()
    with session(database_url) as opened:
        found = select(Regression.direction, Regression.kernel, Regression.state, Commit.subject).join(
            Commit, Commit.id == Regression.bad_commit_id
        )
        moved = select(Regression.kernel, RegressionSeries.size).join(Regression)
        sizes = {kernel: (size + 1) / demo.TIMES[kernel] for kernel, size in opened.execute(moved)}
        assert sizes == {kernel: pytest.approx(1, abs=0.02) for kernel in demo.TIMES}, "as large as planted"
        assert {tuple(row) for row in opened.execute(found)} == {
            ("regression", demo_repository.SLOWER, "new", demo_repository.SUBJECTS[demo_repository.SLOWER_AT]),
            ("improvement", demo_repository.FASTER, "new", demo_repository.SUBJECTS[demo_repository.FASTER_AT]),
        }
        assert opened.scalars(select(Alarm.kind).where(Alarm.closed_at.is_(None))).all() == ["baseline_changed"]
    subjects = [message.subject for message in mailbox.messages]
    changes = [f"simulated: {each} of demo-kernels on sim: {sign}" for each, sign in (("scale", "+"), ("shift", "-"))]
    for words in (*changes, "the baseline changed: DeepGEMM"):
        assert [subject for subject in subjects if subject.startswith(words)], subjects
        assert words in shown
    assert len([line for line in printed if line.startswith("night ")]) == demo_repository.COMMITS


def test_words_of_a_message_are_drawn_as_they_are() -> None:
    with open_mailbox() as mailbox:
        mailbox.messages.append(Message("<b>bold</b>", "a & b"))
        assert "&lt;b&gt;bold&lt;/b&gt;" in mailbox.draw()
        assert "a &amp; b" in mailbox.draw()


@pytest.mark.parametrize("body", ["", "[", "[1]", "7", '"text"', "[" * 100_000])
def test_what_is_no_message_is_refused(body: str) -> None:
    lengths = [len(body)] if body else [-1, "x"]
    with open_mailbox() as mailbox:
        for length in lengths:
            sent = post("/", f"Content-Length: {length}".encode(), body=body.encode())
            (status,) = ask(urlsplit(mailbox.url).port or 0, sent)
            assert (status, mailbox.messages) == (400, [])
