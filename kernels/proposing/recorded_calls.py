"""Lists a repository's kernels and records calls that launch them, in a child process."""

import ast
import contextlib
import functools
import gc
import inspect
import os
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilewatch.given_files import BadFile, read_given
from tilewatch.kernels.proposing import driver_stand_ins, varied_calls
from tilewatch.kernels.proposing.call_text import CallText, NotWritable, list_given
from tilewatch.kernels.proposing.proposed_file import RecordedCall
from tilewatch.kernels.proposing.repository_sources import DRIVER_NAMES, RepositorySources, read_sources
from tilewatch.kernels.watching.captured_values import name_code
from tilewatch.kernels.watching.device_array import describe_array, is_array
from tilewatch.kernels.watching.no_gpu import PretendGpu, as_gpu
from tilewatch.kernels.watching.project import CANONICAL, Project, activate, canonical_name, compile_file
from tilewatch.kernels.watching.timed_launches import events_traced
from tilewatch.kernels.watching.tracer import TracedLaunch, open_trace

MOST_BYTES = 1 << 21
"""Size in bytes of the largest Python file that is read."""

MOST_LAUNCHES = 400
"""Launches after which a step of a driver is stopped, because benchmarks repeat themselves for many sizes."""


FILE_CPU_S, STEP_CPU_S, LATER_CPU_S, MOST_DRIVER_CPU_S = 20, 10, 5, 40
"""CPU seconds of a driver: FILE_CPU_S for its file and STEP_CPU_S for each further step if it launches nothing, and
LATER_CPU_S after the first launch or a new call. No step begins after MOST_DRIVER_CPU_S."""


class Enough(BaseException):
    """Raised to stop a test or script after MOST_LAUNCHES launches."""


class TooSlow(Enough):
    """Raised to stop a test or script that took too many CPU seconds."""


@dataclass
class _Entered:
    """A running function of the repository and its arguments."""

    frame: types.FrameType
    given: Mapping[str, Any]


@dataclass
class _DriverCalls:
    """The recorded calls of one test or script. `wanted` has the kernels that still lack a call of host code."""

    modules: Mapping[str, str]
    driver: str
    wanted: set[tuple[str, str]]
    entered: list[_Entered] = field(default_factory=list)
    calls: dict[tuple[tuple[str, str], types.CodeType], tuple[Any, ...]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    hosts: dict[tuple[str, types.CodeType], tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)
    launches: int = 0

    def look(self, frame: types.FrameType, event: str, _: Any) -> None:
        """Notes that a function of the repository was entered or left. Python calls this method (sys.setprofile)."""
        if not frame.f_code.co_filename.startswith(f"{CANONICAL}/"):
            return
        if event == "call":
            self.entered.append(_Entered(frame, _list_arguments(frame)))
        elif event == "return":
            while self.entered and self.entered.pop().frame is not frame:
                pass

    def keep(self, launch: TracedLaunch) -> None:
        """Records a launch. Also records the outermost surrounding call of host code that a watch file can repeat."""
        function = launch.kernel._pyfunc
        kernel, known = (_find_file(function.__code__), function.__name__), len(self.calls)
        for each in self._list_candidates():
            if self._try(kernel, each.frame.f_code, functools.partial(self._write_call, each)):
                self.wanted.discard(kernel)
                self.hosts.setdefault((kernel[0], each.frame.f_code), (each.frame.f_globals, each.given))
                break
        self._try(kernel, function.__code__, lambda: self._write_launch(launch))
        self.launches += 1
        if self.launches == 1 or len(self.calls) > known:
            signal.setitimer(signal.ITIMER_VIRTUAL, LATER_CPU_S, 1.0)
        if self.launches > MOST_LAUNCHES:
            raise Enough

    def list_repeats(self, sought: set[tuple[str, str]]) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yields (name, function) pairs that repeat calls of host code with other arguments, for `sought` kernels."""
        for (file, code), (names, given) in list(self.hosts.items()):
            is_function = "." not in name_code(code)
            call = names[name_code(code).split(".")[0]]
            call = call if is_function else call.apply
            for varied in varied_calls.vary(given if is_function else dict(list(given.items())[1:])):
                if file not in {name for name, _ in sought - {kernel for kernel, _ in self.calls}}:
                    break
                yield name_code(code), functools.partial(varied_calls.call_with_gradients, call, varied, is_function)

    def _list_candidates(self) -> list[_Entered]:
        """Returns running functions that may be host code, outermost first. Functions of the test itself come last."""
        taking = [each for each in self.entered if any(map(_has_array, each.given.values()))]
        own = [each for each in taking if _find_file(each.frame.f_code) == self.driver]
        return [*(each for each in taking if each not in own), *own]

    def _try(self, kernel: tuple[str, str], code: types.CodeType, write: Callable[[], RecordedCall]) -> bool:
        """Stores the result of `write`, unless this call is already stored. Returns False if `write` fails."""
        if (kernel, code) not in self.calls:
            try:
                self.calls[kernel, code] = (kernel, astuple(write()))
            except NotWritable as error:
                self.reasons[f"{kernel[0]}: {kernel[1]}"] = str(error)
                return False
        return True

    def _write_call(self, entered: _Entered) -> RecordedCall:
        code = entered.frame.f_code
        file = _find_file(code)
        module = self.modules.get(file)
        found = _find_function(entered.frame)
        if module is None or found is None:
            raise NotWritable(f"{code.co_name} cannot be imported")
        function, called, first = found
        text = CallText()
        given = list_given(function, dict(list(entered.given.items())[first:]))
        named = _write_arguments(text, list(entered.given)[first:], given)
        return _describe(text, module, called, f"{called}({named})")

    def _write_launch(self, launch: TracedLaunch) -> RecordedCall:
        function = launch.kernel._pyfunc
        module = self.modules.get(_find_file(function.__code__))
        if module is None or "<locals>" in function.__qualname__:
            raise NotWritable(f"the kernel {function.__name__} is defined inside a function")
        text = CallText(imports={"cuda.tile", "torch"})
        names = list(inspect.signature(function).parameters)
        args = "".join(
            f"{_write_argument(text, value, name)}, " for name, value in zip(names, launch.args, strict=False)
        )
        run = f"cuda.tile.launch(torch.cuda.current_stream(), {launch.grid}, {{}}{function.__name__}, ({args}))"
        return _describe(text, module, function.__name__, run, is_launch=True)


def _write_arguments(text: CallText, names: Sequence[str], given: Mapping[str, Any]) -> str:
    """Returns a call's arguments as Python source, by position where possible and otherwise by name."""
    written = []
    for place, (name, value) in enumerate(given.items()):
        by_name = "" if list(given)[: place + 1] == list(names)[: place + 1] else f"{name}="
        written.append(by_name + text.write(value, name))
    return ", ".join(written)


def _write_argument(text: CallText, value: Any, name: str) -> str:
    """Returns an expression for a kernel's argument. Any array becomes a PyTorch tensor."""
    if type(value) in (list, tuple):
        return f"({''.join(_write_argument(text, each, f'{name}_{place}') + ', ' for place, each in enumerate(value))})"
    if not is_array(value):
        return text.write(value, name)
    if id(value) not in text.names:
        text.lines.append(f"{name} = {text.write_tensor(describe_array(value))}")
        text.names[id(value)] = name
        text.kept.append(value)
    return text.names[id(value)]


def _describe(text: CallText, module: str, function: str, run: str, *, is_launch: bool = False) -> RecordedCall:
    sizes = tuple((name, size) for size, name in text.sizes.items())
    return RecordedCall(module, function, tuple(text.lines), run, sizes, tuple(sorted(text.imports)), is_launch)


def _find_file(code: types.CodeType) -> str:
    return os.path.normpath(code.co_filename.removeprefix(f"{CANONICAL}/"))  # a script may import from "../.."


def _list_arguments(frame: types.FrameType) -> dict[str, Any]:
    """Returns a running function's arguments by name, or {} if some arguments have no name."""
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    given = {name: values[name] for name in code.co_varnames[:count] if name in values}
    if code.co_flags & inspect.CO_VARARGS:
        if values.get(code.co_varnames[count]):
            return {}
        count += 1
    return given | (values.get(code.co_varnames[count], {}) if code.co_flags & inspect.CO_VARKEYWORDS else {})


def _has_array(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(map(_has_array, value))
    return isinstance(value, np.ndarray) or (not isinstance(value, type) and is_array(value))


def _find_function(frame: types.FrameType) -> tuple[Any, str, int] | None:
    """Returns a running function, its name and the number of first arguments to omit, or None if not importable."""
    parts = name_code(frame.f_code).split(".")
    owner: Any = frame.f_globals.get(parts[0])
    if len(parts) == 1 and owner is not None and _is_code_of(owner, frame.f_code):
        return owner, parts[0], 0
    if len(parts) == 2 and parts[1] == "forward" and hasattr(owner, "apply") and hasattr(owner, "backward"):
        return owner.forward, f"{parts[0]}.apply", 1
    return None


def _is_code_of(function: Any, code: types.CodeType) -> bool:
    with contextlib.suppress(Exception):
        return getattr(inspect.unwrap(function), "__code__", None) is code
    return False


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the repository's kernels, tests and scripts, or the calls of one test or script, as requested."""
    root = Path(request["root"])
    sources = _read_repository(root)
    if request["ask"] == "list":
        return _write_sources(sources)
    return _record(request, root, sources)


@functools.cache
def _read_repository(root: Path) -> RepositorySources:
    texts = {}
    for path in sorted(root.rglob("*.py")):
        with contextlib.suppress(BadFile):
            texts[str(path.relative_to(root))] = read_given(path, MOST_BYTES)
    return read_sources(texts)


def _write_sources(sources: RepositorySources) -> dict[str, Any]:
    return {
        "kernels": [[each.file, each.name] for each in sources.kernels],
        "path": sources.path,
        "imports_torch": "torch" in sources.required,
        "drivers": [
            {"file": each.file, "kernels": sorted([one.file, one.name] for one in each.kernels)}
            for each in sources.drivers
        ],
    }


def _record(request: Mapping[str, Any], root: Path, sources: RepositorySources) -> dict[str, Any]:
    file, arch = request["file"], request["arch"]
    project = Project(root, tuple((root / each).resolve() for each in request["path"]), arch)
    content = read_given(root / file, MOST_BYTES)
    activate(project)
    wanted, welcome = ({tuple(each) for each in request[name]} for name in ("wanted", "welcome"))
    recorder = _DriverCalls(sources.modules, file, wanted | welcome)
    signal.signal(signal.SIGVTALRM, _stop)
    arguments, sys.argv = sys.argv, [str(root / file)]
    sys.path[:0] = [str((root / file).parent), str(root)]
    os.chdir(tempfile.gettempdir())  # what it writes goes into the child's own folder
    try:
        with (
            as_gpu(project),
            driver_stand_ins.packages_replaced(tuple(sources.required)) as replaced,
            PretendGpu(arch).in_use(),
            events_traced(()),
            open_trace(recorder.keep, guess=1),
            driver_stand_ins.checks_passed(),
        ):
            stopped = _run_driver(recorder, project, root / file, content, welcome - wanted)
    finally:
        sys.setprofile(None)
        sys.argv = arguments
    missing = f" (not installed here: {', '.join(sorted(replaced))})" if replaced else ""
    stopped = [each + missing for each in stopped]
    return {"calls": list(recorder.calls.values()), "reasons": recorder.reasons, "stopped": stopped}


def _run_driver(
    recorder: _DriverCalls, project: Project, path: Path, content: bytes, welcome: set[tuple[str, str]]
) -> list[str]:
    """Runs a file and its test functions until each wanted kernel has a call. Returns a sentence for each failure."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__package__ = ".".join(path.relative_to(project.root).parts[:-1])  # for its relative imports
    main, sys.modules["__main__"] = sys.modules["__main__"], module
    try:
        compile_file(project, str(path), content)  # cuTile reads the source of its kernels
        tree = _UncheckedAsserts().visit(ast.parse(content))
        code = compile(tree, canonical_name(project, str(path)), "exec", dont_inherit=True)
        steps = [("", lambda: exec(code, vars(module)))]  # noqa: S102 - running other people's code is the task here
        stopped = list(_run_each(recorder, steps))
        gc.collect()
        gc.freeze()  # TileGym's tests collect before each case, which took 87 % of their CPU time (2026-11-29)
        first, further = _list_steps(vars(module))
        stopped += _run_each(recorder, first)
        sought = set(recorder.wanted)
        recorder.wanted -= welcome
        stopped += _run_each(recorder, further)
        recorder.wanted |= sought
        return [*stopped, *_run_each(recorder, recorder.list_repeats(sought))]
    finally:
        gc.unfreeze()
        sys.modules["__main__"] = main


class _UncheckedAsserts(ast.NodeTransformer):
    """A syntax tree transformer that replaces asserts by their expressions, because outputs are guesses."""

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        return ast.copy_location(ast.Expr(node.test), node)


def _run_each(recorder: _DriverCalls, steps: Iterable[tuple[str, Any]]) -> Iterator[str]:
    until_s = time.process_time() + MOST_DRIVER_CPU_S
    for name, step in steps:
        if not recorder.wanted:
            return
        if name in recorder.slow:
            continue
        if time.process_time() > until_s:
            yield f"{name} and what follows it: the file took more than {MOST_DRIVER_CPU_S} CPU seconds"
            return
        recorder.entered.clear()
        recorder.launches = 0
        limit_s = STEP_CPU_S if name else FILE_CPU_S
        signal.setitimer(signal.ITIMER_VIRTUAL, limit_s, 1.0)  # again, where the code catches or loses the first
        sys.setprofile(recorder.look)
        try:
            step()
        except KeyboardInterrupt:
            raise
        except TooSlow:
            recorder.slow |= set() if recorder.launches else {name}  # with other arguments it takes as long
        except BaseException as error:  # noqa: BLE001 - other people's code may raise anything, and end the process
            if not isinstance(error, driver_stand_ins.Skipped | Enough | SystemExit):
                yield f"{name}: {type(error).__name__}: {error}".removeprefix(": ")[:300]
        finally:
            sys.setprofile(None)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _stop(*_: object) -> None:
    raise TooSlow


def _list_steps(names: Mapping[str, Any]) -> tuple[list[tuple[str, Any]], ...]:
    """Returns two lists of (test name, call): with a test's first arguments, and with further arguments."""

    def find_fixture(name: str) -> Any:
        made = names.get(name)
        if made is None or not hasattr(made, "tilewatch_fixture"):
            return None
        request = types.SimpleNamespace(param=next(iter(made.tilewatch_fixture), None))
        wanted = [each for each in inspect.signature(made).parameters if each != name]
        try:
            found = made(**{each: request if each == "request" else find_fixture(each) for each in wanted})
            return next(found) if inspect.isgenerator(found) else found
        except Exception:  # noqa: BLE001 - the test fails with the stand-in that it gets
            return None

    steps: list[tuple[str, Any, Any]] = []
    for name, value in list(names.items()):
        if inspect.isclass(value) and name.startswith("Test") and value.__module__ == "__main__":
            tests = [each for each in dir(value) if each.startswith("test")]
            steps += [(f"{name}.{each}", value, getattr(value, each)) for each in tests]
        elif inspect.isfunction(value) and any(word in name.lower() for word in DRIVER_NAMES):
            steps.append((name, None, value))
    calls: tuple[list[tuple[str, Any]], ...] = ([], [])
    for name, owner, function in steps:
        given = driver_stand_ins.list_arguments(function, find_fixture) if hasattr(function, "__code__") else []
        for place, each in enumerate(given):
            if _is_complete(function, each, owner is not None):
                is_further = place >= driver_stand_ins.FIRST_COMBINATIONS
                calls[is_further].append((name, functools.partial(_call, owner, function, each)))
    return calls


def _is_complete(function: Any, given: Mapping[str, Any], is_method: bool) -> bool:
    needed = [each for each in inspect.signature(function).parameters.values() if each.kind < each.VAR_POSITIONAL]
    return all(each.name in given or each.default is not each.empty for each in needed[is_method:])


def _call(owner: Any, function: Any, given: Mapping[str, Any]) -> None:
    if owner is None:
        function(**given)
        return
    instance = owner()
    for name in ("setUp", "setup_method"):
        if hasattr(instance, name):
            getattr(instance, name)()
    function(instance, **given)
