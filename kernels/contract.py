"""Defines the classes with which a library file describes its kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tilewatch.errors import ExpectedError

Config = Mapping[str, int]
"""One point of a search space: maps parameter names to values, e.g. {"tile_m": 64, ..., "num_ctas": 1}."""

HINTS = ("num_ctas", "occupancy", "num_worker_warps")
"""Parameters that cuTile takes as compiler hints. The library file itself uses all other parameters of a config."""

MOST_CONFIGS = 20_000
"""Most configs of one search space, before `only` filters them. Our largest space has 18,432 configs. Submitting a
space of 400,000 had not ended after 5 minutes (2026-11-21)."""


class BadProblem(ExpectedError, ValueError):
    """Raised if a problem's name is wrong, or if the kernel does not support the problem."""


@dataclass(frozen=True)
class Problem:
    """An input size on which a kernel is run. Users type its name, such as 320x32576x7168."""

    name: str
    sizes: Mapping[str, int]
    choices: Mapping[str, str] = field(default_factory=dict)  # such as {"dtype": "bf16"}


Fill = Literal["normal", "scale", "given"]
"""How an input is filled. normal: standard normal values without zeros (for uint8 any byte but 0). scale: positive
values near 1, like block scales. given: the values that the kernel's `given` returns, because these values are part of
the problem (such as the group of each row)."""


@dataclass(frozen=True)
class Array:
    """One array parameter of a kernel, row-major. `dtype` is a cuTile type name such as "float8_e4m3fn".

    If `aligned`, the compiler knows which sizes are multiples of 16, because TMA needs this. An `output` is only
    written. An `inout` array is also read, so it is restored before each checked launch."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    output: bool = False
    fill: Fill = "normal"
    aligned: bool = True
    inout: bool = False

    @property
    def written(self) -> bool:
        return self.output or self.inout


@dataclass(frozen=True)
class Space:
    """All configs of a kernel: the combinations of values of `axes` that the filter `only` accepts."""

    axes: tuple[tuple[str, tuple[int, ...]], ...]
    only: Callable[[Config], bool] | None = None  # must accept slow configs, which another compiler may make fast

    @property
    def size(self) -> int:
        size = 1
        for _, values in self.axes:
            size *= len(values)
        return size

    def configs(self) -> tuple[dict[str, int], ...]:
        """Lists every config."""
        found: list[dict[str, int]] = [{}]
        for name, values in self.axes:
            found = [{**config, name: value} for config in found for value in values]
        return tuple(config for config in found if self.only is None or self.only(config))


@dataclass(frozen=True)
class ShortList:
    """Says which configs each nightly sweep times, and from which measurements these configs were chosen."""

    has: Callable[[Config], bool]
    compiler: str
    gpus: tuple[str, ...]
    source: str
    date: str


@dataclass(frozen=True)
class Kernel:
    """A kernel of a library file, with everything that a sweep of its configs needs.

    entry      the `cuda.tile.kernel`. Its `scalars`, `constants` and `arrays` may be mixed, but each keeps its order
    problems   the input sizes on which the kernel is swept
    parse      text -> the Problem that the text names; raises BadProblem if there is none
    space      architecture ("sm_90") -> Space
    arrays     Problem -> the array parameters
    constants  (Problem, Config) -> the compile-time constants
    grid       (Problem, Config, SM count) -> grid in tile blocks
    reference  (inputs by name, array module) -> the right outputs by name. NaN where any value is right (padding).
               Inputs are CuPy or NumPy arrays, in float32 or as given
    tolerance  Problem -> largest accepted |out - reference| as a share of the largest |reference|
    flops      Problem -> floating-point operations
    bytes      Problem -> fewest bytes moved through device memory
    baselines  names of other libraries' kernels that solve the same problem, the main one first
    nightly    whether the nightly suite sweeps the kernel; if not, it is only swept on request
    given      Problem -> the values of the inputs with fill "given", as NumPy arrays
    scalars    (Problem, Config) -> the run-time scalars by name. An int is launched as int32, or as int64 if its
               parameter is annotated so; a float as float32
    weights    Problem -> how often one step of each language model runs the problem, by the model's name
    short_lists  architecture ("sm_90") -> the short list, from short_lists.json. Without one, nightly sweeps time all
               configs. Library files of 2026-11-28 contain their short lists
    as_launched  whether cubins assume the same as in ct.launch: strides are multiples of 16 bytes, and each stride of 1
               is a constant. If False: strides are multiples of 16 elements, and the last stride is a constant"""

    name: str
    entry: Any
    problems: tuple[Problem, ...]
    parse: Callable[[str], Problem]
    space: Callable[[str], Space]
    arrays: Callable[[Problem], tuple[Array, ...]]
    constants: Callable[[Problem, Config], tuple[int | float, ...]]
    grid: Callable[[Problem, Config, int], tuple[int, int, int]]
    reference: Callable[[Mapping[str, Any], Any], Mapping[str, Any]]
    tolerance: Callable[[Problem], float]
    flops: Callable[[Problem], int]
    bytes: Callable[[Problem], int]
    baselines: tuple[str, ...]
    nightly: bool = True
    given: Callable[[Problem], Mapping[str, Any]] | None = None
    scalars: Callable[[Problem, Config], Mapping[str, int | float]] | None = None
    weights: Callable[[Problem], Mapping[str, float]] | None = None
    as_launched: bool = False
    short_lists: Mapping[str, ShortList] = field(default_factory=dict)

    def list_nightly(self, arch: str) -> tuple[dict[str, int], ...]:
        """Lists the configs that each nightly sweep times: the short list, or all configs if there is no short list."""
        listed, configs = self.short_lists.get(arch), self.space(arch).configs()
        return configs if listed is None else tuple(filter(listed.has, configs))
