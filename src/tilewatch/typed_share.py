"""Reads the shares that people type as options of a command."""

import typer


def parse_share(text: str) -> float:
    """2% and 2 are both 0.02. Raises BadParameter."""
    try:
        share = float(text.replace("%", "").strip()) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise typer.BadParameter(f"'{text}' is not a percentage; expected one from 0% to under 100%, such as 2%")
    return share
