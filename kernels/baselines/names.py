"""Lists the names of baselines that a library file may use, and chooses the main baseline among the measured ones."""

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
    """Returns the baseline with which a run's ratios compare: DeepGEMM, else the first measured one, else None. A copy
    is chosen last, because it computes nothing. Never chosen are baselines that run our own kernel (OURS), and
    baselines in another version, which come and go with their environment."""
    baselines = [name for name in measured if name not in OURS and not has_version(name)]
    return min(baselines, key=lambda name: (name == COPY) - (name == DEEPGEMM), default=None)


def find_versioned_name(baseline: str, packages: Mapping[str, str]) -> str | None:
    """Returns a baseline's name with versions, such as "deepgemm 0.2.5" or "cublas torch 2.11.0, nvidia-cublas
    13.10.0.20". `packages` maps installed packages to versions. Returns None if they lack the baseline's package."""
    known = BY_NAME.get(baseline)
    if known is None or known.package is None or known.package not in packages:
        return None
    name, library = name_version(baseline, packages[known.package]), find_library(baseline)
    return f"{name}, {library} {packages[library]}" if library in packages else name


def find_library(baseline: str) -> str:
    """Returns the package whose kernels a baseline calls, such as nvidia-cublas; "" if it is the baseline's own."""
    known = BY_NAME.get(baseline)
    return "" if known is None or known.library in (None, known.package) else str(known.library)
