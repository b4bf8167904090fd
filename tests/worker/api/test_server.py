"""Programs read by HTTP what is on record, and who may not is refused in one sentence with the right status."""

from pathlib import Path

import pytest
import requests
from pydantic import SecretStr
from sqlalchemy import select
from starlette.requests import Request

from tests.dashboard.fixtures.small_database import KERNEL, OTHER_PROBLEM, PROBLEM, REPOSITORY
from tests.worker.fixtures.api_server import serve
from tilewatch.db.lifecycle import tokens
from tilewatch.db.models import Measurement, Verdict
from tilewatch.db.session import session
from tilewatch.worker.api.callers import Credentials
from tilewatch.worker.api.server import LARGEST_BODY_BYTES, read_credentials
from tilewatch.worker.settings import Settings

SERIES = {"repository": REPOSITORY, "kernel": KERNEL, "problem": PROBLEM, "gpu_model": "h200"}


def get(address: str, path: str, headers: dict[str, str] | None = None, **parameters: object) -> requests.Response:
    return requests.get(f"{address}/v1{path}", params=parameters, headers=headers, timeout=60)  # type: ignore[arg-type]


def test_a_program_finds_its_way_from_the_series_to_the_evidence(server: str) -> None:
    assert get(server, "/repositories").json()[0] == REPOSITORY
    series = get(server, "/series").json()
    assert {**SERIES, "gpu_name": "NVIDIA H200"} in series
    points = get(server, "/points", **SERIES).json()
    assert {point["implementation"] for point in points} == {KERNEL, "deepgemm", "cublaslt"}
    assert get(server, "/points", **SERIES, limit=2).json() == points[-2:]
    with_facts = get(server, "/points", **SERIES, static_facts=True).json()
    assert {point["registers"] for point in points} == {None}
    assert any(point["registers"] for point in with_facts)
    newest = get(server, "/verdicts", **SERIES).json()[0]
    assert newest["run_id"] == max(point["run_id"] for point in points if point["verdict"])
    evidence = get(server, f"/runs/{newest['run_id']}/evidence").json()
    assert evidence["run"]["verdict"] == newest["verdict"]
    assert evidence["samples"][0]["samples_us"]
    sweep = get(server, f"/sweeps/{evidence['run']['sweep_id']}").json()
    times = [trial["median_us"] for trial in sweep["trials"] if trial["median_us"] is not None]
    assert times == sorted(times)
    assert get(server, f"/sweeps/{evidence['run']['sweep_id']}", limit=2).json()["trials"] == sweep["trials"][:2]
    assert {row["run_id"] for row in sweep["measurements"]} == {newest["run_id"]}


def test_verdicts_are_of_what_was_asked_for(server: str) -> None:
    every = get(server, "/verdicts", repository=REPOSITORY).json()
    assert [row["run_id"] for row in every] == sorted((row["run_id"] for row in every), reverse=True)
    regressions = get(server, "/verdicts", repository=REPOSITORY, verdict="regression").json()
    assert 0 < len(regressions) < len(every)
    assert {row["verdict"] for row in regressions} == {"regression"}
    assert get(server, "/verdicts", repository=REPOSITORY, problem=OTHER_PROBLEM).json() != every
    assert len(get(server, "/verdicts", repository=REPOSITORY, limit=1).json()) == 1


def test_the_detectable_change_is_that_of_the_newest_verdict_that_knows_it(api_url: str, server: str) -> None:
    unknown = get(server, "/detectable-change", **{**SERIES, "problem": "1x1x1"})
    assert unknown.status_code == 404
    assert unknown.json() == {
        "detail": f"no sweep of {REPOSITORY} {KERNEL} has the problem '1x1x1'; the nearest is '320x32576x7168'"
    }
    newest = get(server, "/verdicts", **SERIES).json()[0]["run_id"]
    with session(api_url) as opened:
        row = opened.get_one(Verdict, newest)
        row.noise, row.smallest = 0.004, 0.012
    found = get(server, "/detectable-change", **SERIES).json()
    assert (found["run_id"], found["noise"], found["smallest"]) == (newest, 0.004, 0.012)


def test_what_was_not_measured_apart_is_marked_in_verdicts_and_regressions(api_url: str, server: str) -> None:
    number = get(server, "/regressions").json()[0]["id"]
    (series,) = get(server, f"/regressions/{number}").json()["series"]
    assert series["not_apart"] is None
    with session(api_url) as opened:
        of_kernel = (Measurement.run_id == series["run_id"]) & (Measurement.role == "kernel")
        (row,) = opened.scalars(select(Measurement).where(of_kernel))
        row.detail = {**row.detail, "library_runs_apart": False, "not_apart": "it changes its input", "stated": ""}
    reasons = {row["run_id"]: row["not_apart"] for row in get(server, "/verdicts", **SERIES).json()}
    assert reasons.pop(series["run_id"]) == "it changes its input"
    assert set(reasons.values()) == {None}
    (marked,) = get(server, f"/regressions/{number}").json()["series"]
    assert marked["not_apart"] == "it changes its input"


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/sweeps/999999", 404, "there is no sweep 999999"),
        ("/runs/999999/evidence", 404, "there is no run 999999"),
        ("/regressions/999999", 404, "there is no regression 999999"),
        ("/nothing", 404, "Not Found: /openapi.json says what there is"),
        (
            "/runs/99999999999999999999/evidence",
            422,
            "run_id: Input should be less than or equal to 9223372036854775807",
        ),
        ("/verdicts", 422, "repository: Field required"),
        ("/verdicts?repository=nope", 404, f"no sweep has the repository 'nope'; the nearest is '{REPOSITORY}'"),
        ("/regressions?repository=nope", 422, "there is no argument 'repository'; it has limit"),
        ("/series?limit=3", 422, "there is no argument 'limit'; this has none"),
        (
            f"/verdicts?repository={REPOSITORY}&verdct=regression",
            422,
            "there is no argument 'verdct'; it has repository, kernel, problem, gpu_model, verdict, limit",
        ),
        ("/verdicts?repository=%00", 422, "repository: String should match pattern '^[^\\x00]*$'"),
    ],
)
def test_a_refusal_is_one_sentence(server: str, path: str, status: int, sentence: str) -> None:
    answer = get(server, path)
    assert (answer.status_code, answer.json()) == (status, {"detail": sentence})


@pytest.mark.parametrize("path", ["checks", "hooks/github"])
def test_a_body_has_a_largest_size_whoever_calls(settings: Settings, path: str) -> None:
    """Also of a call without a token, whose body is read before anybody looks for one."""
    with serve(settings.model_copy(update={"webhook_secret": SecretStr("a common secret")})) as address:
        answer = requests.post(f"{address}/v1/{path}", data=bytes(LARGEST_BODY_BYTES + 1), timeout=60)
        assert (answer.status_code, "more than 26,214,400 bytes" in answer.json()["detail"]) == (413, True)
        assert requests.post(f"{address}/v1/{path}", data=bytes(1000), timeout=60).status_code in (401, 422)


def test_reads_need_a_token_unless_somebody_here_asks(api_url: str, server: str) -> None:
    with session(api_url) as opened:
        reader = tokens.add(opened, name="reader", rights=["read"], gpu_s=0, who="ada")
        checker = tokens.add(opened, name="checker", rights=["check"], gpu_s=60, who="ada")
        old = tokens.add(opened, name="old", rights=["read"], gpu_s=0, who="ada")
        tokens.revoke(opened, "old", "ada")
    elsewhere = {"X-Forwarded-For": "192.0.2.7"}
    refusals = {
        "Bearer " + checker: (403, "the token checker may check, not read"),
        "Bearer " + old: (401, "this token was never made, or was revoked"),
        "Bearer nonsense": (401, "this token was never made, or was revoked"),
        "": (401, "this needs a token, sent as 'Authorization: Bearer TOKEN'; `tilewatch token add` makes one"),
    }
    assert get(server, "/series").status_code == 200
    assert get(server, "/series", {**elsewhere, "Authorization": f"Bearer {reader}"}).status_code == 200
    for authorization, (status, sentence) in refusals.items():
        answer = get(server, "/series", {**elsewhere, "Authorization": authorization})
        assert (answer.status_code, answer.json()["detail"]) == (status, sentence)
        assert ("WWW-Authenticate" in answer.headers) == (status == 401)
    assert get(server, "/series", {"Authorization": "Bearer nonsense"}).status_code == 401


def credentials(client: str = "127.0.0.1", **headers: str) -> Credentials:
    raw = [(name.lower().replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "scheme": "http", "path": "/v1/series", "client": (client, 50_000), "headers": raw}
    return read_credentials(Request(scope))


def test_only_who_is_connected_from_here_by_its_name_is_here() -> None:
    assert credentials(host="localhost:8502").local
    assert credentials(client="::1", host="[::1]:8502").local
    assert not credentials(client="192.0.2.7", host="localhost:8502").local
    assert not credentials(host="tilewatch.example.org").local  # a page of a stranger, in a browser here
    assert not credentials(host="localhost:8502", x_forwarded_for="127.0.0.1").local
    assert not credentials(host="localhost:8502", forwarded="for=127.0.0.1").local


def test_a_database_that_is_away_is_503(tmp_path: Path) -> None:
    nowhere = "postgresql://nobody:secret@127.0.0.1:9/none"
    with serve(Settings(home=tmp_path, database_url=nowhere, broker_url="redis://nobody")) as address:
        answer = get(address, "/series")
        assert (answer.status_code, answer.json()) == (
            503,
            {"detail": "a server that this needs does not answer; try again later"},
        )
        assert requests.get(f"{address}/healthz", timeout=60).status_code == 503
