"""The `tilewatch` command as people type it: what it prints, and one sentence for what they mistype."""

import gc
import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvicorn
from sqlalchemy import text
from typer.testing import CliRunner

from tests.conftest import NewDatabase
from tests.worker.fixtures.command_line import run_here
from tilewatch.db import migrate
from tilewatch.db.server.free_ports import find_free_port
from tilewatch.db.session import engine
from tilewatch.worker.cli.main import cli, main
from tilewatch.worker.local import doctor
from tilewatch.worker.local.children import CANNOT_START
from tilewatch.worker.local.doctor_servers import Finding
from tilewatch.worker.settings import Settings, find_bad_home

ROOT = Path(__file__).resolve().parents[3]
Tilewatch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    "command",
    [
        "cancel abc",
        "cancel 9223372036854775808",
        "retry --submission 9223372036854775808",
        "regressions show 9223372036854775808",
        "regressions mark 9223372036854775808 wrong",
        "notify again 9223372036854775808",
        "prune --days 36501",
    ],
)
def test_a_number_that_no_row_can_have_is_a_sentence(command: str) -> None:
    done = CliRunner().invoke(cli, command.split())
    assert (done.exit_code, done.exception.__class__) == (2, SystemExit)
    expected = "a whole number is expected" if "abc" in command else "at most [0-9]+ is expected"
    assert re.search(expected, done.output), done.output
    assert "Input should" not in done.output


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_doctor_s_exit_code_says_whether_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    found = [Finding("git", True, "2.43"), Finding("GPU", None, "none")]
    monkeypatch.setattr(doctor, "report", lambda _: found)
    assert CliRunner().invoke(cli, ["doctor", *form]).exit_code == 0
    found.append(Finding("policy", False, "the policy x.json cannot be read"))
    done = CliRunner().invoke(cli, ["doctor", *form])
    assert (done.exit_code, "cannot be read" in done.output) == (1, True)


@pytest.mark.parametrize("home", ["file", "file/home", "/proc/home"])
def test_a_data_folder_that_cannot_be_used_is_named_with_its_variable(home: str, tmp_path: Path) -> None:
    """Some commands ended with a traceback, and `up` named the folder without a word on where it came from."""
    (tmp_path / "file").touch()
    environment = {"TILEWATCH_HOME": str(tmp_path / home), "TILEWATCH_PORT": str(find_free_port())}
    expected = f"tilewatch: the data folder {tmp_path / home} cannot be used: .+; TILEWATCH_HOME names another\n"
    removed = run_here("toolchain", "remove", "next", environment=environment, folder=tmp_path)
    assert (removed.returncode, bool(re.fullmatch(expected, removed.stderr))) == (2, True), removed.stderr
    command = [sys.executable, "-m", "tilewatch.worker.cli.main", "up"]
    started = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert (started.returncode, bool(re.search(expected, started.stdout))) == (1, True), started.stdout


def test_an_error_of_another_file_is_none_of_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path))
    assert find_bad_home(FileNotFoundError(2, "No such file", str(tmp_path / "log"))) is None, "the folder is fine"
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path / "nowhere"))
    assert find_bad_home(FileNotFoundError(2, "No such file", str(tmp_path / "other"))) is None
    assert find_bad_home(ValueError("no file")) is None


@pytest.fixture
def api_settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    def set_address(address: str, port: int) -> None:
        connection = settings.connection()
        for name, value in {
            "HOME": settings.home,
            "DATABASE_URL": connection.database_url,
            "BROKER_URL": connection.broker_url,
            "API_ADDRESS": address,
            "API_PORT": port,
        }.items():
            monkeypatch.setenv(f"TILEWATCH_{name}", str(value))

    return set_address


@pytest.mark.parametrize("address", ["192.0.2.1", "no such name", "127.0.0.1"])
def test_an_api_that_cannot_listen_says_so_in_one_sentence(
    api_settings: Callable[[str, int], None], address: str
) -> None:
    """192.0.2.1 is nobody's; the port of 127.0.0.1 is taken."""
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        api_settings(address, port)
        done = CliRunner().invoke(cli, ["api"])
    assert done.exit_code == CANNOT_START, "`up` does not try it again"
    assert done.stderr.startswith(f"tilewatch: nothing can be served at {address}, port {port}: ")
    assert "set TILEWATCH_API_ADDRESS to an address of this machine" in done.stderr


def test_the_garbage_collector_skips_what_the_api_imported_and_its_ports_send_at_once(
    api_settings: Callable[[str, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise some answers with a series of 1,000 nights wait for a walk over all of it."""
    of_before: list[object] = []
    looked_at = []
    at_once = []

    def run(_: uvicorn.Server, sockets: list[socket.socket]) -> None:
        looked_at.append(any(each is of_before for each in gc.get_objects()))
        for each in sockets:
            at_once.append(bool(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
            each.close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    api_settings("127.0.0.1", 0)
    done = CliRunner().invoke(cli, ["api"])
    assert (done.exit_code, looked_at) == (0, [False]), done.output
    assert at_once == [True]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-1", "1e300"])
@pytest.mark.parametrize(
    "command",
    [
        "compare --dirty --seconds",
        "replay double 1024 --of HEAD --beside HEAD --seconds",
        "compare --dirty --fail-over",
        "compare --dirty --margin",
        "replay double 1024 --of HEAD --beside HEAD --margin",
        "toolchain compare installed other --minutes",
        "toolchain compare installed other --limit",
        "toolchain compare installed other --fail-over",
        "submit toolchain installed next --minutes",
        "submit toolchain installed next --fail-over",
    ],
)
def test_a_number_that_makes_no_sense_is_a_sentence_with_its_option(command: str, number: str) -> None:
    done = CliRunner().invoke(cli, [*command.split(), number])
    assert (done.exit_code, done.exception.__class__) == (2, SystemExit), done.output
    said = " ".join(done.output.replace("│", "").split())
    assert re.search(r"'--\w+':|is not a percentage; expected one from 0% to under 100%", said), said


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("compare --dirty --margin 0%", "'--margin': no number of launches finds every change"),
        ("compare --dirty --margin 1", "'--margin': '1' is not a percentage"),
        ("compare --dirty --recording nope", "'--recording': there is no file nope"),
        ("compare --dirty --junit /nowhere/x", "'--junit': there is no folder /nowhere"),
        ("compare --dirty --markdown /", "'--markdown': / is a folder; name a file"),
        ("export /nowhere/x.jsonl.gz", "'file': there is no folder /nowhere"),
        ("tuned export /nowhere/x.json", "'file': there is no folder /nowhere"),
        ("toolchain compare a b --report /nowhere/x.json", "'--report': there is no folder /nowhere"),
        ("toolchain compare a b --markdown /nowhere/x.md", "'--markdown': there is no folder /nowhere"),
        ("toolchain compare a b --recording nope", "'--recording': there is no file nope"),
        ("toolchain compare a b --arch 90", "'--arch': '90' is not an architecture of cuTile"),
        ("submit toolchain a b --arch sm_70", "'--arch': 'sm_70' is not an architecture of cuTile"),
        ("check --arch sm90", "'--arch': 'sm90' is not an architecture of cuTile"),
        ("check nope.py", "there is no file nope.py"),
        ("check /", "/ is a folder; name files in it"),
    ],
)
def test_what_cannot_be_read_or_written_is_said_before_work_is_done_for_it(command: str, sentence: str) -> None:
    done = CliRunner().invoke(cli, command.split())
    assert (done.exit_code, done.exception.__class__) == (2, SystemExit), done.output
    assert sentence in " ".join(done.output.replace("│", "").split())


def test_an_error_gives_a_terminal_no_orders(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["tilewatch", "rejudge", "--policy", "\x1b[2Jnowhere.json", "--since", "2026-01-01"]
    )
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "\ufffd[2Jnowhere.json" in said
    assert "\x1b" not in said


@pytest.fixture
def tilewatch(settings: Settings) -> Tilewatch:
    """Runs the command; keyword arguments are environment variables without TILEWATCH_."""
    servers = settings.connection()

    def run(*arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "home": str(settings.home),
            "database_url": servers.database_url,
            "broker_url": servers.broker_url,
            "repository": str(settings.repository),
            "library": settings.library,
            "watch": "h200",
            **changed,
        }
        return run_here(
            *arguments,
            environment={f"TILEWATCH_{name.upper()}": value for name, value in variables.items()},
            folder=ROOT,
        )

    return run


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of an expected error."""
    assert (done.returncode, done.stdout) == (2, ""), done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("tilewatch: ")
    return done.stderr.removeprefix("tilewatch: ").strip()


def test_a_nightly_is_submitted_and_shown(tilewatch: Tilewatch) -> None:
    submitted = tilewatch("submit", "nightly")
    assert submitted.returncode == 0, submitted.stderr
    assert "submitted the nightly of" in submitted.stdout
    assert "static facts only for h200" in submitted.stdout
    assert re.search(r"\(submission \d+\)$", submitted.stdout.splitlines()[0])
    status = json.loads(tilewatch("status", "--json").stdout)
    assert [(job["kind"], job["state"], job["jobs"]) for job in status["jobs"]] == [("compile", "queued", 1)]
    assert "1 compile queued" in tilewatch("status").stdout


def test_following_ends_when_nothing_is_left(tilewatch: Tilewatch) -> None:
    assert "no job was ever submitted" in tilewatch("status", "--follow").stdout


def test_a_sweep_of_one_problem_is_submitted(tilewatch: Tilewatch) -> None:
    assert "a sweep of double on 1024" in tilewatch("submit", "sweep", "double", "1024", "--gpu", "b200").stdout


def test_migrating_again_is_nothing_new(tilewatch: Tilewatch) -> None:
    assert tilewatch("migrate").stdout.startswith("the database is at")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "sweep", "duoble", "1024"), "there is no kernel 'duoble' in the library /"),
        (("submit", "sweep", "duoble", "1024"), "/library; nearest: double"),
        (("submit", "sweep", "double", "0"), "'0' is not a problem of double"),
        (("submit", "nightly", "--gpu", "h201"), "there is no GPU model 'h201'; nearest: h20, h200"),
        (("submit", "nightly", "--commit", "nosuch"), "has no commit 'nosuch'"),
        (("import", "nowhere.jsonl.gz"), "there is no file nowhere.jsonl.gz"),
        (("import", "nowhere.json"), "there is no file nowhere.json"),
        (("toolchain", "add", "../x", "cuda-tile==1.7.0"), "'../x' cannot be the name of a toolchain"),
        (("baselines", "add", "../x", "torch==2.0"), "'../x' cannot be the name of a toolchain"),
        (("export", "out.jsonl.gz"), "nothing to export"),
        (
            ("report", "--week", "--html", "x.html", "--repository", "nope"),
            "no repository 'nope' has results",
        ),
    ],
)
def test_what_does_not_exist_is_named(tilewatch: Tilewatch, arguments: tuple[str, ...], words: str) -> None:
    assert words in error_of(tilewatch(*arguments))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("check",), ("validate",)),
        (("rivals", "list"), ("baselines", "list")),
        (("tell", "alarms"), ("notify", "alarms")),
        (("notify", "check"), ("notify", "test")),
    ],
)
def test_a_command_that_was_renamed_has_its_old_name_for_a_release_and_help_names_the_new_one(
    old: tuple[str, ...], new: tuple[str, ...]
) -> None:
    runner = CliRunner()
    before, after = (runner.invoke(cli, [*name, "--nonsense"]) for name in (old, new))
    assert "No such option: --nonsense" in before.output
    assert "No such option: --nonsense" in after.output
    listed = runner.invoke(cli, [*new[:-1], "--help"] if new[0] == old[0] else ["--help"]).stdout
    words = re.findall(r"^. ([a-z]+) ", listed, re.MULTILINE)
    changed = next(place for place, word in enumerate(old) if word != new[place])
    assert new[changed] in words
    assert old[changed] not in words


def test_a_command_by_its_old_name_warns_and_does_what_the_new_one_does(tilewatch: Tilewatch) -> None:
    """On standard error: what a program reads on standard output stays as it was."""
    old, new = tilewatch("rivals", "list", "--json"), tilewatch("baselines", "list", "--json")
    assert (old.stdout, old.returncode) == (new.stdout, 0)
    assert (
        old.stderr == "tilewatch: `tilewatch rivals` is `tilewatch baselines` now; the old name works for one release\n"
    )
    assert new.stderr == ""


def test_a_branch_that_is_not_there_is_named(tilewatch: Tilewatch) -> None:
    said = error_of(tilewatch("submit", "nightly", branch="nosuch"))
    assert said.endswith("has no branch 'nosuch', whose commits are to be followed")


def test_a_folder_without_history_is_named(tilewatch: Tilewatch, tmp_path: Path) -> None:
    assert "not the top folder of a Git repository" in error_of(
        tilewatch("submit", "nightly", repository=str(tmp_path))
    )


def test_unreachable_servers_are_named_with_their_address_and_without_their_password(tilewatch: Tilewatch) -> None:
    postgres = error_of(tilewatch("status", database_url="postgresql://me:secret@127.0.0.1:9/x"))
    assert postgres.startswith("Postgres cannot be used at 127.0.0.1:9/x")
    redis = error_of(tilewatch("submit", "nightly", broker_url="redis://:secret@127.0.0.1:9/0"))
    assert redis.startswith("Redis cannot be used at 127.0.0.1:9")
    assert "secret" not in postgres + redis


def test_a_wrong_password_is_not_repeated(tilewatch: Tilewatch, settings: Settings) -> None:
    address = settings.connection().broker_url.partition("@")[2] or settings.connection().broker_url.partition("//")[2]
    done = tilewatch("submit", "nightly", broker_url=f"redis://:wrongsecret@{address}")
    assert "wrongsecret" not in done.stdout + done.stderr


def test_nothing_running_says_how_to_start(tilewatch: Tilewatch) -> None:
    assert "start it with `make up`" in error_of(tilewatch("status", database_url="", broker_url=""))


def test_a_database_that_is_newer_or_empty_is_said(
    tilewatch: Tilewatch, empty_database: NewDatabase, new_database: NewDatabase
) -> None:
    with empty_database() as empty:
        assert "run `tilewatch migrate`" in error_of(tilewatch("status", database_url=empty))
    with new_database() as newer:
        with engine(newer).begin() as connection:
            connection.execute(text("update alembic_version set version_num = '9999'"))
        assert "newer" in error_of(tilewatch("submit", "nightly", database_url=newer))


def test_the_version_is_that_of_the_package_and_of_the_tables_it_expects(tilewatch: Tilewatch) -> None:
    version = importlib.metadata.version("tilewatch")
    assert tilewatch("--version").stdout == f"tilewatch {version}, database revision {migrate.head()}\n"


def test_help_imports_nothing_heavy() -> None:
    script = "import sys, tilewatch.worker.cli.main; print(*(set(sys.argv[1:]) & set(sys.modules)))"
    heavy = ("sqlalchemy", "celery", "pydantic", "numpy", "redis", "psycopg", "requests")
    done = subprocess.run([sys.executable, "-c", script, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_help_has_examples_and_needs_no_server(tilewatch: Tilewatch) -> None:
    done = tilewatch("submit", "nightly", "--help", database_url="", broker_url="")
    assert done.returncode == 0
    assert "tilewatch submit nightly --commit v1.2" in done.stdout


def test_another_policy_is_tried_on_what_is_there(tilewatch: Tilewatch, tmp_path: Path) -> None:
    policy = tmp_path / "bolder.json"
    policy.write_text('{"alone_deviation": 2}')
    assert "has 'alone_deviation', which no policy has" in error_of(
        tilewatch("rejudge", "--policy", str(policy), "--since", "2026-01-01")
    )
    policy.write_text('{"believed_deviations": 3}')
    done = tilewatch("rejudge", "--policy", str(policy), "--since", "2026-01-01")
    assert done.stdout == "0 of 0 verdicts would be different with bolder\n", done
