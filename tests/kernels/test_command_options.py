"""What people type as options of a command: units have their sign."""

import pytest
import typer

from tilewatch.kernels.command_options import parse_share


def test_a_percentage_has_its_sign() -> None:
    assert (parse_share("2%"), parse_share("0.5 %"), parse_share("0%")) == (0.02, 0.005, 0.0)


@pytest.mark.parametrize("text", ["2", "0.02", "", "%", "nan%", "2%%", "2% 3", "100%", "-1%", "fast"])
def test_what_has_no_sign_or_is_no_share_is_refused(text: str) -> None:
    """0.02 is 0.02 % here and 2 % in the API to whoever leaves the sign out."""
    with pytest.raises(typer.BadParameter, match="with its sign, such as 2%"):
        parse_share(text)
