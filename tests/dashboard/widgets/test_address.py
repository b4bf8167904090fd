"""Choices that the address keeps."""

from pathlib import Path

from tilewatch import dashboard

FOLDER = Path(dashboard.__file__).parent


def test_one_function_opens_pages_and_no_choice_is_bound_by_streamlit() -> None:
    """What Streamlit binds to the address breaks every link with a parameter of that name (widgets/address.py)."""
    texts = {path.relative_to(FOLDER).as_posix(): path.read_text() for path in FOLDER.rglob("*.py")}
    assert [path for path, text in texts.items() if "switch_page(" in text] == ["widgets/address.py"]
    assert [path for path, text in texts.items() if "bind=" in text] == []
