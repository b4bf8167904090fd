"""A GPU that is ill is seen on the page of the workers."""

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from tests.dashboard.fixtures.app import APP, opened
from tests.db.fixtures import one_commit
from tilewatch.dashboard.panels.gpu_health import canary_figure
from tilewatch.db import session
from tilewatch.db.lifecycle import quarantine


def test_a_gpu_in_quarantine_is_named_with_its_reason(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with session.session(database_url) as writing:
        one_commit.submit(writing)
        one_commit.job(writing)
        for uuid, reason in (("GPU-1", "the driver reported Xid 79"), ("GPU-2", "well again")):
            quarantine.begin(
                writing, gpu_uuid=uuid, gpu_model="b200", host="node-a", kind="xid", reason=reason, evidence={}
            )
        over = quarantine.find_open(writing, "GPU-2")
        assert over is not None
        quarantine.write_canary(writing, over.id, "clean", clean=True)
    monkeypatch.delenv("TILEWATCH_HOME", raising=False)
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", database_url)
    page = opened(AppTest.from_file(str(APP), default_timeout=60), "jobs")
    (sentence,) = [error.value for error in page.error]
    assert sentence.startswith("GPU `GPU-1` (b200) of node-a takes no sweeps since")
    assert sentence.endswith("the driver reported Xid 79.")


def test_the_two_canaries_of_a_gpu_do_not_look_alike() -> None:
    canaries = pd.DataFrame(
        [{"gpu_uuid": "GPU-1", "gpu_name": "NVIDIA B200", "host": "node-a", "compute_us": 1.0, "memory_us": 2.0}]
    ).assign(measured_at=pd.Timestamp("2026-11-23", tz="UTC"))
    first, second = canary_figure(canaries, pd.DataFrame()).data
    assert first.line.color == second.line.color
    assert first.line.dash != second.line.dash
