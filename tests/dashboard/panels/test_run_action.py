"""A page asks who acts: a visitor without the right gets a reason and no name to act with."""

import pytest
from streamlit.testing.v1 import AppTest


def show_actor() -> None:
    import streamlit as st

    from tilewatch.dashboard.panels import run_action

    st.write(f"acts as {run_action.find_actor()}")


def opened(monkeypatch: pytest.MonkeyPatch, anonymous: str) -> AppTest:
    monkeypatch.setenv("TILEWATCH_ANONYMOUS", anonymous)
    monkeypatch.setenv("TILEWATCH_TRIAGERS", "")
    app = AppTest.from_function(show_actor, default_timeout=120).run()
    assert not app.exception
    return app


@pytest.mark.parametrize("anonymous", ["nothing", "browse"])
def test_a_viewer_has_no_name_to_act_with(monkeypatch: pytest.MonkeyPatch, anonymous: str) -> None:
    app = opened(monkeypatch, anonymous)
    assert [each.value for each in app.markdown] == ["acts as None"]
    assert app.caption[0].value


def test_who_may_act_types_a_name_first(monkeypatch: pytest.MonkeyPatch) -> None:
    app = opened(monkeypatch, "act")
    assert app.markdown[0].value == "acts as None"
    app.text_input(key="who").input("kim").run()
    assert app.markdown[0].value == "acts as kim (not signed in)"
    app.text_input(key="who").input("k\0im\x1b").run()
    assert app.markdown[0].value == "acts as k\ufffdim\ufffd (not signed in)", "Postgres takes no NUL"
