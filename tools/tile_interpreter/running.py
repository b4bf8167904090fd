"""Loads library files with the interpreter in place of `cuda.tile`, and runs a kernel's config on given inputs.

Only the loaded file's own `import` finds the stand-in."""

import builtins
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cuda.tile as ct
import numpy as np

from tilewatch.kernels.contract import Array as Spec
from tilewatch.kernels.contract import Config, Kernel, Problem
from tools.tile_interpreter.array import MemoryArray
from tools.tile_interpreter.language import Block, Language
from tools.tile_interpreter.rounding import RAW
from tools.tile_interpreter.tile import Tile, binary

SM_COUNT = 3
"""Multiprocessors; so few that persistent kernels compute several tiles per block."""


@dataclass(frozen=True)
class Interpreted:
    """A kernel of a library file whose entry the interpreter can run."""

    kernel: Kernel
    language: Language


def load(path: Path) -> dict[str, Interpreted]:
    """Returns the kernels of one library file, by name."""
    language = Language()
    module = types.ModuleType(f"interpreted.{path.stem}")
    module.__dict__["__builtins__"] = _builtins(language)
    module.__dict__["__file__"] = str(path)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)  # noqa: S102 - the repository's own library
    return {kernel.name: Interpreted(kernel, language) for kernel in module.KERNELS}


def run(
    found: Interpreted, problem: Problem, config: Config, inputs: Mapping[str, np.ndarray], sm_count: int = SM_COUNT
) -> dict[str, np.ndarray]:
    """Returns raw outputs by name. `inputs` are raw bits in the shape of their specs; outputs start as NaN. Parameters
    for run-time scalars come last."""
    kernel, language = found.kernel, found.language
    specs = kernel.arrays(problem)
    raws = {spec.name: make_poisoned(spec) if spec.output else inputs[spec.name] for spec in specs}
    arrays = [MemoryArray(raws[spec.name], getattr(ct, spec.dtype), name=spec.name) for spec in specs]
    constants = kernel.constants(problem, config)
    scalars = kernel.scalars(problem, config) if kernel.scalars else {}
    grid = kernel.grid(problem, config, sm_count)
    with np.errstate(all="ignore"):  # kernels may overflow and compute NaN
        for z in range(grid[2]):
            for y in range(grid[1]):
                for x in range(grid[0]):
                    language.block = Block((x, y, z), grid)
                    kernel.entry.function(*arrays, *constants, **scalars)
    return {spec.name: raws[spec.name] for spec in specs if spec.output}


def make_poisoned(spec: Spec) -> np.ndarray:
    """Returns an array of all ones in binary: a NaN in every float type, so that an element left unwritten
    is noticed."""
    out = np.empty(spec.shape, RAW[spec.dtype])
    out.view(np.uint8).fill(0xFF)
    return out


def _builtins(language: Language) -> dict[str, Any]:
    stand_in = types.SimpleNamespace(tile=language)

    def importing(name: str, *where: Any, **kwargs: Any) -> Any:
        return stand_in if name == "cuda.tile" else builtins.__import__(name, *where, **kwargs)

    def smallest(*values: Any) -> Any:
        return _fold(np.fmin, builtins.min, values)

    def largest(*values: Any) -> Any:
        return _fold(np.fmax, builtins.max, values)

    return {**vars(builtins), "__import__": importing, "min": smallest, "max": largest}


def _fold(compute: Any, plain: Any, values: tuple[Any, ...]) -> Any:
    """Replaces Python's min and max, which cuTile treats as its own if one of the values is a tile."""
    if len(values) == 2 and any(isinstance(value, Tile) for value in values):
        return binary(compute, *values)
    return plain(*values)
