"""Settings come from TILEWATCH_ variables, and what is wrong with one is said in a sentence without its secrets."""

import json
import os
import runpy
from pathlib import Path

import pytest

from tilewatch.db.server.embedded import Servers
from tilewatch.kernels.comparing.toolchains import commands
from tilewatch.nightlies import BadSettings
from tilewatch.worker.local.up import limit_kernels
from tilewatch.worker.settings import CHECKOUT, NotRunning, Settings

DATABASE_URL = "postgresql://tilewatch:hunter2@db.example:5432/tilewatch"
BROKER_URL = "redis://:hunter3@redis.example:6379/0"
NUMBERS = [
    name
    for name, field in Settings.model_fields.items()
    if field.annotation in (int, float) and name != "sim_seed"  # any whole number is a seed
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TILEWATCH_{name.upper()}", raising=False)
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("user", [0, 1000])
def test_a_comparison_of_toolchains_has_the_data_folder_of_the_worker(
    user: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEWATCH_HOME")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert runpy.run_path(commands.__file__)["HOME"] == Settings.model_fields["home"].get_default(
        call_default_factory=True
    )


def test_the_checkout_is_watched_and_cubins_lie_in_the_data_folder(home: Path) -> None:
    settings = Settings.load()
    assert settings.repository == CHECKOUT
    assert settings.store_url == f"file://{home}/cubins"


def test_a_list_is_typed_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_WATCH", "h100, b300")
    assert Settings.load().watch == ("h100", "b300")


def test_an_empty_variable_is_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_PORT", "")
    assert Settings.load().port == 8501


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "many"), ("PORT", "70000"), ("NIGHTLY_AT", "25:00"), ("NIGHTLY_AT", "3"), ("COMPILE_LIMIT_S", "0")]
    + [(name.upper(), value) for name in NUMBERS for value in ("inf", "nan", "-1", "1e300")],
)
def test_a_wrong_value_is_named_with_its_variable(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TILEWATCH_{name}", value)
    with pytest.raises(BadSettings, match=f"^TILEWATCH_{name}={value}: .+$"):
        Settings.load()


def test_passwords_stay_out_of_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", DATABASE_URL)
    monkeypatch.setenv("TILEWATCH_BROKER_URL", BROKER_URL)
    assert "hunter" not in repr(Settings.load())


def test_the_environment_s_servers_come_before_those_of_this_machine(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "connection.json").write_text(json.dumps({"database_url": "here", "broker_url": "here"}))
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", DATABASE_URL)
    monkeypatch.setenv("TILEWATCH_BROKER_URL", BROKER_URL)
    assert Settings.load().connection() == Servers(DATABASE_URL, BROKER_URL)


def test_the_servers_of_this_machine_are_found(home: Path) -> None:
    (home / "connection.json").write_text(json.dumps({"database_url": DATABASE_URL, "broker_url": BROKER_URL}))
    assert Settings.load().connection() == Servers(DATABASE_URL, BROKER_URL)


def test_one_server_alone_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", DATABASE_URL)
    with pytest.raises(NotRunning, match=r"TILEWATCH_BROKER_URL is not: set both or neither") as raised:
        Settings.load().connection()
    assert "hunter" not in str(raised.value)


@pytest.mark.parametrize("left_behind", [None, "{", '{"database_url": "here"}'])
def test_without_servers_one_is_told_how_to_get_some(left_behind: str | None, home: Path) -> None:
    if left_behind is not None:
        (home / "connection.json").write_text(left_behind)
    with pytest.raises(NotRunning, match=r"no Tilewatch is running in .+ start it with `make up`"):
        Settings.load().connection()


def test_where_nothing_is_measured_up_compiles_the_first_story_of_our_own_library_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = Settings(repository=CHECKOUT)
    assert limit_kernels(ours, ()).kernels == ("gemm_fp8",)
    assert not limit_kernels(ours, ()).sweeps("rms_norm")
    assert limit_kernels(Settings(repository=tmp_path), ()).sweeps("rms_norm"), "of somebody's own library all of it"
    monkeypatch.setenv("TILEWATCH_KERNELS", "all")
    assert limit_kernels(Settings(), ()).sweeps("rms_norm")
    monkeypatch.setenv("TILEWATCH_KERNELS", "softmax, rms_norm")
    assert [name for name in ("gemm_fp8", "rms_norm", "softmax") if Settings().sweeps(name)] == ["rms_norm", "softmax"]
