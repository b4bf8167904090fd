"""Defines what a library file must provide, and the values that pass between Tilewatch and a library file.

A library file defines its kernel, the arrays and constants of its launches, its search space, its grid and its
reference. It uses no queues, databases, timers or cubins. All values here are plain and frozen."""

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
    """Raised if a text does not name a problem of this kernel. The message is a sentence for a person."""


@dataclass(frozen=True)
class Problem:
    """An input size on which a kernel is run. Users type its `name`, which is also stored. The name determines `sizes`,
    the problem's numbers ({"m": 320, ...}), and `choices`, the problem's other values ({"dtype": "bf16"})."""

    name: str
    sizes: Mapping[str, int]
    choices: Mapping[str, str] = field(default_factory=dict)


Fill = Literal["normal", "scale", "given"]
"""How an input is filled. normal: standard normal values without zeros (for uint8 any byte but 0). scale: positive
values near 1, like block scales. given: the values that the kernel's `given` returns, because these values are part of
the problem (such as the group of each row)."""


@dataclass(frozen=True)
class Array:
    """One array parameter of a kernel, row-major. `dtype` is a cuTile type name such as "float8_e4m3fn".

    If `aligned`, the compiler is told which sizes are multiples of 16, because TMA needs this. If not, the array's
    sizes do not affect the cubin, so more problems share a cubin. This suits small arrays that TMA does not load.

    An `output` is only written. An `inout` array is changed in place: it is filled like an input, restored before each
    checked launch, and checked like an output."""

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
    """A search space: all combinations of the values of `axes` that the filter `only` accepts. `size` counts all
    combinations. `only` removes configs that cannot work on the hardware or give the same launch as another config. It
    must keep slow configs, because another compiler may make them fast. A ShortList may omit slow configs."""

    axes: tuple[tuple[str, tuple[int, ...]], ...]
    only: Callable[[Config], bool] | None = None

    @property
    def size(self) -> int:
        size = 1
        for _, values in self.axes:
            size *= len(values)
        return size

    def configs(self) -> tuple[dict[str, int], ...]:
        """Lists every config. The last axis varies fastest."""
        found: list[dict[str, int]] = [{}]
        for name, values in self.axes:
            found = [{**config, name: value} for config in found for value in values]
        return tuple(config for config in found if self.only is None or self.only(config))


@dataclass(frozen=True)
class ShortList:
    """The configs that every night times. `has` says whether a config is on the list. The list was chosen from times
    measured until `date`, with `compiler` ("tileiras 13.4.92"), on `gpus`, with the library's commit `source`."""

    has: Callable[[Config], bool]
    compiler: str
    gpus: tuple[str, ...]
    source: str
    date: str


@dataclass(frozen=True)
class Kernel:
    """A kernel of a library file, with everything that a sweep of the kernel's configs needs.

    entry      the `cuda.tile.kernel`. Its parameters are those named in `scalars`, the `constants` (annotated
               ct.Constant) in order, and the `arrays` in order. The three kinds may be mixed
    problems   the problems on which the kernel is watched
    parse      text -> the Problem that the text names; raises BadProblem if the text names none
    space      architecture ("sm_90") -> Space
    arrays     Problem -> the array parameters
    constants  (Problem, Config) -> the compile-time constants
    grid       (Problem, Config, SM count) -> grid in tile blocks
    reference  (inputs by name, array module) -> the right outputs by name, for all arrays that the kernel writes; NaN
               where any value is right (rows of padding). Inputs are CuPy or NumPy arrays, in float32 or as given
    tolerance  Problem -> largest accepted |out - reference| as a share of the reference's largest magnitude; see
               kernels/gpu/result_error.py for what else is judged
    flops      Problem -> floating-point operations
    bytes      Problem -> fewest bytes moved through device memory
    baselines  names of libraries' kernels that solve the same problem, the main one first (baselines.names.find_main)
    nightly    whether the nightly suite sweeps the kernel; if not, it is only swept on request
    given      Problem -> the values of the inputs with fill "given", as NumPy arrays
    scalars    (Problem, Config) -> the run-time scalars, by the name of their parameter: an int is launched as int32,
               or as int64 if the parameter is annotated so, a float as float32
    weights    Problem -> how often one step of each language model runs the problem, by the model's name. A model's
               total time is the sum of its problems' times, each multiplied by its weight
    short_lists  architecture ("sm_90") -> the short list of its space; without a list, nights time the whole space.
               short_lists.json of the library folder fills it; library files of 2026-11-28 give it themselves
    as_launched  whether cubins assume what ct.launch does: strides in multiples of 16 bytes, and each stride of 1 as a
               constant. If False: strides in multiples of 16 elements, the last stride as a constant (until 2026-11)
    """

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
        """Lists the configs that every night times: the short list, or else the whole space."""
        listed, configs = self.short_lists.get(arch), self.space(arch).configs()
        return configs if listed is None else tuple(filter(listed.has, configs))
