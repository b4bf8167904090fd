"""Stores the choices on a page in its address. A widget's key is also its query parameter.

Streamlit's own binding is not used (1.67, 2026-11-28). It fails after a link to a page with a widget of the same key.
It also removes default values from the address, so that a saved link changes when a default changes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import streamlit as st

YES, NO = "true", "false"
BY_HAND = "picked-by-hand"
LONGEST_NUMBER = 18
"""Digits of a number that a bigint holds."""


def open_page(page: str, parameters: Mapping[Any, object]) -> NoReturn:
    """Opens a page of views/ in this session, with these parameters."""
    st.switch_page(page, query_params={str(name): str(value) for name, value in parameters.items()})


def read_number(text: str) -> int | None:
    """Returns the row number in an address; None if the text is not a valid number."""
    return int(text) if text.isdecimal() and len(text) <= LONGEST_NUMBER else None


def show_whole() -> None:
    """Writes all parameters into the browser's address. Streamlit (1.67) omits this after a link to the same page."""
    st.query_params.from_dict({key: st.query_params.get_all(key) for key in st.query_params})


def restore(key: str, read: Callable[[list[str]], object], *, instead_of: Sequence[str] = ()) -> Callable[[], None]:
    """Sets a widget to its value in the address, and returns the widget's `on_change` function."""
    st.session_state[key] = read(st.query_params.get_all(key))
    return lambda: write(key, instead_of)


def write(key: str, instead_of: Sequence[str]) -> None:
    """Writes a widget's new choice into the address. The browser's Back button then returns to the earlier choice."""
    remove(instead_of)
    chosen = st.session_state[key]
    st.session_state[BY_HAND] = True
    if isinstance(chosen, bool):
        st.query_params[key] = YES if chosen else NO
    elif isinstance(chosen, str):
        st.query_params[key] = chosen
    else:
        st.query_params[key] = [str(each) for each in chosen]


def pick(choices: Mapping[str, str], *, instead_of: Sequence[str] = ()) -> None:
    """Writes the choices that a click made into this page's address."""
    st.session_state[BY_HAND] = True
    remove(instead_of)
    st.query_params.update(choices)


def remove(keys: Sequence[str]) -> None:
    for key in keys:
        if key in st.query_params:
            del st.query_params[key]


def was_picked_by_hand() -> bool:
    """Returns whether the visitor has chosen anything by hand."""
    return bool(st.session_state.get(BY_HAND))


def one_of(options: Sequence[str], default: str | None = None) -> Callable[[list[str]], str]:
    """Returns a function that picks the first valid value of an address, else the default."""
    otherwise = options[0] if default is None else default
    return lambda given: next((value for value in given if value in options), otherwise)


def is_yes(given: list[str]) -> bool:
    return given == [YES]
