"""A machine without Debian's servers: the tests against them are left out, but never in CI without anybody noticing."""

from pathlib import Path

import pytest

from tests import debian_servers


@pytest.mark.parametrize(("ci", "exit_code"), [("true", 1), ("", 0)])
def test_what_is_left_out_is_said_and_fails_in_ci(
    ci: str, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(debian_servers, "POSTGRES", tmp_path)
    assert debian_servers.main(["touch", str(ran)]) == exit_code
    assert "NOT TESTED against Debian's Postgres 15 and Redis 7" in capsys.readouterr().err
    assert not ran.exists()
