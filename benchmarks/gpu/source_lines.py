"""Times ways to write the FP8 sums under two toolchains, each beside today's line under the first.

`python -m benchmarks.gpu.source_lines A B --toolchains FOLDER`, on a machine with a GPU: two minutes.
"""

import argparse
import json
import re
import shutil
import statistics
import tempfile
from pathlib import Path

from tilewatch.kernels.comparing.gpu_bench import find_gpu
from tilewatch.kernels.comparing.toolchains.bench import GpuPairBench, Launched, PairWork
from tilewatch.kernels.compiling import store
from tilewatch.kernels.compiling.compiler import Compiler
from tilewatch.kernels.library import FOLDER
from tilewatch.kernels.results import Cubin, Params
from tilewatch.kernels.toolchains.toolchain import find_toolchain

REPORT = Path("recordings/toolchains/h200-13.4.92..13.5.37.json")
"""Its winners under A are the configs."""

TODAY, LIMIT_S = "today's", 100.0
FILES = ("gemm_fp8_scaled.py", "grouped_gemm.py")
WAYS = {
    TODAY: ("", ""),
    "- mma * -scale": (r"(\w+) = \1 \+ (ct\.mma\(.*?, use_fast_acc=True\)|product) \* ", r"\1 = \1 - \2 * -"),
    "without fast sums": (r"zero, use_fast_acc=True\)", "zero)"),
}
"""A pattern of the lines that change, and what they become."""

PROBLEMS = (
    ("gemm_fp8_scaled", "4096x7168x2048"),
    ("gemm_fp8_scaled", "4096x4096x7168"),
    ("gemm_fp8_scaled", "320x32576x7168"),
    ("grouped_fp8", "8x4096x7168x3072"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--toolchains", type=Path, required=True, help="the folder of toolchains")
    parser.add_argument("--launches", type=int, default=8)
    options = parser.parse_args()
    gpu = find_gpu(0)
    assert gpu.model is not None, f"{gpu.name} is too old"
    configs = _read_configs()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        url = store.folder(work / "store")
        built: dict[tuple[str, str, str, str], Cubin] = {}
        for name in (options.a, options.b):
            with Compiler(url, limit_s=LIMIT_S, toolchain=find_toolchain(options.toolchains, name)) as compiler:
                for way in WAYS:
                    library = _write_library(work / way, way)
                    for kernel, problem in PROBLEMS:
                        config = configs[kernel, problem]
                        compiled = compiler.compile(library, kernel, problem, config, gpu.model.arch)
                        if compiled.content_key is None or compiled.symbol is None:
                            raise SystemExit(f"{kernel} {problem}, {way}, {name}: {compiled.failure}")
                        built[name, way, kernel, problem] = Cubin(config, compiled.content_key, compiled.symbol)
        with GpuPairBench(FOLDER, gpu, url) as bench:
            for (name, way, kernel, problem), cubin in built.items():
                base = built[options.a, TODAY, kernel, problem]
                works = [PairWork(kernel, problem, base, cubin, launches=each) for each in range(options.launches)]
                results = [result for _, result in bench.launch_each(works)]
                ratios = [each.b_us / each.a_us for each in results if isinstance(each, Launched)]
                change = f"{statistics.mean(ratios) - 1:+.1%}" if ratios else f"fails: {results[0]}"
                print(f"{kernel} {problem}, {way}, {name}: {change} of {len(ratios)} launches", flush=True)


def _read_configs() -> dict[tuple[str, str], Params]:
    pairs = json.loads(REPORT.read_text())["pairs"]
    return {(each["kernel"], each["problem"]): each["a"][0]["config"] for each in pairs}


def _write_library(folder: Path, way: str) -> Path:
    """A copy of the library with its sums written another way."""
    if not folder.exists():
        shutil.copytree(FOLDER, folder)
        for file in FILES:
            (folder / file).write_text(re.sub(*WAYS[way], (folder / file).read_text()))
    return folder


if __name__ == "__main__":
    main()
