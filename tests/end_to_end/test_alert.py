"""From a commit to people: a real change is swept, judged, replayed and sent in words that one can act on."""

import datetime as dt
import re
from pathlib import Path

from sqlalchemy import select

from tests.worker.fixtures import git_history, tiny_repository
from tests.worker.fixtures.http_receiver import receiver
from tests.worker.fixtures.nights import do_nights
from tests.worker.fixtures.worker_context import settings_for
from tilewatch.db.models import Message, Regression
from tilewatch.db.session import session
from tilewatch.text import short_sha
from tilewatch.worker.notify.outbox import Outbox, write_and_send


def test_a_change_that_replays_confirmed_is_one_message_with_its_cause_and_the_way_to_repeat_it(
    tmp_path: Path, database_url: str, broker_url: str
) -> None:
    settings = settings_for(tmp_path / "home", tmp_path / "watched", database_url, broker_url)
    shas = git_history.make(tmp_path / "watched", git_history.ADD)
    do_nights(settings, *shas.values())
    with receiver() as board:
        about = '["regression", "improvement"]'
        file = settings.home / "notify.toml"
        file.write_text(f"[channels.board]\nwebhook = '{board.url}'\n[[routes]]\nto = ['board']\nabout = {about}\n")
        outbox = Outbox.of(settings)
        assert write_and_send(outbox, dt.datetime.now(dt.UTC)) == 1
        assert write_and_send(outbox, dt.datetime.now(dt.UTC)) == 0
        (asked,) = board.taken
    with session(database_url) as opened:
        regression = opened.scalars(select(Regression)).one()
        assert opened.scalars(select(Message.state)).all() == ["sent"]
    body = asked.json["body"]
    change = f"{100 * regression.size:+.1f} % time, {'slower' if regression.size > 0 else 'faster'}"
    since = f"since {short_sha(shas[git_history.ADD])} (2 series)"
    assert asked.json["subject"].endswith(f"{tiny_repository.KERNEL} of watched on sim: {change} {since}")
    assert f"Cause ({regression.category.replace('_', ' ')}): {regression.cause}" in body
    assert all(sentence in body for sentence in regression.explanation)
    assert re.match(r"code: double\.py:\d+ does something else \(addf added, ", regression.explanation[-1])
    first = "First bad commit" if regression.size > 0 else "First commit with it"
    assert f"{first}: {short_sha(shas[git_history.ADD])} {git_history.ADD}" in body
    assert f"git checkout {shas[git_history.ADD]}\n  python -m tilewatch.kernels sweep {tiny_repository.KERNEL}" in body
    assert f"Triage: {settings.dashboard_url}/regressions?regression={regression.id}" in body
