"""The checks of the smoke test of docker compose can fail."""

from types import SimpleNamespace
from typing import Any

import pytest

from tools.smoke.compose import Failed, dashboard_watched


def test_a_dashboard_that_never_answers_fails_the_smoke_test(capsys: pytest.CaptureFixture[str]) -> None:
    """It was printed as one that was away for 0 s."""
    servers: Any = SimpleNamespace(environment={"SMOKE_INSIDE": "false"})  # instead of curl
    with pytest.raises(Failed, match="did not answer once"), dashboard_watched(servers):
        pass
    assert capsys.readouterr().out == ""
