"""`tilewatch token`: a token is shown once, stored as a hash, listed without itself, and ends when it is revoked."""

import json

from sqlalchemy import text

from tests.worker.cli.conftest import Tilewatch
from tilewatch.db.lifecycle import tokens
from tilewatch.db.session import session
from tilewatch.worker.settings import Settings


def test_a_token_from_its_making_to_its_end(tilewatch: Tilewatch, settings: Settings) -> None:
    made = tilewatch("token", "add", "ci", "--may", "read", "--may", "check", "--gpu-seconds", "3600").strip()
    url = settings.connection().database_url
    with session(url) as opened:
        holder = tokens.find_holder(opened, token=made)
        assert holder is not None
        assert (holder.name, holder.rights, holder.gpu_s) == ("ci", ("check", "read"), 3600)
        assert tokens.find_holder(opened, token=made[:-1]) is None
        stored = str(opened.execute(text("select * from tokens")).all())
        assert made.removeprefix(tokens.PREFIX) not in stored
    (listed,) = json.loads(tilewatch("token", "list", "--json"))
    assert (listed["name"], listed["made_by"], listed["revoked_at"]) == ("ci", "grace", None)
    assert made not in tilewatch("token", "list")
    assert tilewatch("token", "revoke", "ci") == "the token ci is revoked\n"
    with session(url) as opened:
        assert tokens.find_holder(opened, token=made) is None
    assert "no token ci to revoke" in tilewatch("token", "revoke", "ci", fails=True)
    assert "choose another name" in tilewatch("token", "add", "ci", "--may", "read", fails=True)


def test_what_is_no_token_is_refused_in_a_sentence(tilewatch: Tilewatch) -> None:
    assert "is not a name for a token" in tilewatch("token", "add", "two words", "--may", "read", fails=True)
    assert "makes no sense" in tilewatch("token", "add", "ci", "--may", "read", "--gpu-seconds", "nan", fails=True)
    assert tilewatch("token", "list") == "there are no tokens; `tilewatch token add` makes one\n"
