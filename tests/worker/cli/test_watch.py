"""`tilewatch watch` and `submit --repository` as people type them, and the environments that a worker reports."""

import json
from pathlib import Path

import pytest

from tests.worker.cli.conftest import Tilewatch
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.celery_process import celery_worker, wait_for
from tilewatch.db import fact_writes
from tilewatch.db.lifecycle.repositories import require_own_python
from tilewatch.db.session import session
from tilewatch.worker.settings import CHECKOUT, Settings

SCRIPT = """
import cuda.tile as ct
import torch

@ct.kernel
def unused(x): ...

@ct.kernel
def double(x, y):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (64,)) * 2)

def scale(x):
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0] // 64,), double, (x, y))
    return y

if __name__ == "__main__":
    scale(torch.randn(256, device="cuda"))
"""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return tiny_repository.make(tmp_path / "remote" / "other")


def test_a_repository_is_added_listed_submitted_and_removed(
    tilewatch: Tilewatch, repository: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWATCH_LIBRARY", "library")
    added = tilewatch("watch", "add", str(repository), "--name", "mine")
    assert added.startswith("mine is watched: branch main, cloned to ")
    assert "`tilewatch submit nightly --repository mine`" in added
    dropped = f"; {CHECKOUT} is not watched beside others, unless TILEWATCH_REPOSITORY names it"
    assert added.splitlines()[0].endswith(dropped), "it was watched until now, and nobody was told"
    others = tilewatch("watch", "add", str(other), "--name", "the other")
    assert "--repository 'the other'`" in others
    assert dropped not in others
    tilewatch("watch", "remove", "the other")
    tilewatch("watch", "add", str(other))
    rows = [line.split() for line in tilewatch("watch", "list").splitlines()[1:]]
    assert [row[:3] for row in rows] == [["mine", "main", str(repository)], ["other", "main", str(other)]]
    assert tilewatch("submit", "nightly", fails=True) == (
        f"several repositories are watched, so name the repository: mine, other{dropped}"
    )
    assert " of other on " in tilewatch("submit", "nightly", "--repository", "other")
    assert "a sweep of double on 1024" in tilewatch("submit", "sweep", "double", "1024", "--repository", "mine")
    assert tilewatch("watch", "remove", "other") == (
        "other is not watched any more; 2 jobs cancelled; its history stays, and `tilewatch watch add` takes it up "
        "again\n"
    )
    assert "other" not in tilewatch("watch", "list")
    assert tilewatch("watch", "remove", "other", fails=True).startswith("no repository 'other' was added")


def test_the_repository_of_the_settings_is_listed_with_its_folder(
    tilewatch: Tilewatch, repository: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tilewatch("watch", "add", str(other))
    monkeypatch.setenv("TILEWATCH_REPOSITORY", str(repository))
    first, second = tilewatch("watch", "list").splitlines()[1:]
    assert first.startswith("watched")
    assert "by its owner, not by Tilewatch" in first
    assert second.startswith("other")
    unknown = tilewatch("submit", "nightly", "--repository", "third", fails=True)
    assert unknown == "no repository 'third' is watched; those that are: watched, other"


def test_a_repository_without_a_watch_file_gets_a_proposal(tilewatch: Tilewatch, tmp_path: Path) -> None:
    folder = tmp_path / "remote" / "kernels"
    folder.mkdir(parents=True)
    tiny_repository.git(folder, "init", "--quiet", "--initial-branch", "main")
    folder.joinpath("scaling.py").write_text(SCRIPT)
    tiny_repository.git(folder, "add", ".")
    tiny_repository.git(folder, "commit", "--quiet", "--message", "Scale")
    added = tilewatch("watch", "add", str(folder))
    assert " is a proposal for 1 of its 2 kernels" in added
    assert "nights sweep it once main has a watch file, and `tilewatch submit nightly --repository kernels`" in added
    assert "the next night sweeps it" not in added
    (file,) = tmp_path.rglob("proposals/kernels-*.py")
    assert str(file) in added
    text = file.read_text()
    assert "return case(run=lambda: scaling_module.scale(x))" in text
    assert "# scaling.py: unused: no test, benchmark or script that runs without a GPU calls it" in text
    assert text.endswith('# [tool.tilewatch]\n# watch = "watch"\n# path = ["."]\n')


def test_a_worker_says_which_environments_its_node_has_for_host_code(
    tilewatch: Tilewatch, settings: Settings, other: Path, tmp_path: Path
) -> None:
    other.joinpath("packages.txt").write_text("numpy\n")
    other.joinpath("pyproject.toml").write_text('[tool.tilewatch]\nrequirements = "packages.txt"\n')
    tiny_repository.git(other, "add", ".")
    tiny_repository.git(other, "commit", "--quiet", "--message", "Name a package")
    plain, lacking = (tiny_repository.make(tmp_path / "remote" / name) for name in ("plain", "lacking"))
    for folder in (other, plain, lacking):
        tilewatch("watch", "add", str(folder))
    url = settings.connection().database_url
    with session(url) as opened:
        require_own_python(opened, "lacking")
    at, name = {"kind": "compile", "host": settings.node, "queues": ["record"]}, "record@test"
    with celery_worker(settings, "record", name):
        wait_for(lambda: len(json.loads(tilewatch("status", "--json"))["environments"]) == 2)
        with session(url) as opened:  # a process of the pool writes what it does
            fact_writes.write_heartbeat(opened, name, **at, toolchain={"driver": "580.1"}, doing="a sweep")
        shown = [line.split(maxsplit=2) for line in tilewatch("status").splitlines() if line.startswith(settings.node)]
    assert [(node, of, by.strip()) for node, of, by in shown] == [
        (settings.node, "lacking", "nothing: --python is missing"),
        (settings.node, "other", "Tilewatch's Python; packages of packages.txt: not installed yet"),
    ]


def test_an_address_with_a_token_is_refused_without_repeating_it(tilewatch: Tilewatch) -> None:
    refused = tilewatch("watch", "add", "https://x:hunter2@example.org/kernels.git", fails=True)
    assert "give it without" in refused
    assert "hunter2" not in refused
