"""Records host code's calls of `ct.launch` and `exhaustive_search`. Calls outside of a trace raise an error."""

import contextlib
import importlib.machinery
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import cuda.tile.tune

from tilewatch.errors import ExpectedError
from tilewatch.kernels.watching.device_array import is_array


class TracingError(ExpectedError):
    """Raised if host code cannot be traced. The message is a sentence."""


@dataclass(frozen=True)
class TracedLaunch:
    """A call of `ct.launch`. A programmatic dependent launch may begin before the previous kernel ends."""

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    stream: Any
    programmatic_dependent_launch: bool = False


@dataclass
class LaunchTrace:
    """The launches and searches of one run of host code, and the result of the run.

    `regions` are timed ranges of launches: (start, end, is_fastest). `kept` are the indices of launches that are not
    warm-ups, or None for all. `missing` is the error for the first unknown value that host code needed."""

    launches: list[TracedLaunch] = field(default_factory=list)
    searches: list[tuple[Any, ...]] = field(default_factory=list)
    regions: list[tuple[int, int, bool]] = field(default_factory=list)
    kept: list[int] | None = None
    missing: TracingError | None = None
    is_refused: bool = False
    result: Any = None


Choose = Callable[[int, tuple[Any, ...]], Any]
"""A function from the number of a search and its configs to the config that counts as the best."""

Execute = Callable[[TracedLaunch], None]

EXPERIMENTAL = "cuda.tile_experimental"
"""Package that had `exhaustive_search` until 2026-04. Older commits import it, but the compiler cannot use it."""

_real_launch = ct.launch


@dataclass
class _Current:
    trace: LaunchTrace
    choose: Choose
    execute: Execute | None
    config: Mapping[str, Any] | None
    guess: int | None


_current: list[_Current] = []

GUESSES = (0, 1)
"""Guesses for the unknown values that host code copies to the host. Each run of host code uses one guess for all."""


def choose_first(_: int, configs: tuple[Any, ...]) -> Any:
    return configs[0]


def trace_launches(
    run: Callable[[], Any],
    *,
    choose: Choose = choose_first,
    execute: Execute | None = None,
    config: Mapping[str, Any] | None = None,
) -> LaunchTrace:
    """Traces a run of host code. Raises TracingError if nothing is launched or if a launch may depend on guesses."""
    finished: list[LaunchTrace] = []
    failed: Exception | None = None
    for guess in GUESSES:
        with open_trace(execute, choose=choose, config=config, guess=guess) as trace:
            try:
                trace.result = run()
                finished.append(trace)
            except TracingError:
                raise
            except Exception as error:  # other people's checks may raise anything where they compare guesses
                if trace.missing is None:
                    raise
                failed = error
        if trace.missing is None:
            break
        if trace.is_refused:  # and the host code caught the error
            raise trace.missing
    if failed is not None and not finished:
        sentence = f"{trace.missing}; it then raises {type(failed).__name__}: {failed}"
        raise TracingError(sentence).with_traceback(failed.__traceback__) from failed
    if not finished[0].launches:
        raise TracingError("`run` launches no cuTile kernel")
    return finished[0]


@contextlib.contextmanager
def open_trace(
    execute: Execute | None,
    *,
    choose: Choose = choose_first,
    config: Mapping[str, Any] | None = None,
    guess: int | None = None,
) -> Iterator[LaunchTrace]:
    """Records the launches inside the context. Kernels run only if `execute` is given. Host code that needs unknown
    values gets `guess`, or an error if `guess` is None."""
    _current.append(_Current(LaunchTrace(), choose, execute, config, guess))
    try:
        yield _current[-1].trace
    finally:
        _current.pop()


def guess_value(missing: TracingError) -> int:
    """Returns the number that host code gets for unknown values. Raises `missing` if guessing is not allowed."""
    if not _current or _current[-1].guess is None:
        raise missing
    here = _current[-1]
    if here.trace.missing is None:
        here.trace.missing = missing.with_traceback(_describe_stack())
    assert here.guess is not None
    return here.guess


def _describe_stack() -> types.TracebackType | None:
    """Returns a traceback of the current stack, for an error that is raised later."""
    frame, found = inspect.currentframe(), None
    while frame is not None:
        found = types.TracebackType(found, frame, frame.f_lasti, frame.f_lineno or 0)
        frame = frame.f_back
    return found


def find_part(config: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Returns the parameters of search `number` without their prefix. The parameters of search 1 begin with "2."."""
    start = f"{number + 1}."
    parts = {name.removeprefix(start): value for name, value in config.items() if name.startswith(start)}
    return parts or config


def count_launches() -> int:
    """Returns the number of launches in the current trace so far."""
    return len(_current[-1].trace.launches) if _current else 0


def time_region(start: int, end: int, is_chosen: Callable[..., bool]) -> bool:
    """Stores a timed range of launches. Returns whether host code shall see this range as the fastest."""
    if not _current or start == end:
        return False
    trace = _current[-1].trace
    chosen = is_chosen(trace, start, end, _current[-1].config)
    trace.regions.append((start, end, chosen))
    return chosen


def launch_for_real(launch: TracedLaunch) -> None:
    """Launches a kernel with cuTile's own function. Needs a GPU."""
    # cuda-tile before 1.6 has no programmatic dependent launch.
    attributes = {"programmatic_dependent_launch": True} if launch.programmatic_dependent_launch else {}
    _real_launch(launch.stream, launch.grid, launch.kernel, launch.args, **attributes)


class _AskedForCode(Exception):
    def __init__(self, signature: Any) -> None:
        self.signature = signature


def find_signature(launch: TracedLaunch) -> Any:
    """Returns the KernelSignature that `ct.launch` gives the compiler. Compiles nothing and needs no GPU."""
    # `KernelSignature.from_kernel_args` does not tell the convention for a dimension of one element (cuda-tile 1.7).
    kernel = launch.kernel.replace_hints()  # a copy of the kernel without compiled code
    compiler = ct.kernel._compile

    def ask(_: Any, signature: Any, *__: Any) -> Any:
        raise _AskedForCode(signature)

    ct.kernel._compile = ask
    try:
        _real_launch(0, launch.grid, kernel, launch.args)
    except _AskedForCode as asked:
        return asked.signature
    finally:
        ct.kernel._compile = compiler
    raise TracingError(f"`ct.launch` asked for no code of {kernel._pyfunc.__name__}: its grid is {launch.grid}")


def replace_launch_and_search() -> None:
    """Replaces cuTile's launch and search functions. Call this before a repository's files are imported."""
    ct.launch = _launch
    cuda.tile.tune.exhaustive_search = _search
    cuda.tile.tune._tune.exhaustive_search = _search
    if importlib.util.find_spec(EXPERIMENTAL) is None:
        module = types.ModuleType(EXPERIMENTAL)
        module.__spec__ = importlib.machinery.ModuleSpec(EXPERIMENTAL, None)
        module.autotune_launch = _search_and_launch  # type: ignore[attr-defined]
        sys.modules[EXPERIMENTAL] = module


def _launch(
    stream: Any, grid: Any, kernel: Any, kernel_args: Any, /, *, programmatic_dependent_launch: bool = False
) -> None:
    if not _current:
        raise TracingError("a kernel is launched outside `run`; a watch file only says what to launch")
    here = _current[-1]
    if here.trace.missing is not None and here.execute is None:
        here.trace.is_refused = True
        raise here.trace.missing
    sizes, args = tuple(int(size) for size in grid), tuple(map(_take_argument, kernel_args))
    launch = TracedLaunch(kernel, sizes, args, stream, bool(programmatic_dependent_launch))
    here.trace.launches.append(launch)
    if here.execute is not None:
        here.execute(launch)


def _take_argument(argument: Any) -> Any:
    """Returns a launch's argument for the trace. Marks the values of arrays as unknown, as a kernel may change them."""
    if type(argument) in (list, tuple):
        return type(argument)(map(_take_argument, argument))
    return argument.give_to_kernel() if hasattr(argument, "give_to_kernel") else argument


def _search(
    search_space: Any,
    stream: Any,  # noqa: ARG001 - what a search launches and how it times is left to the sweep
    grid_fn: Any,  # noqa: ARG001
    kernel: Any,  # noqa: ARG001
    args_fn: Any,  # noqa: ARG001
    hints_fn: Any = None,  # noqa: ARG001
    *,
    quiet: bool = False,  # noqa: ARG001
    single_run_timeout_sec: float | None = None,  # noqa: ARG001
    flush_l2: bool = True,  # noqa: ARG001
) -> Any:
    if not _current:
        raise TracingError("`exhaustive_search` is called outside `run`; a watch file only says what to launch")
    here = _current[-1]
    configs = tuple(search_space)
    if not configs:
        raise TracingError("`exhaustive_search` is given no config")
    chosen = here.choose(len(here.trace.searches), configs)
    here.trace.searches.append(configs)
    # Host code may search several kernels and launch the fastest: only the one whose config is varied gets 0 us.
    mean_us = 1.0 if chosen is configs[0] else 0.0
    best = cuda.tile.tune.Measurement(config=chosen, mean_us=mean_us, num_samples=0, error_margin_us=0.0)
    return cuda.tile.tune.TuningResult(best=best, successes=[best], failures=[])


def _search_and_launch(
    stream: Any,
    grid_fn: Any,
    kernel: Any,
    args_fn: Any,
    launch_args_fn: Any = None,
    hints_fn: Any = None,
    *,
    search_space: Any,
    key: Any = None,  # noqa: ARG001 - how its search goes is left to the sweep
    max_iter: int = 60,  # noqa: ARG001
    compiler_time_limit_sec: int = 10,  # noqa: ARG001
    seed: int | None = None,  # noqa: ARG001
    force_retune: bool = False,  # noqa: ARG001
) -> Any:
    configs = search_space() if callable(search_space) else search_space
    result = _search(configs, stream, grid_fn, kernel, args_fn)
    best = result.best.config
    hinted = kernel if hints_fn is None else kernel.replace_hints(**hints_fn(best))
    _launch(stream, grid_fn(best), hinted, (launch_args_fn or args_fn)(best))
    return SimpleNamespace(tuned_config=best, config=best)


# Python's error for an argument that only another cuda-tile version has names the function.
_launch.__qualname__ = "ct.launch"
_search.__qualname__ = "exhaustive_search"
_search_and_launch.__qualname__ = "autotune_launch"


def list_fields(config: Any) -> Mapping[str, Any]:
    """Returns a config's parameters by name, for a config of any class."""
    if isinstance(config, Mapping):
        return config
    if hasattr(config, "_asdict"):
        fields: Mapping[str, Any] = config._asdict()
        return fields
    if isinstance(config, tuple | list):
        return {f"value_{number}": value for number, value in enumerate(config)}
    if isinstance(config, getattr(sys.modules.get("torch"), "dtype", ())):  # the stand-in's has fields, PyTorch's none
        return {"value": config}
    slots = [name for each in type(config).__mro__ for name in vars(each).get("__slots__", ())]
    found = {name: getattr(config, name) for name in slots if hasattr(config, name)} | getattr(config, "__dict__", {})
    fields = {name: value for name, value in found.items() if not name.startswith("_")}
    return fields if fields or isinstance(config, SimpleNamespace) else {"value": config}


def list_arrays(launches: Sequence[TracedLaunch]) -> tuple[Any, ...]:
    """Returns the distinct arrays among the arguments of launches, including arrays inside lists."""
    return tuple({id(each): each for launch in launches for each in _list_arrays_in(launch.args)}.values())


def _list_arrays_in(args: Any) -> list[Any]:
    return [
        each
        for argument in args
        for each in (_list_arrays_in(argument) if isinstance(argument, list | tuple) else [argument])
        if is_array(each)
    ]
