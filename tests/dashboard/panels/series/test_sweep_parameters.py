"""The section of a sweep with all parameters: it stands there only where there are lines to draw."""

from streamlit.testing.v1 import AppTest


def show_section() -> None:
    import streamlit as st

    from tests.dashboard.fixtures.trials import frame, trial
    from tilewatch.dashboard.panels.series import sweep

    tiles = st.session_state["tiles"]
    sweep._all_parameters(frame(*(trial(tile, 128, 32, registers=90) for tile in tiles)))


def read_headings(*tiles: int) -> list[str]:
    app = AppTest.from_function(show_section, default_timeout=60)
    app.session_state["tiles"] = tiles
    app.run()
    assert not app.exception
    return [each.value for each in app.subheader]


def test_a_config_alone_gets_no_empty_chart() -> None:
    """An operator without a search has one config, which differs in nothing."""
    assert read_headings(64) == []
    assert read_headings(64, 128) == ["Over all parameters"]
