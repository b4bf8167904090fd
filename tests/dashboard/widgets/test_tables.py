"""What others wrote is no formula in a table that somebody saves and opens with a spreadsheet."""

from pathlib import Path

from streamlit.testing.v1 import AppTest

from tilewatch.text import WORD_JOINER

DASHBOARD = Path(__file__).parents[3] / "dashboard"


def draw_tables() -> None:
    import pandas as pd

    from tilewatch.dashboard.widgets import tables

    frame = pd.DataFrame(
        {"kernel": ["=HYPERLINK(1)", "gemm"], "us": [-1.5, 2.0], "state": ["+1+cmd|x", "-0.3 % (-1 to 2), equal"]}
    )
    tables.show(frame, key="plain")
    tables.show(frame.style.map(lambda _: "color: red", subset="state"), key="styled")


def test_no_cell_is_a_formula() -> None:
    frames = AppTest.from_function(draw_tables, default_timeout=60).run().dataframe
    assert len(frames) == 2
    for shown in (frame.value for frame in frames):
        assert shown["kernel"].tolist() == [f"{WORD_JOINER}=HYPERLINK(1)", "gemm"]
        assert shown["state"].tolist() == [f"{WORD_JOINER}+1+cmd|x", "-0.3 % (-1 to 2), equal"]
        assert shown["us"].tolist() == [-1.5, 2.0]


def test_every_table_is_drawn_this_way() -> None:
    drawing = {file.name for file in DASHBOARD.rglob("*.py") if "st.dataframe(" in file.read_text()}
    assert drawing == {"tables.py"}
