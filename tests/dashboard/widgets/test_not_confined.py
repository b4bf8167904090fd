"""Every page says on which hosts a commit's code is not confined."""

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tilewatch.db.lifecycle import alarms
from tilewatch.db.session import session


def show() -> None:
    from tilewatch.dashboard.widgets import page_head

    page_head.mark_not_confined()


def test_a_host_of_an_open_alarm_is_named_on_the_page(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWATCH_DATABASE_URL", database_url)
    app = AppTest.from_function(show, default_timeout=120).run()
    assert (list(app.exception), list(app.markdown)) == ([], [])
    with session(database_url) as opened:
        for key, subject in (
            ("not_confined", "[n2](http://e)"),
            ("not_confined/as_root", "[n2](http://e)"),
            ("fetch_failed", "other"),
        ):
            alarms.open_once(opened, key=key, kind=key.partition("/")[0], subject=subject, detail="it")
    st.cache_data.clear()
    app = AppTest.from_function(show, default_timeout=120).run()
    (line,) = [each.value for each in app.markdown]
    assert "-badge[not confined] On " in line
    assert line.count("\\[n2\\](http:\N{WORD JOINER}//e)") == 1
    assert "other" not in line
