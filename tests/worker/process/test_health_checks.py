"""What keeps a worker from working is named, with its place."""

import tempfile
from pathlib import Path

import pytest

from tests.worker.fixtures import small_disk
from tilewatch.worker.process import health_checks


@pytest.mark.parametrize("full", ["home", "temporary files"])
def test_a_disk_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    small = tmp_path / "small"
    small.mkdir()
    assert health_checks.disk(tmp_path / "not made yet") is None
    with small_disk.mount(small, "1m"):
        monkeypatch.setattr(tempfile, "tempdir", str(small if full == "temporary files" else tmp_path))
        home = small / "not made yet" if full == "home" else tmp_path
        place = home if full == "home" else small
        assert health_checks.disk(home) == f"only 1 MB are free for {place}, at least 268 MB are wanted"
