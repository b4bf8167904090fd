"""Streamlit hands a figure to Plotly twice; the second is no work where Plotly can tell that no number is another."""

import json

from streamlit.testing.v1 import AppTest


def draw_plots() -> None:
    import plotly.graph_objects as go

    from tilewatch.dashboard.widgets import plots

    plots.show(go.Figure(go.Bar(y=[1, 2])), "shown", "bars")
    plots.show_clickable(go.Figure(go.Bar(y=[1, 3])), "clickable", "bars that can be clicked", print)


def test_every_figure_names_a_revision_of_its_numbers_and_what_a_click_on_it_does() -> None:
    charts = AppTest.from_function(draw_plots, default_timeout=60).run().get("plotly_chart")
    assert len(charts) == 2
    for chart in charts:
        assert json.loads(chart.proto.spec)["layout"]["datarevision"]  # type: ignore[attr-defined]
    clickable = json.loads(charts[1].proto.spec)["layout"]  # type: ignore[attr-defined]
    assert (clickable["clickmode"], clickable["dragmode"]) == ("event+select", "pan"), "Streamlit has none to add"
