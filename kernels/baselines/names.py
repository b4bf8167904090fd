"""Lists the names of baselines that a library file may use."""

from collections.abc import Iterable, Mapping

from tilewatch.baselines import BY_NAME
from tilewatch.kernels import tile_table
from tilewatch.text import has_version, name_version

DEEPGEMM, COPY = "deepgemm", "copy"

SHIPPED = "shipped"
"""Name of the baseline that runs our kernel with the config that the watched library ships."""

OURS = (tile_table.BASELINE, SHIPPED)
"""Names of baselines that run our kernel with another config. No ratio compares with these baselines."""

NAMES = (*BY_NAME, tile_table.BASELINE)


def find_main(measured: Iterable[str]) -> str | None:
    """Returns the main baseline among the measured ones, or None. DeepGEMM comes first, a plain copy last."""
    baselines = [name for name in measured if name not in OURS and not has_version(name)]
    return min(baselines, key=lambda name: (name == COPY) - (name == DEEPGEMM), default=None)


def find_versioned_name(baseline: str, packages: Mapping[str, str]) -> str | None:
    """Returns a baseline's name with its version, such as "deepgemm 0.2.5", or None if its package is not installed."""
    known = BY_NAME.get(baseline)
    if known is None or known.package is None or known.package not in packages:
        return None
    name, library = name_version(baseline, packages[known.package]), find_library(baseline)
    return f"{name}, {library} {packages[library]}" if library in packages else name


def find_library(baseline: str) -> str:
    """Returns the package whose kernels a baseline calls, such as nvidia-cublas."""
    known = BY_NAME.get(baseline)
    return "" if known is None or known.library in (None, known.package) else str(known.library)
