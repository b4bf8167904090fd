"""notify.toml: who gets which message, quiet hours, and errors of the file without its addresses."""

import datetime as dt
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tilewatch.worker.notify import routing
from tilewatch.worker.notify.routing import LONGEST_MESSAGE, BadNotifySettings, NotifySettings

ROOT = Path(__file__).parents[3]
BERLIN = ZoneInfo("Europe/Berlin")
HIDDEN = "xoxb-hunter2"

WRITTEN = f"""
zone = "Europe/Berlin"

[channels.kernels]
apprise = "slack://{HIDDEN}/one/two"
[channels.board]
webhook_from = "BOARD"
quiet = false
[channels.commits]
forge = "owner/name"

[[routes]]
kernel = "gemm*"
to = ["kernels", "commits"]
owner = "ada"
[[routes]]
gpu = "h200"
about = ["alarm", "improvement"]
to = ["board"]
[[routes]]
gpu = "h200"
to = ["kernels"]

[quiet]
from = 20:00:00
to = "08:00"

[digest]
at = "08:30"
to = ["kernels"]
"""


def read(text: str, tmp_path: Path, **environment: str) -> NotifySettings:
    file = tmp_path / "notify.toml"
    file.write_text(text)
    return routing.load(file, environment)


@pytest.fixture
def written(tmp_path: Path) -> NotifySettings:
    return read(WRITTEN, tmp_path, BOARD=f"https://board.example/{HIDDEN}")


def test_without_a_file_regressions_and_alarms_go_to_the_log_and_improvements_to_nobody() -> None:
    nobody = routing.load(None)
    assert routing.recipients(nobody, "regression", "gemm", ["h200"]) == ("log",)
    assert routing.recipients(nobody, "alarm", None, []) == ("log",)
    assert routing.recipients(nobody, "improvement", "gemm", ["h200"]) == ()


def test_every_route_that_matches_is_used_and_each_channel_once(written: NotifySettings) -> None:
    assert routing.recipients(written, "regression", "gemm_fp8", ["b200", "h200"]) == ("kernels", "commits")
    assert routing.recipients(written, "regression", "attention", ["h200"]) == ("kernels",)
    assert routing.recipients(written, "regression", "attention", ["b200", "h200"]) == ("kernels",)
    assert routing.recipients(written, "regression", "attention", ["b200"]) == ()
    assert routing.recipients(written, "improvement", "attention", ["h200"]) == ("board",)
    assert routing.recipients(written, "alarm", "gemm_fp8", ["h200"]) == ("kernels", "commits", "board")
    assert routing.recipients(written, "alarm", None, ["h200"]) == ("board", "kernels")
    assert routing.recipients(written, "alarm", None, []) == ()


def test_the_owner_is_that_of_the_first_route_that_names_one(written: NotifySettings) -> None:
    assert routing.find_owner(written, "gemm_fp8", ["h200"]) == "ada"
    assert routing.find_owner(written, "attention", ["h200"]) is None


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-20T19:59", None),
        ("2026-11-20T20:00", "2026-11-21T08:00"),
        ("2026-11-21T03:00", "2026-11-21T08:00"),
        ("2026-11-21T08:00", None),
        ("2026-10-25T02:30", "2026-10-25T08:00"),  # the night that is an hour longer
    ],
)
def test_quiet_hours_go_over_midnight_on_the_zone_s_clock(now: str, until: str | None, written: NotifySettings) -> None:
    at = dt.datetime.fromisoformat(now).replace(tzinfo=BERLIN)
    end = None if until is None else dt.datetime.fromisoformat(until).replace(tzinfo=BERLIN)
    assert routing.quiet_until(written, "kernels", at.astimezone(dt.UTC)) == end


def test_a_forge_and_a_channel_that_says_so_are_never_quiet(written: NotifySettings) -> None:
    night = dt.datetime(2026, 11, 21, 3, tzinfo=BERLIN)
    assert routing.quiet_until(written, "commits", night) is None
    assert routing.quiet_until(written, "board", night) is None


@pytest.mark.parametrize(
    ("now", "day"),
    [("08:29", None), ("08:30", dt.date(2026, 11, 21)), ("14:29", dt.date(2026, 11, 21)), ("14:30", None)],
)
def test_a_digest_is_due_from_its_hour_on_and_not_for_ever(
    now: str, day: dt.date | None, written: NotifySettings
) -> None:
    at = dt.datetime.fromisoformat(f"2026-11-21T{now}").replace(tzinfo=BERLIN)
    assert routing.digest_due(written, at.astimezone(dt.UTC)) == day


def test_a_digest_that_is_late_at_midnight_is_that_of_its_day() -> None:
    settings = NotifySettings.model_validate({"digest": {"at": "23:58", "to": ["log"]}})
    midnight = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    assert routing.digest_due(settings, midnight) == dt.date(2026, 11, 20)
    assert routing.digest_due(settings, midnight + routing.DIGEST_PATIENCE) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zone = 'Mars/Base'", "'Mars/Base' is not a time zone"),
        (f"[channels.a]\napprise = '{HIDDEN}'\nwebhook = '{HIDDEN}'", "channels.a: name exactly one of"),
        (f"[channels.a]\nslak = '{HIDDEN}'", "channels.a.slak: extra inputs are not permitted"),
        (f"[channels.a]\nforge = '{HIDDEN}'", "channels.a.forge: string should match pattern"),
        ("[[routes]]\nto = ['nobody']", "there is no channel 'nobody'; known: log"),
        (
            "[channels.z]\nforge = 'a/b'\n[channels.a]\nforge = 'a/b'\n[[routes]]\nto = ['nobody']",
            "there is no channel 'nobody'; known: a, log, z",
        ),
        ("[[routes]]\nto = []", "routes.0.to: tuple should have at least 1 item"),
        ("[quiet]\nfrom = '25:00'\nto = '08:00'", "quiet.from: "),
        (
            "[quiet]\nfrom = '20:00+02:00'\nto = '08:00'",
            "quiet.from: expected an hour without an offset, such as 03:00",
        ),
        ("[digest]\nat = '03:00Z'\nto = ['log']", "digest.at: expected an hour without an offset"),
        ("[digest]\nat = 8\nto = ['log']", "digest.at: expected an hour such as 03:00"),
        ("channels = 3", "channels: input should be a valid dictionary"),
        ("[channels", "is not TOML"),
        ("x = " + 100_000 * "[", "it is not TOML: maximum recursion depth exceeded"),
        ("".join(f"[t{number}]\n" for number in range(20_000)), "t0: extra inputs are not permitted; "),
        (f"zone = '{80_000 * '../'}etc'", "zone: '../../"),
    ],
)
def test_an_error_is_named_without_an_address(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadNotifySettings) as raised:
        read(text, tmp_path)
    assert words in str(raised.value)
    assert HIDDEN not in str(raised.value)
    assert len(str(raised.value)) <= LONGEST_MESSAGE


def test_a_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadNotifySettings, match="cannot be used: there is no file"):
        routing.load(tmp_path / "nowhere.toml")


def test_a_file_that_has_no_end_or_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "link.toml").symlink_to("/dev/zero")
    with pytest.raises(BadNotifySettings, match=r"cannot be used: .*link.toml is not a file"):
        routing.load(tmp_path / "link.toml")
    (tmp_path / "notify.toml").write_bytes(b"\xff")
    with pytest.raises(BadNotifySettings, match="is not text in UTF-8"):
        routing.load(tmp_path / "notify.toml")


def test_an_address_is_in_no_repr(written: NotifySettings) -> None:
    assert HIDDEN not in repr(written)


def test_the_example_is_a_file_that_works() -> None:
    example = routing.load(ROOT / "docs" / "use" / "notify.example.toml", {"TEAM_SLACK": "slack://a/b/c"})
    assert routing.recipients(example, "regression", "gemm_fp8", ["h200"])
    assert example.quiet
    assert example.digest
