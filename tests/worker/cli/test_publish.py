"""`tilewatch publish`: a site from recordings alone, and one below the other."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
STORY = ROOT / "recordings" / "story" / "h200.jsonl.gz"


def publish(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the command on a machine where no Tilewatch runs."""
    line = [sys.executable, "-m", "tilewatch.worker.cli.main", "publish", *map(str, arguments)]
    environment = {"TILEWATCH_HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(line, cwd=home, env=environment, capture_output=True, text=True, check=False)


def read(site: Path) -> list[dict[str, Any]]:
    content = json.loads(gzip.decompress((site / "site.json.gz").read_bytes()))
    return list(content["parties"])


def test_recordings_alone_become_a_site_with_judged_changes(tmp_path: Path) -> None:
    done = publish(tmp_path, "site", STORY, "--name", "our lab")
    assert (done.returncode, done.stderr) == (0, "")
    assert "imported 6 runs recorded on h200-node" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(f"open {tmp_path / 'site' / 'index.html'}")
    (party,) = read(tmp_path / "site")
    assert (party["name"], party["sections"][0]["repository"]) == ("our lab", "tilewatch-story")
    assert len(list((tmp_path / "site").glob("regression-*.html"))) == 3, "the planted ones, judged"
    assert len(list((tmp_path / "site").glob("tuned-*.html"))) == 1
    below = publish(tmp_path, "both", STORY, "--merge", tmp_path / "site", "--repository", "tilewatch-story")
    assert below.returncode == 0, below.stderr
    assert [each["name"] for each in read(tmp_path / "both")][1:] == ["our lab"]


def test_what_is_missing_is_named_before_anything_is_written(tmp_path: Path) -> None:
    done = publish(tmp_path, "site", STORY, "--repository", "nope")
    assert done.returncode == 2
    assert done.stderr == "tilewatch: no repository 'nope' has results; those that have: tilewatch-story\n"
    assert not (tmp_path / "site").exists()
    assert publish(tmp_path, "site").returncode == 2, "there is no database"
