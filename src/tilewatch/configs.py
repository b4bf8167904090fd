"""Writes and reads configs as text. A config is the parameters with which a kernel is compiled."""

import ast
import hashlib
import json
from collections.abc import Mapping
from math import ceil
from typing import Any

from tilewatch.errors import ExpectedError

STRONG = 0.05
"""A certificate is weak if an untried config is 1 % better with more than this probability."""


class BadConfigText(ExpectedError):
    """Raised if a text is not a config. The message contains the wrong part."""


def config_key(config: Mapping[str, Any]) -> str:
    """Returns a text that is equal for configs with equal parameters in any order."""
    return json.dumps(dict(config), sort_keys=True)


def config_sha256(config: Mapping[str, Any]) -> str:
    """Returns the hash that identifies a config or a toolchain in the database."""
    canonical = json.dumps(dict(config), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def config_text(config: Mapping[str, Any]) -> str:
    """Returns a config for people, in the order of its parameters: tile_m=64 num_ctas=1."""
    return " ".join(f"{name}={value}" for name, value in config.items()) or "the only config"


def config_option(config: Mapping[str, Any]) -> str:
    """Returns a config for an option of a command, in alphabetical order: num_ctas=1,tile_m=64."""
    return ",".join(f"{name}={value}" for name, value in sorted(config.items()))


def parse_config(text: str) -> dict[str, Any]:
    """Returns the config that `config_option` wrote. Raises BadConfigText if the text is not a config."""
    config = {}
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        if not (name and value):
            raise BadConfigText(f"'{part}' is not a name and a value; expected a config such as num_ctas=1,tile_m=64")
        config[name.strip()] = _parse_value(value.strip())
    return config


def describe_certificate(certificate: Mapping[str, Any]) -> str:
    """Returns a sentence on the chance that an untried config is faster (docs/use/spaces.md)."""
    space, tried, looked = certificate["space"], certificate["tried"], certificate["full_look"]
    if certificate["untried"] == 0:
        return f"All {space:,} configs of the space were tried with this code and driver, the last of them on {looked}."
    chances = [f"{ceil(100 * certificate[name])} %" for name in ("chance_1", "chance_3")]
    weak = ", which is weak" if certificate["chance_1"] > STRONG else ""
    return (
        f"Of {space:,} configs {tried:,} were tried with this code and driver: another one is better by 1 % with a "
        f"chance of at most {chances[0]}, by 3 % of at most {chances[1]}{weak}."
    )


def _parse_value(text: str) -> Any:
    """Returns the number, True, False or None that a text stands for. Returns any other text unchanged."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if value is None or isinstance(value, bool | int | float) else text
