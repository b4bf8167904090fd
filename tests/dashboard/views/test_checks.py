"""The page of checks: the list, the permalink of one, and the launches behind each operator."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from tests.dashboard.fixtures.app import APP, opened


@pytest.fixture
def app(filled_url: str, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", filled_url)
    return AppTest.from_file(str(APP), default_timeout=60)


def one(app: AppTest, number: str, **choices: str) -> AppTest:
    app.query_params["check"] = number
    for name, value in choices.items():
        app.query_params[name] = value
    return opened(app, "checks")


def markdown(app: AppTest) -> str:
    return " ".join(str(each.value) for each in app.markdown)


def test_the_newest_checks_come_first_with_their_states(app: AppTest) -> None:
    table = opened(app, "checks").dataframe[0].value
    assert table["state"].tolist() == ["being answered", "slower"]
    assert table["answered"].tolist() == ["1 of 2", "5 of 5"]
    assert table["kernels"].tolist() == ["gemm_fp8", "all"]


def test_an_ended_check_shows_what_failed_first_and_identical_code_last(app: AppTest) -> None:
    page = one(app, "1")
    assert ":red-badge[slower] #1 5e6f7a8b00..9c0d1e2f00 on NVIDIA H200" in markdown(page)
    table = page.dataframe[0].value
    assert table["outcome"].tolist() == ["slower", "faster", "not slower", "identical", "identical"]
    assert table["in words"].iloc[0] == "slower +1.8 % (1.7 to 1.9) after 12 launches"
    assert table["what moved in the code"].iloc[0].startswith("spills 0 -> 40 bytes, ")
    assert "slower by more than 1 % fails" in page.caption[0].value


def test_the_launches_of_the_picked_operator_are_drawn_with_the_command_that_repeats_them(app: AppTest) -> None:
    page = one(app, "1", operator="gemm_fp8 4096x7168x2048")
    launches = json.loads(page.get("plotly_chart")[0].proto.spec)["data"]
    assert len(launches) == 12
    assert page.code[0].value == (
        f"tilewatch replay gemm_fp8 4096x7168x2048 --of 9c0d1e2f{'0' * 32} --beside 5e6f7a8b{'0' * 32} "
        "--config num_ctas=1,tile_k=128,tile_m=128,tile_n=256 "
        "--beside-config num_ctas=2,tile_k=128,tile_m=128,tile_n=256"
    )
    assert "medians of the launches: 118.0 us → 115.1 us" in " ".join(each.value for each in page.caption)


def test_an_open_check_says_how_far_it_is(app: AppTest) -> None:
    page = one(app, "2")
    assert ":blue-badge[being answered]" in markdown(page)
    assert page.dataframe[0].value["outcome"].tolist() == ["not slower", "open"]


@pytest.mark.parametrize("number", ["999999999", "x'; drop table checks", "9" * 40])
def test_a_link_to_a_check_that_is_not_there_says_so(app: AppTest, number: str) -> None:
    assert "There is no check" in one(app, number).warning[0].value
