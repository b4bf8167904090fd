"""Writes the best configs in the formats of vLLM, sglang, flashinfer-bench and PyTorch's benchmark database."""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tilewatch.db.worker_reads.tuned_rows import NewestWinner
from tilewatch.kernels.contract import BadProblem, Problem
from tilewatch.kernels.problems.definitions import FIXED, Definition
from tilewatch.kernels.problems.patterns import parse_problem
from tilewatch.text import short_sha

Made = TypeVar("Made")
BUCKET = "m"
"""The size by which vLLM and sglang choose a config within a file. All other sizes are in the file's name."""

BLOCK = ("block_n", "block_k")
"""The sizes in the `block_shape` of a file's name."""

FILE_SIZES = ("e", "n", "k")
"""The sizes that come first in a file's name, in this order."""

REFERENCE = "torch"
"""The baseline that is the reference implementation of a Definition."""


@dataclass(frozen=True)
class Written:
    """The texts of files by file name, and a sentence for each omitted winner."""

    texts: Mapping[str, str]
    left_out: Sequence[str]


def write_serving_tables(winners: Sequence[NewestWinner], names: str | None, separator: str) -> Written:
    """Returns files for vLLM or sglang. `names`, such as "m x n x k", is used for problems without size names."""
    tables: dict[str, dict[int, Any]] = {}
    gpu_names: dict[tuple[str, str], set[str]] = {}
    for each in winners:
        gpu_names.setdefault((each.kernel, each.gpu_model), set()).add(each.gpu_name)
    winners = [
        replace(each, gpu_name=gpu) for each in winners for gpu in sorted(gpu_names[each.kernel, each.gpu_model])
    ]
    placed, left_out = _make_each(winners, lambda winner: (*_place_winner(winner, names, separator), winner.config))
    for name, bucket, config in placed:
        tables.setdefault(name, {})[bucket] = config
    texts = {name: json.dumps(dict(sorted(table.items())), indent=4) + "\n" for name, table in tables.items()}
    return Written(texts, list(dict.fromkeys(left_out)))


def _place_winner(winner: NewestWinner, names: str | None, separator: str) -> tuple[str, int]:
    """Returns the name of the file for a winner's config, and the config's key in it."""
    problem = parse_problem(winner.problem, names)
    sizes = {name.lower(): size for name, size in problem.sizes.items()}
    if BUCKET not in sizes:
        raise BadProblem(f"it has no size {BUCKET}, by which configs are chosen")
    first = sorted(sizes.keys() - {BUCKET, *BLOCK}, key=lambda name: ((*FILE_SIZES, name).index(name), name))
    parts = [f"{name.upper()}={sizes[name]}" for name in first]
    parts.append(f"device_name={_make_name(winner.gpu_name)}")
    parts += [f"{name}={value}" for name, value in problem.choices.items()]
    if sizes.keys() >= set(BLOCK):
        parts.append(f"block_shape=[{separator.join(str(sizes[name]) for name in BLOCK)}]")
    return f"{_make_name(winner.kernel)}/{','.join(parts)}.json", sizes[BUCKET]


def _make_name(text: str) -> str:
    """Returns a name as vLLM and sglang write it, with _ for slashes and other special characters."""
    return re.sub(r"[^\w()+-]", "_", text)


def write_traces(winners: Iterable[NewestWinner], definitions: Mapping[str, Definition], file: str) -> Written:
    """Returns a file with a Trace for each winner that has a Definition and whose output was checked."""
    lines, left_out = _make_each(winners, lambda winner: json.dumps(_make_trace(winner, definitions)) + "\n")
    return Written({file: "".join(lines)}, left_out)


def _make_trace(winner: NewestWinner, definitions: Mapping[str, Definition]) -> dict[str, Any]:
    if winner.kernel not in definitions:
        raise BadProblem("there is no Definition of this name")
    if winner.error is None:
        raise BadProblem("its output was compared with no reference")
    performance = {"latency_ms": winner.time_us / 1000}
    if winner.baseline == REFERENCE and winner.ratio is not None:
        performance |= {"reference_latency_ms": winner.time_us * winner.ratio / 1000, "speedup_factor": winner.ratio}
    return {
        "definition": winner.kernel,
        "workload": _make_workload(winner, definitions[winner.kernel]),
        "solution": f"{winner.repository}_{winner.kernel}_{short_sha(winner.sha)}",
        "evaluation": {
            "status": "PASSED",
            "environment": {"hardware": winner.gpu_name, "libs": dict(winner.toolchain)},
            "timestamp": winner.finished_at.isoformat(),
            "correctness": {
                "max_relative_error": winner.error,
                "max_absolute_error": "NaN",  # how flashinfer-bench writes a number that is not known
                "extra": {"max_relative_error": "largest error as a share of the reference's largest magnitude"},
            },
            "performance": performance,
        },
    }


def _make_workload(winner: NewestWinner, definition: Definition) -> dict[str, Any]:
    problem = Problem(FIXED, {}) if winner.problem == FIXED else parse_problem(winner.problem, None)
    try:
        given = {**problem.sizes, **{name: float(text) for name, text in problem.choices.items()}}
    except ValueError:
        raise BadProblem("it has a choice that is no number") from None
    definition.make_problem(given)
    values = definition.values(given)
    inputs: dict[str, Any] = {each.name: {"type": "random"} for each in definition.inputs if each.shape is not None}
    for each in definition.inputs:
        number = values.get(each.name, each.default)
        if each.shape is None and number is not None:
            inputs[each.name] = {"type": "scalar", "value": number}
    name = f"{winner.repository}/{winner.kernel}/{winner.problem}"
    return {
        "axes": {axis: given[axis] for axis in definition.free},
        "inputs": inputs,
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
    }


def write_records(winners: Sequence[NewestWinner], file: str) -> Written:
    """Returns a file in PyTorch's format with each winner's `latency_us`."""
    return Written({file: json.dumps(list(map(_make_record, winners)), indent=1) + "\n"}, ())


def _make_record(winner: NewestWinner) -> dict[str, Any]:
    facts = {"problem": winner.problem, "commit": winner.sha, "config": json.dumps(winner.config), "arch": winner.arch}
    return {
        "timestamp": int(winner.finished_at.timestamp()),
        "benchmark": {"name": "tilewatch", "extra_info": {"device": "cuda", **facts}},
        "model": {"name": f"{winner.kernel} {winner.problem}", "type": winner.kernel, "backend": "cutile"},
        "metric": {"name": "latency_us", "benchmark_values": [winner.time_us]},
        "runners": [{"name": winner.gpu_name, "type": winner.gpu_model}],
        "dependencies": {name: {"version": version} for name, version in winner.toolchain.items()},
    }


def _make_each(winners: Iterable[NewestWinner], make: Callable[[NewestWinner], Made]) -> tuple[list[Made], list[str]]:
    """Returns the results of `make`, and a sentence for each winner that `make` rejects with BadProblem."""
    made: list[Made] = []
    left_out: list[str] = []
    for winner in winners:
        try:
            made.append(make(winner))
        except BadProblem as error:
            left_out.append(f"{winner.kernel} {winner.problem} on {winner.gpu_model}: {error}")
    return made, left_out
