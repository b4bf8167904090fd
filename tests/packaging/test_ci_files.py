"""The files for other people's CI: they follow the published schemas, are printed as they are, and their steps run."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from tests.packaging.fixtures.ci_runner import Finished, GithubRunner, clone, run_gitlab_job
from tests.worker.fixtures import tiny_repository
from tilewatch.worker.cli.main import cli
from tilewatch.worker.settings import Settings

ROOT = Path(__file__).parents[2]
GITHUB, GITLAB = ROOT / "docs/use/ci/github.yml", ROOT / "docs/use/ci/gitlab.yml"
GITHUB_PAGES, GITLAB_PAGES = ROOT / "docs/use/ci/github-pages.yml", ROOT / "docs/use/ci/gitlab-pages.yml"
STORY = ROOT / "recordings" / "story" / "h200.jsonl.gz"
OURS = ROOT / ".github/workflows/test.yml"
ACTION, HOOKS = ROOT / "action/action.yml", ROOT / ".pre-commit-hooks.yaml"
WITHOUT_GPU = pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a GPU")

SOURCE = tiny_repository.SOURCE.replace("(64, 128, 256, 96)", "(64, 128)").replace(', parse("2048"))', ",)")
assert 'problems=(parse("1024"),)' in SOURCE

INSTALL = """import pathlib, shutil, sys
assert sys.argv[1:] == ["product"]
(pathlib.Path(__file__).parents[1] / ".venv" / "bin").mkdir(parents=True)
shutil.copy("{tilewatch}", pathlib.Path(__file__).parents[1] / ".venv" / "bin")
"""
"""Stands for requirements/install.py, which would take minutes; tests/packaging/test_install.py is about it."""


@pytest.fixture
def tilewatch(tmp_path: Path) -> Path:
    """The command, in a folder of its own."""
    program = tmp_path / "installed" / "tilewatch"
    program.parent.mkdir()
    start = "from tilewatch.worker.cli.main import main; main()"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def source(tmp_path: Path, tilewatch: Path) -> Path:
    """A repository of Tilewatch with this checkout's action, and an installer that takes no time."""
    folder = tmp_path / "tilewatch-source"
    shutil.copytree(ROOT / "action", folder / "action")
    (folder / "requirements").mkdir()
    (folder / "requirements" / "install.py").write_text(INSTALL.format(tilewatch=tilewatch))
    tiny_repository.git(folder, "init", "--quiet", "--initial-branch", "main")
    tiny_repository.git(folder, "add", ".")
    tiny_repository.git(folder, "commit", "--quiet", "--message", "Tilewatch")
    return folder


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """HEAD is the merge of a branch that triples where main doubles; main has a newer commit that the branch lacks."""
    folder = tmp_path / "watched"
    library = folder / "kernels" / "library"
    library.mkdir(parents=True)
    tiny_repository.git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, library / "double.py", SOURCE.replace("FACTOR", "2.0"))
    tiny_repository.git(folder, "switch", "--quiet", "--create", "branch")
    commit(folder, library / "double.py", SOURCE.replace("FACTOR", "3.0").replace("* 3.0)", "* 3.0 + 1.0)"))
    tiny_repository.git(folder, "switch", "--quiet", "main")
    commit(folder, folder / "README", "Doubles numbers.")
    tiny_repository.git(folder, "merge", "--quiet", "--no-ff", "--message", "Merge", "branch")
    return folder


def commit(folder: Path, file: Path, text: str) -> None:
    file.write_text(text)
    tiny_repository.git(folder, "add", ".")
    tiny_repository.git(folder, "commit", "--quiet", "--message", f"Change {file.name}")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a bare runner: git and Python, and no Tilewatch on PATH."""
    folders = [each for each in os.environ["PATH"].split(os.pathsep) if not (Path(each) / "tilewatch").exists()]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TILEWATCH_", "GIT_"))}
    return {**kept, "PATH": os.pathsep.join(folders), "TILEWATCH_HOME": str(tmp_path / "home")}


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.github-workflows", GITHUB),
        ("vendor.github-workflows", OURS),
        ("vendor.github-actions", ACTION),
        ("vendor.gitlab-ci", GITLAB),
        ("vendor.github-workflows", GITHUB_PAGES),
        ("vendor.gitlab-ci", GITLAB_PAGES),
    ],
    ids=["workflow", "ours", "action", "gitlab", "pages", "gitlab pages"],
)
def test_a_file_follows_its_published_schema(schema: str, file: Path) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_our_own_workflow_runs_what_any_ci_runs() -> None:
    steps = yaml.safe_load(OURS.read_text())["jobs"]["test"]["steps"]
    assert steps[-1]["run"] == ".ci/run"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_no_variable_of_the_files_is_an_unknown_setting() -> None:
    """A misspelt one would be passed over in silence."""
    settings = {f"TILEWATCH_{name}".upper() for name in Settings.model_fields}
    for variables in (
        yaml.safe_load(GITHUB.read_text())["env"],
        {name: 0 for name in yaml.safe_load(GITLAB.read_text())[".tilewatch"]["variables"] if name != "GIT_DEPTH"},
    ):
        assert variables.keys() <= settings


def run_github(
    job: str, folder: Path, watched: Path, source: Path, environment: dict[str, str]
) -> tuple[Finished, Path]:
    # PyYAML reads the key `on` as True, which is nothing to us.
    variables = {"TILEWATCH_SOURCE": "example/tilewatch", "TILEWATCH_REF": ""}
    runner = GithubRunner(folder / "runner", watched, {"example/tilewatch": source}, variables, environment)
    runner.folder.mkdir()
    return runner.run_job(yaml.safe_load(GITHUB.read_text()), job), runner.workspace


def test_the_steps_of_the_github_job_compare_the_merge_with_main(
    tmp_path: Path, watched: Path, source: Path, environment: dict[str, str]
) -> None:
    done, workspace = run_github("static", tmp_path, watched, source, environment)
    assert done.code == 0, done.output
    assert (workspace / ".tilewatch" / ".venv" / "bin" / "tilewatch").exists(), "Tilewatch was not installed"
    shas = [tiny_repository.git(watched, "rev-parse", each)[:10] for each in ("main^1", "main")]
    assert f"### Tilewatch: fine ({shas[0]} .. {shas[1]})" in done.summary
    assert "| double | 1024 sm_90 | other machine code" in done.summary
    assert f"Repeat it: `tilewatch compare {shas[0]}..{shas[1]} --static`" in done.summary


def test_a_head_that_does_not_compile_fails_the_job_and_its_summary_says_why(
    tmp_path: Path, watched: Path, source: Path, environment: dict[str, str]
) -> None:
    file = watched / "kernels" / "library" / "double.py"
    commit(watched, file, file.read_text().replace("ct.store(y", "ct.stores(y"))
    done, _ = run_github("static", tmp_path, watched, source, environment)
    assert done.code == 2
    assert "does not compile: TypeCheckingError" in done.summary


@WITHOUT_GPU
def test_the_gpu_job_takes_the_runner_s_own_tilewatch_and_fails_without_a_gpu(
    tmp_path: Path, watched: Path, source: Path, tilewatch: Path, environment: dict[str, str]
) -> None:
    environment["PATH"] = f"{tilewatch.parent}{os.pathsep}{environment['PATH']}"
    done, workspace = run_github("speed", tmp_path, watched, source, environment)
    assert done.code == 2
    assert "tilewatch: there is no GPU 0 on this machine" in done.output
    assert not (workspace / ".tilewatch" / ".venv").exists()


def run_gitlab(job: str, folder: Path, watched: Path, source: Path, environment: dict[str, str]) -> Finished:
    clone(watched, folder)
    tiny_repository.git(folder, "checkout", "--quiet", "origin/branch")
    base = tiny_repository.git(watched, "merge-base", "main^1", "branch").strip()
    given = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "TILEWATCH_SOURCE": f"file://{source}"}
    return run_gitlab_job(yaml.safe_load(GITLAB.read_text()), job, folder, {**environment, **given})


def test_the_lines_of_the_gitlab_job_compare_the_branch_with_where_it_began(
    tmp_path: Path, watched: Path, source: Path, environment: dict[str, str]
) -> None:
    done = run_gitlab("tilewatch-static", tmp_path / "build", watched, source, environment)
    assert done.code == 0, done.output
    assert "double 1024 (sm_80): other machine code; registers" in done.output
    report = yaml.safe_load(GITLAB.read_text())[".tilewatch"]["artifacts"]["reports"]["junit"]
    assert 'tests="5"' in (tmp_path / "build" / report).read_text()


@WITHOUT_GPU
def test_the_gitlab_gpu_job_fails_without_a_gpu(
    tmp_path: Path, watched: Path, source: Path, environment: dict[str, str]
) -> None:
    done = run_gitlab("tilewatch-speed", tmp_path / "build", watched, source, environment)
    assert done.code == 2
    assert "tilewatch: there is no GPU 0 on this machine" in done.output


def test_the_lines_of_the_pre_commit_hooks_are_commands_of_ours() -> None:
    commands = get_command(cli).commands  # type: ignore[attr-defined]  # ours is a group of commands
    hooks = yaml.safe_load(HOOKS.read_text())
    assert hooks
    for hook in hooks:
        program, name, *arguments = shlex.split(hook["entry"])
        assert program == "tilewatch"
        commands[name].make_context(name, arguments).close()


def test_the_nightly_job_publishes_the_recordings_of_the_repository(
    tmp_path: Path, watched: Path, source: Path, environment: dict[str, str]
) -> None:
    (watched / "recordings").mkdir()
    shutil.copy(STORY, watched / "recordings")
    tiny_repository.git(watched, "add", ".")
    tiny_repository.git(watched, "commit", "--quiet", "--message", "Add a recording")
    variables = {"TILEWATCH_SOURCE": "example/tilewatch", "TILEWATCH_REF": ""}
    environment["GITHUB_REPOSITORY"] = "example/kernels"
    runner = GithubRunner(tmp_path / "runner", watched, {"example/tilewatch": source}, variables, environment)
    runner.folder.mkdir()
    workflow = yaml.safe_load(GITHUB_PAGES.read_text())
    done = runner.run_job(workflow, "publish")
    assert done.code == 0, done.output
    assert runner.uploaded == [runner.workspace / "site"]
    assert "by example/kernels, with tilewatch" in (runner.workspace / "site" / "index.html").read_text()
    (command,) = yaml.safe_load(GITLAB_PAGES.read_text())["pages"]["script"]
    steps = [step["run"].splitlines()[-1].split() for step in workflow["jobs"]["publish"]["steps"] if "run" in step]
    assert [[*line[:2], *line[3:5]] for line in steps] == [[*command.split()[:2], *command.split()[3:5]]]
