"""Names and writes a config, the parameters that a kernel is compiled with: one identity, one text, one option."""

import ast
import json
from collections.abc import Mapping
from typing import Any

from tilewatch.errors import ExpectedError


class BadConfigText(ExpectedError):
    """A text is not a config; the message names the part that is wrong."""


def config_key(config: Mapping[str, Any]) -> str:
    """Names a config: equal for equal parameters, in whatever order they were written."""
    return json.dumps(dict(config), sort_keys=True)


def config_text(config: Mapping[str, Any]) -> str:
    """Writes a config for people, in the order of its parameters: tile_m=64 num_ctas=1."""
    return " ".join(f"{name}={value}" for name, value in config.items()) or "the only config"


def config_option(config: Mapping[str, Any]) -> str:
    """Writes a config as options of commands take it, in the order of the alphabet: num_ctas=1,tile_m=64."""
    return ",".join(f"{name}={value}" for name, value in sorted(config.items()))


def parse_config(text: str) -> dict[str, Any]:
    """Reads num_ctas=1,out_dtype=float32,wide=True as `config_option` writes it; the empty text is the config without
    parameters. Raises BadConfigText."""
    config = {}
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        if not (name and value):
            raise BadConfigText(f"'{part}' is not a name and a value; expected a config such as num_ctas=1,tile_m=64")
        config[name.strip()] = _parse_value(value.strip())
    return config


def _parse_value(text: str) -> Any:
    """Returns a number, True, False or None where it is written as one, else the text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if value is None or isinstance(value, bool | int | float) else text
