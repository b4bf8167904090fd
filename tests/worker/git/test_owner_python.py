"""Two repositories that need two versions of a package, each recorded on one machine by a Python of its own."""

import datetime as dt
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.kernels.fixtures import needs_package, wheels
from tests.kernels.fixtures.owner_environment import find_packages, make_environment
from tests.worker.fixtures import tiny_repository
from tests.worker.fixtures.worker_context import do_all_jobs
from tilewatch.db.models import Config, Job, Sweep, Trial
from tilewatch.db.session import session
from tilewatch.db.worker_reads import repositories
from tilewatch.kernels.children import environments
from tilewatch.kernels.library_errors import PackageMissing
from tilewatch.worker.context import Context
from tilewatch.worker.git import owner_python, watched
from tilewatch.worker.git.owner_python import BadPython
from tilewatch.worker.git.watched import WatchedRepository
from tilewatch.worker.local import doctor
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit import submit_nightly

TILES = {"first": (16, 32), "second": (64,)}


@pytest.fixture
def pythons(tmp_path: Path) -> dict[str, Path]:
    made = {}
    for name, tiles in TILES.items():
        made[name] = make_environment(tmp_path / f"environment of {name}")
        needs_package.write_package(find_packages(tmp_path / f"environment of {name}"), *tiles)
    return made


def add(settings: Settings, folder: Path, python: Path | None) -> WatchedRepository:
    if not folder.exists():
        needs_package.write_repository(folder, watch=needs_package.WATCH_OF_PACKAGE)
        tiny_repository.git(folder, "init", "--quiet", "--initial-branch", "main")
        tiny_repository.git(folder, "add", ".")
        tiny_repository.git(folder, "commit", "--quiet", "--message", f"Double rows in {folder.name}")
    with session(settings.connection().database_url) as opened:
        return watched.add(opened, settings, str(folder), name=None, branch=None, python=python)


def find_state(node: Settings) -> bool | None:
    """Returns whether the doctor finds that the node's Python records the only repository."""
    with session(node.connection().database_url) as opened:
        (row,) = repositories.list_repositories(opened)
    return doctor._owner_python(node, row).ok


def test_each_repository_is_compiled_with_the_package_of_its_python(
    settings: Settings, context: Context, tmp_path: Path, pythons: dict[str, Path]
) -> None:
    for name, python in pythons.items():
        add(settings, tmp_path / name, python)
        submit_nightly(settings, repository=name, night=dt.date(2026, 11, 28))
    do_all_jobs(context)
    with session(context.database_url) as opened:
        trials = select(Sweep.repository, Config.params, Trial.status).join(Trial, Trial.sweep_id == Sweep.id)
        found = opened.execute(trials.join(Config, Config.id == Trial.config_id)).all()
    wanted = {(name, tile, "compiled") for name, tiles in TILES.items() for tile in tiles}
    assert {(name, params["tile"], status) for name, params, status in found} == wanted


def test_a_node_without_the_python_fails_its_job_with_what_to_do_and_its_operator_can_mend_it(
    settings: Settings, context: Context, tmp_path: Path, pythons: dict[str, Path]
) -> None:
    add(settings, tmp_path / "first", pythons["first"])
    submit_nightly(settings, repository="first")
    node = settings.model_copy(update={"home": tmp_path / "node"})
    do_all_jobs(Context.of(node))
    with session(context.database_url) as opened:
        (failure,) = opened.scalars(select(Job.failure).where(Job.state == "failed")).all()
    advice = f"`tilewatch watch add {tmp_path / 'first'} --name first --python PYTHON` here names one"
    assert failure is not None
    assert f"first is recorded by a Python of its owner's, which this node lacks: {advice}" in failure
    with pytest.raises(PackageMissing, match="which this node lacks"):
        submit_nightly(node, repository="first", commit="HEAD")
    assert find_state(node) is None
    added = add(node, tmp_path / "first", pythons["first"])
    assert added.clone is not None
    assert owner_python.find(added.clone) == pythons["first"]
    assert find_state(node) is True
    pythons["first"].unlink()
    assert find_state(node) is False


def list_states(node: Settings) -> list[bool | None]:
    """Returns whether the doctor finds that the node has the packages which the only repository names."""
    with session(node.connection().database_url) as opened:
        (row,) = repositories.list_repositories(opened)
    return [each.ok for each in doctor._packages(node, row)]


def test_the_packages_that_a_commit_names_are_installed_by_the_first_job_or_the_failure_is_pip_s(
    settings: Settings, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels.take_only(monkeypatch, tmp_path / "wheels", tmp_path / "home")
    folder = needs_package.write_repository(tmp_path / "first", watch=needs_package.WATCH_OF_PACKAGE)
    (folder / "pyproject.toml").write_text(needs_package.PROJECT + 'requirements = "packages.txt"\n')
    (folder / "packages.txt").write_text("host_package==1.0\n")
    tiny_repository.git(folder, "init", "--quiet", "--initial-branch", "main")
    tiny_repository.git(folder, "add", ".")
    tiny_repository.git(folder, "commit", "--quiet", "--message", "Name a package")
    add(settings, folder, None)
    assert list_states(settings) == [None]
    with pytest.raises(PackageMissing, match=r"the packages of packages.txt cannot be installed: .*host_package==1.0"):
        submit_nightly(settings, repository="first")
    code = "TILES = [16]\n\n\ndef same(value):\n    return value\n"
    wheels.write_wheel(tmp_path / "wheels", needs_package.PACKAGE, "1.0", {"host_package.py": code})
    monkeypatch.setattr(environments, "AGAIN_S", 0.0)
    submit_nightly(settings, repository="first")
    do_all_jobs(context)
    with session(context.database_url) as opened:
        assert set(opened.scalars(select(Trial.status))) == {"compiled"}
    assert list_states(settings) == [True]


def test_a_python_that_cannot_record_is_refused_before_anything_is_stored(settings: Settings, tmp_path: Path) -> None:
    bare = make_environment(tmp_path / "bare")
    for folder in find_packages(tmp_path / "bare").glob("cuda*"):
        folder.rename(tmp_path / folder.name)
    with pytest.raises(BadPython, match=r"bare.* records nothing: .*has no cuda-tile"):
        add(settings, tmp_path / "first", bare)
    assert "first" not in watched.list_names(settings.connection().database_url, settings)
