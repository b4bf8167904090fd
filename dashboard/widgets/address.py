"""Keeps the choices on a page in its address: the key of a widget is its query parameter.

The address is the state: each run of the page sets a widget from the address, and a choice changes the address.
Streamlit's own binding is not used (1.67, 2026-11-28). It fails or loses the parameter if a link leads to another page
with the same key. It also removes a default from the address, so that a saved link changes its meaning when the default
changes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import streamlit as st

YES, NO = "true", "false"
BY_HAND = "picked-by-hand"
LONGEST_NUMBER = 18
"""Digits of a number that a bigint holds."""


def open_page(page: str, parameters: Mapping[Any, object]) -> NoReturn:
    """Opens a page of views/ in this session, with these parameters. Every click on data opens its page this way."""
    st.switch_page(page, query_params={str(name): str(value) for name, value in parameters.items()})


def read_number(text: str) -> int | None:
    """Returns the number of a row that an address names; None if the text is no number, or too large for Postgres."""
    return int(text) if text.isdecimal() and len(text) <= LONGEST_NUMBER else None


def show_whole() -> None:
    """Writes all query parameters into the browser's address, because Streamlit (1.67) does not do so after a link to
    the current page. Adds nothing to the browser's history if this address is already shown."""
    st.query_params.from_dict({key: st.query_params.get_all(key) for key in st.query_params})


def restore(key: str, read: Callable[[list[str]], object], *, instead_of: Sequence[str] = ()) -> Callable[[], None]:
    """Sets a widget to the value that `read` makes of its parameter in the address. Returns the widget's `on_change`,
    which writes a new choice into the address and removes the parameters `instead_of`, which name the same thing."""
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
    """Writes several choices into this page's address, because the visitor clicked an element that names them."""
    st.session_state[BY_HAND] = True
    remove(instead_of)
    st.query_params.update(choices)


def remove(keys: Sequence[str]) -> None:
    for key in keys:
        if key in st.query_params:
            del st.query_params[key]


def was_picked_by_hand() -> bool:
    """Returns whether the visitor has chosen anything by hand. Other parameters may then belong to earlier choices."""
    return bool(st.session_state.get(BY_HAND))


def one_of(options: Sequence[str], default: str | None = None) -> Callable[[list[str]], str]:
    """Returns a function that picks the first of an address's values that is in `options`, else the default option."""
    otherwise = options[0] if default is None else default
    return lambda given: next((value for value in given if value in options), otherwise)


def is_yes(given: list[str]) -> bool:
    return given == [YES]
