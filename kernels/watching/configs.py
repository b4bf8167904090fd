"""Converts between plain JSON values and configs of classes that a repository defines."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tilewatch.configs import config_key
from tilewatch.kernels.contract import HINTS, MOST_CONFIGS, Problem
from tilewatch.kernels.watching.captured_values import ADDRESS
from tilewatch.kernels.watching.declare import BadWatchFile, Configs
from tilewatch.kernels.watching.tracer import list_fields

FUNCTION = re.compile(r"<function ([\w.]+) at 0x[0-9a-f]+>")
"""Matches the text of a function that its name identifies: no lambda, and none that another function makes."""

PlainConfig = dict[str, Any]
"""A config as it is stored: a mapping from parameter names to numbers, bools and texts."""

KERNEL_OPTIONS = (*HINTS, "opt_level")
"""Keyword arguments of `ct.kernel` (cuda-tile 1.7). HINTS has no opt_level, because the keys of stored cubins contain
HINTS, so a new entry would change all keys and all cubins would be compiled again."""


def make_plain(config: Any) -> PlainConfig:
    """Returns a config's parameters as values that JSON can hold. Raises BadWatchFile if that is impossible."""
    return {name: _make_plain_value(value) for name, value in list_fields(config).items()}


def _make_plain_value(value: Any) -> Any:
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    if isinstance(value, set | frozenset):  # its order follows from hashes of this process
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    text = FUNCTION.sub(r"\1", str(getattr(value, "_pyfunc", value))).removeprefix("torch.")  # `_pyfunc`: of a kernel
    if ADDRESS.search(text):
        raise BadWatchFile(
            f"a config has {ADDRESS.sub('', text)}, which has no name that is equal in each process: give a text or a "
            "number, and let the host code choose by it, or give its class a `__repr__`"
        )
    return text


def drop_repetitions(configs: Iterable[PlainConfig]) -> tuple[PlainConfig, ...]:
    """Returns the configs without duplicates. Raises BadWatchFile if more than MOST_CONFIGS configs remain."""
    found: dict[str, PlainConfig] = {}
    for config in configs:
        found.setdefault(config_key(config), config)  # not by `==`, for which 1, 1.0 and True are one value
        _require_few(len(found))
    return tuple(found.values())


def make_like(example: Any, fields: Mapping[str, Any]) -> Any:
    """Returns a copy of a config with other parameter values."""
    if isinstance(example, Mapping):
        return {**example, **fields}
    if dataclasses.is_dataclass(example) and not isinstance(example, type):
        return dataclasses.replace(example, **fields)
    if hasattr(example, "_replace"):
        return example._replace(**fields)
    return SimpleNamespace(**{**list_fields(example), **fields})


@dataclasses.dataclass(frozen=True)
class GivenConfigs:
    """The configs of a watch file as plain values. `values` maps each replaced value to its original object."""

    configs: tuple[PlainConfig, ...]
    values: Mapping[tuple[str, str], Any]

    def make_original(self, config: PlainConfig) -> dict[str, Any]:
        """Returns a config in which the watch file's original objects replace their plain values."""
        return {name: self.values.get((name, repr(value)), value) for name, value in config.items()}


def read_given(configs: Configs, problem: Problem, arch: str) -> GivenConfigs:
    """Returns a watch file's configs as plain values. Raises BadWatchFile if they are invalid."""
    given = list_configs(configs, problem, arch)
    pairs = [(name, value) for each in given for name, value in each.items()]
    values = {(name, repr(plain)): value for name, value in pairs if (plain := _make_plain_value(value)) is not value}
    return GivenConfigs(drop_repetitions(make_plain(each) for each in given), values)


def list_configs(configs: Configs, problem: Problem, arch: str) -> tuple[Mapping[str, Any], ...]:
    """Returns the configs that a watch file gives. A dict of lists stands for all combinations of its values."""
    found = configs(problem, arch) if callable(configs) else configs
    if isinstance(found, Mapping):
        for name, values in found.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise BadWatchFile(f"`configs` has the axis '{name}' with {values!r}; expected a list of values")
        _require_few(math.prod(len(values) for values in found.values()))
        return tuple(dict(zip(found, values, strict=True)) for values in itertools.product(*found.values()))
    if (
        isinstance(found, str)
        or not isinstance(found, Sequence)
        or not all(isinstance(each, Mapping) for each in found)
    ):
        raise BadWatchFile(f"`configs` gives {found!r}; expected a list of dicts, or a dict of lists")
    return tuple(found)


def _require_few(count: int) -> None:
    if count > MOST_CONFIGS:
        raise BadWatchFile(f"there are {count:,} configs or more; expected {MOST_CONFIGS:,} at most")


def list_axes(configs: Sequence[PlainConfig]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Returns the name of each parameter with all its values. Numbers are sorted."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    axes = []
    for name in names:
        values = list({repr(config[name]): config[name] for config in configs if name in config}.values())
        numbers = all(isinstance(value, int | float) for value in values)
        axes.append((name, tuple(sorted(values) if numbers else values)))
    return tuple(axes)
