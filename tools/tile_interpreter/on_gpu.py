"""Compares a GPU's outputs with the interpreter's: `python -m tools.tile_interpreter.on_gpu FILE` (see case_file.py).

Needs only NumPy and CuPy. The exit code is 1 if an output differs by more than the kernel's tolerance."""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.tile_interpreter.rounding import decode, difference


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case: its largest difference from the interpreter's outputs, as a share of the
    largest output."""

    kernel: str
    what: str
    same_bits: bool
    difference: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance


def answers(file: Path) -> Iterator[CaseResult]:
    import cupy

    contents = np.load(file)
    modules: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(json.loads(contents["manifest"].tobytes())):
            key = case["content_key"]
            if key not in modules:
                cubin = Path(folder) / f"{key}.cubin"
                cubin.write_bytes(contents[f"cubin/{key}"].tobytes())
                modules[key] = cupy.RawModule(path=str(cubin))
            arguments: list[Any] = []
            outputs: dict[str, Any] = {}
            for name, shape, _, is_output in case["arrays"]:
                if is_output:
                    like = contents[f"output/{number}/{name}"]
                    outputs[name] = cupy.empty(like.shape, like.dtype)
                    outputs[name].data.memset(0xFF, like.nbytes)
                    arguments.append(outputs[name])
                else:
                    arguments.append(cupy.asarray(contents[f"input/{case['kernel']}/{case['problem']}/{name}"]))
                arguments += [cupy.int32(size) for size in (*shape, *_strides(shape))]
            arguments += [(cupy.int32 if isinstance(each, int) else cupy.float32)(each) for each in case["scalars"]]
            modules[key].get_function(case["symbol"])(tuple(case["grid"]), (1,), tuple(arguments))
            cupy.cuda.get_current_stream().synchronize()
            yield _compare(case, {name: found.get() for name, found in outputs.items()}, contents, number)


def _compare(case: dict[str, Any], outputs: dict[str, np.ndarray], contents: Any, number: int) -> CaseResult:
    dtypes = {name: dtype for name, _, dtype, _ in case["arrays"]}
    same, worst = True, 0.0
    for name, bits in outputs.items():
        wanted = contents[f"output/{number}/{name}"]
        same = same and bits.tobytes() == wanted.tobytes()
        worst = max(worst, difference(decode(bits, dtypes[name]), decode(wanted, dtypes[name])))
    settings = " ".join(f"{name}={value}" for name, value in case["config"].items())
    # Both sides may be off by the tolerance, in opposite directions.
    return CaseResult(case["kernel"], f"{case['problem']} {settings}", same, worst, 2 * case["tolerance"])


def _strides(shape: list[int]) -> list[int]:
    return [int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]


def main() -> None:
    found = list(answers(Path(sys.argv[1])))
    for kernel in dict.fromkeys(answer.kernel for answer in found):
        of_it = [answer for answer in found if answer.kernel == kernel]
        print(
            f"{kernel}: {len(of_it)} cases, {sum(answer.agrees for answer in of_it)} agree, "
            f"{sum(answer.same_bits for answer in of_it)} bit for bit; largest difference "
            f"{max(each.difference for each in of_it):.3g}, accepted {max(each.tolerance for each in of_it):.3g}"
        )
    apart = [answer for answer in found if not answer.agrees]
    for answer in apart:
        print(f"differs: {answer.kernel} {answer.what}: {answer.difference:.3g}, accepted {answer.tolerance:.3g}")
    sys.exit(1 if apart else 0)


if __name__ == "__main__":
    main()
