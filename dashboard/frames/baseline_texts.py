"""Writes a baseline's version and config from the JSON stored with a measurement."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewatch.configs import config_text
from tilewatch.text import has_version, name_version

SETTING = re.compile(r"\b(\w+)=([\w.]+)")
SETTINGS = (
    *("block_m", "block_n", "block_k", "num_stages", "cluster_m", "cluster_n", "swap_ab"),
    *("swizzle_a_mode", "swizzle_b_mode", "swizzle_cd_mode"),
)
"""The names of the settings in DeepGEMM's DG_PRINT_CONFIGS lines. The swizzle modes are in bytes."""


def version_name(implementation: str, detail: Mapping[str, Any]) -> str:
    """Returns a baseline's name with its version if known, e.g. "deepgemm 0.2.5"."""
    version = str(detail.get("version") or "").split("+cu")[0]
    return implementation if not version or has_version(implementation) else name_version(implementation, version)


def name_lines(points: pd.DataFrame) -> pd.Series:
    """Returns the name of each point's line in a trend. A baseline has one line per version."""
    rows = zip(points["implementation"], points["detail"], points["role"], strict=True)
    names = [name if role == "kernel" else version_name(name, detail) for name, detail, role in rows]
    lines = pd.Series(names, index=points.index, dtype=object)
    of_environment = points["implementation"].map(has_version)
    if not of_environment.any():
        return lines
    # A version may be timed both as installed and in a separate environment, which then has its own line.
    twice = points[["run_id"]].assign(line=lines).duplicated(keep=False)
    return lines.mask(twice & of_environment, lines + ", environment")


def describe_choice(params: Mapping[str, Any] | None, detail: Mapping[str, Any]) -> str:
    """Returns a baseline's config as text, or its settings or GPU kernels if it has no config."""
    if params is not None:
        return config_text(params)
    printed = dict(SETTING.findall(" ".join(detail.get("chose") or ())))
    chosen = {name: printed[name] for name in SETTINGS if name in printed}
    if chosen:
        return config_text(chosen)
    kernels = Counter(map(_short_name, detail.get("kernels") or ()))
    return ", ".join(
        name if count == 1 else f"{count}\N{NO-BREAK SPACE}x\N{NO-BREAK SPACE}{name}" for name, count in kernels.items()
    )


def list_missing(detail: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each reason why baselines could not run."""
    names: dict[str, list[str]] = {}
    for name, why in (detail.get("missing") or {}).items():
        names.setdefault(str(why).split(". ")[0].rstrip("."), []).append(name)
    return [f"{' and '.join(each)} could not run: {why}." for why, each in names.items()]


def _short_name(kernel: str) -> str:
    """Returns the last part of a mangled C++ name, e.g. sum for _ZN9deep_gemm3sumI..."""
    found, rest = kernel, kernel.removeprefix("_ZN" if kernel.startswith("_ZN") else "_Z")
    while rest != kernel and (length := re.match(r"\d+", rest)):
        start = length.end()
        found, rest = rest[start : start + int(length[0])], rest[start + int(length[0]) :]
    return found
