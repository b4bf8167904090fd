"""Lists the names of baselines that a library file may give, and chooses among those that were measured."""

from collections.abc import Iterable, Mapping

from tilewatch.baselines import BY_NAME
from tilewatch.kernels import tile_table
from tilewatch.text import has_version, name_version

DEEPGEMM, COPY = "deepgemm", "copy"

SHIPPED = "shipped"
"""The watched library's own config, timed beside the winner: it is the kernel itself and not another library."""

OURS = (tile_table.BASELINE, SHIPPED)
"""Names of the kernel itself with another config. No ratio is to one of them."""

NAMES = (*BY_NAME, tile_table.BASELINE)


def find_main(measured: Iterable[str]) -> str | None:
    """Returns the baseline of all ratios of a run; None where no baseline is among those that it measured.

    DeepGEMM comes first, then the kernel's others in its order. A copy moves the bytes and computes nothing: it is a
    limit, and the main baseline only of a kernel beside which nothing else was measured. A baseline of another version
    comes and goes with its environment, so it is never the main one.
    """
    baselines = [name for name in measured if name not in OURS and not has_version(name)]
    return min(baselines, key=lambda name: (name == COPY) - (name == DEEPGEMM), default=None)


def find_versioned_name(baseline: str, packages: Mapping[str, str]) -> str | None:
    """Returns the name under which an environment with these packages, versions by name, has its times stored, such as
    "deepgemm 0.2.5" or "cublas torch 2.11.0, nvidia-cublas 13.10.0.20"; None where it lacks the baseline's library."""
    known = BY_NAME.get(baseline)
    if known is None or known.package is None or known.package not in packages:
        return None
    name, library = name_version(baseline, packages[known.package]), find_library(baseline)
    return f"{name}, {library} {packages[library]}" if library in packages else name


def find_library(baseline: str) -> str:
    """Returns the package whose kernels run where another one is called; empty where there is none."""
    known = BY_NAME.get(baseline)
    return "" if known is None or known.library in (None, known.package) else str(known.library)
