"""A mistake in a library file is found when the library is read, in a sentence that names file and kernel."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.catalog import catalog
from tilewatch.kernels.children.child_process import ChildDied, ChildHung
from tilewatch.kernels.library_errors import LibraryError, NoConfigs
from tilewatch.kernels.validating import mistakes as module
from tilewatch.kernels.validating.mistake import Mistake
from tilewatch.kernels.validating.mistakes import Validated, validate_library

SOURCE = tiny_repository.SOURCE.replace("FACTOR", "2.0")
OTHER = SOURCE.replace('name="double"', 'name="other"')


def read_with(folder: Path, source: str) -> catalog.LibraryPlans:
    (folder / "double.py").write_text(source)
    return catalog.read_library(folder, arch="sm_90")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("baselines=()", 'baselines=("torch_sofmax",)', "no baseline 'torch_sofmax'; did you mean 'torch_softmax'?"),
        ("baselines=()", 'baselines=("mine",)', "there is no baseline 'mine'; there are deepgemm, "),
        ('{"y": inputs["x"]', '{"z": inputs["x"]', "`reference` gives z, but the kernel writes y"),
        ('"float32", output=True)', '"float32")', "no array is an `output` or `inout`"),
        ('"float32", output=True)', '"float32", output=True, inout=True)', "array 'y' is both `output` and `inout`"),
        ('Array("y"', 'Array("x"', "two arrays have the same name: x, x"),
        ('"float32"),', '"fp32"),', "array 'x' has the type 'fp32'; expected one of cuTile, e.g. "),
        ('config["width"],),\n', 'config["with"],),\n', "(line 30); its axes and sizes are n, width"),
        ('// config["width"]', '// config["with"]', "`grid` asks for 'with' (line 31)"),
        ('(config["width"],)', "(ct.float32,)", "the constant of parameter 'width' is "),
        ('(config["width"],)', "()", "parameter 'width' is a ct.Constant, but `constants` has no value for it"),
        ("width: ct.Constant[int]", "width: int", "parameter 'width' gets a constant but is no ct.Constant"),
        ('Space((("width", (64, 128, 256, 96)),))', '{"width": (64, 128)}', "`space` gives a dict; expected a Space"),
        ("(64, 128, 256, 96)", '(64, "128")', "axis 'width' has the value '128', a text; expected integers"),
        ("(64, 128, 256, 96)", "tuple(range(400_000))", "`space` has 400,000 configs; expected 20,000 at most"),
        ("96)),))", '96)),), only=lambda c: c["with"])', "`only` of `space` fails: KeyError: 'with' (line 25)"),
        ('(parse("1024"), parse("2048"))', '("1024",)', "`problems` holds '1024', a text; expected Problem"),
        ('problem.sizes["n"],\n        bytes', 'problem.sizes["m"],\n        bytes', "`flops` asks for 'm'"),
    ],
)  # fmt: skip
def test_a_mistake_names_file_kernel_and_what_was_expected(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in SOURCE
    with pytest.raises(LibraryError) as raised:
        read_with(tmp_path, SOURCE.replace(old, new))
    message = str(raised.value)
    assert message.startswith("library file double.py: kernel double: ")
    assert sentence in message


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name="double"', 'name="dou\\0ble"', r"'dou\x00ble' cannot be the name of a kernel"),
        ('name="double"', 'name="\\x1b[2Jdouble"', r"'\x1b[2Jdouble' cannot be the name of a kernel"),
        ('name="double"', 'name="d" * 501', "cannot be the name of a kernel: expected 1 to 500 letters"),
        ("Problem(text,", 'Problem(text + "\\n",', r"'1024\n' cannot be the name of a problem"),
        ('"width", (64', '"width\\x9b", (64', r"'width\x9b' cannot be the name of an axis"),
    ],
)
def test_a_name_that_cannot_be_shown_is_refused(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in SOURCE
    source = SOURCE.replace(old, new).replace('config["width"]', "64")
    with pytest.raises(LibraryError) as raised:
        read_with(tmp_path, source)
    assert str(raised.value).startswith("library file double.py: ")
    assert sentence in str(raised.value)


def test_what_a_file_writes_into_a_config_is_not_in_another_problem_s(tmp_path: Path) -> None:
    assert 'config["width"],),\n' in SOURCE
    source = SOURCE.replace('config["width"],),\n', 'config.setdefault(problem.name, config["width"]),),\n')
    first, second = read_with(tmp_path, source).plans
    assert all(set(trial.config) == {"width", first.problem} for trial in first.trials)
    assert all(set(trial.config) == {"width", second.problem} for trial in second.trials)


def test_a_process_that_makes_up_a_name_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Liar:
        def __init__(self, *_: object, **__: object) -> None: ...

        def ask(self, *_: object, **__: object) -> dict[str, object]:
            plan = {"kernel": "a\x1b[2J", "problem": "1024", "axes": []}
            return {"plans": [plan], "failures": [], "package_missing": None}

        def close(self) -> None: ...

    monkeypatch.setattr(catalog, "ChildProcess", Liar)
    with pytest.raises(LibraryError, match="cannot be the name of a kernel"):
        catalog.read_library(tmp_path, arch="sm_90")


def test_a_space_has_only_the_combinations_that_it_says(tmp_path: Path) -> None:
    reading = read_with(tmp_path, SOURCE.replace("256, 96)),))", '256, 96)),), only=lambda c: c["width"] < 128)'))
    assert [[each.config["width"] for each in plan.trials] for plan in reading.plans] == [[64, 96], [64, 96]]
    read_with(tmp_path, SOURCE.replace("256, 96)),))", "256, 96)),), only=lambda c: False)"))
    with pytest.raises(NoConfigs):
        catalog.read(tmp_path, arch="sm_90", kernel="double")


def test_a_mistake_costs_its_own_kernel_and_is_said(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(OTHER)
    reading = read_with(tmp_path, SOURCE.replace("baselines=()", 'baselines=("torhc",)'))
    assert [plan.kernel for plan in reading.plans] == ["other", "other"]
    (failure,) = reading.failures
    assert failure.startswith("library file double.py: kernel double: there is no baseline 'torhc'")


def test_a_wrong_weight_costs_the_totals_and_no_kernel(tmp_path: Path) -> None:
    weights = 'baselines=(), weights=lambda problem: {"decode": 2.0}'
    (tmp_path / "other.py").write_text(OTHER.replace("baselines=()", weights))
    reading = read_with(tmp_path, SOURCE.replace("baselines=()", weights))
    assert [plan.parts_of for plan in reading.plans] == [{"decode": {"weight": 2.0, "parts": 4}}] * 4
    reading = read_with(tmp_path, SOURCE.replace("baselines=()", weights.replace("2.0", "-1")))
    assert [(plan.kernel, plan.parts_of) for plan in reading.plans] == [
        (kernel, {}) for kernel in ("double", "double", "other", "other")
    ]
    (failure,) = reading.failures
    assert failure.endswith("kernel double: `weights` of 1024 has 'decode': -1; expected a model and a number over 0")


def test_a_file_that_does_not_load_costs_its_own_kernels(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(OTHER)
    reading = read_with(tmp_path, SOURCE + "\n\nx = torch.int32\n")
    assert [plan.kernel for plan in reading.plans] == ["other", "other"]
    assert reading.failures == (
        "library file double.py does not load: NameError: name 'torch' is not defined (line 41)",
    )
    assert catalog.read(tmp_path, arch="sm_90", kernel="other")
    with pytest.raises(catalog.UnknownKernel, match=r"no kernel 'double' in the library .*; nearest: .*NameError"):
        catalog.read(tmp_path, arch="sm_90", kernel="double")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("from .helpers import tile", "line 1: it imports from '.helpers'; a library file may import cuda.tile, "),
        ("import helpers", "line 1: it imports 'helpers' from "),
        ("def later():\n    from helpers import tile", "line 2: it imports 'helpers' from "),
        (
            "import tilegym",
            "does not load: ModuleNotFoundError: No module named 'tilegym' (line 1); a library file may",
        ),
    ],
)
def test_an_import_of_the_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    """The queue knows code by the hash of its library file: a changed helper would be called unchanged."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "helpers.py").write_text("tile = 64")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    with pytest.raises(LibraryError) as raised:
        read_with(tmp_path, f"{line}\n{SOURCE}")
    assert sentence in str(raised.value)


def test_installed_packages_and_the_standard_library_may_be_imported(tmp_path: Path) -> None:
    lines = (
        "import math\nimport numpy as np\nfrom collections import abc\n\n\ndef later():\n    import nowhere_installed\n"
    )
    assert read_with(tmp_path, lines + SOURCE).plans


def test_a_folder_of_pip_install_target_holds_installed_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU machines without a network get their packages that way; seen on an H200, 2026-11-22."""
    (tmp_path / "target" / "helpers-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "target" / "helpers.py").write_text("tile = 64")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "target"))
    assert read_with(tmp_path, f"import helpers\n{SOURCE}").plans


class MadeChild:
    """Answers what a test gives for a file and an architecture, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Mapping[str, Any] | Exception] = {}
        self.started: dict[str, Any] = {}
        self.asked: list[tuple[str, str, bool]] = []
        self.is_closed = False

    def start(self, kind: str, *, library: Path, cpu_limit_s: float) -> Self:
        self.started = {"kind": kind, "library": library, "cpu_limit_s": cpu_limit_s}
        return self

    def ask(self, request: Mapping[str, Any], *, deadline_s: float) -> Mapping[str, Any]:
        assert deadline_s == 2400.0, "20 s for each CPU second of an architecture"
        assert request["library"] == str(self.started["library"])
        (name,) = request["files"] or [""]
        self.asked.append((name, request["arch"], request["is_first"]))
        answer = self.answers.get((name, request["arch"]), {"findings": [], "plans": []})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed = True


class MadeCompiler:
    """Compiles configs whose tile is among `right`."""

    right: tuple[int, ...] = (64,)
    limits: tuple[float, float] = (0.0, 0.0)
    compiled: list[tuple[str, str, str, int]]

    def __init__(self, store_url: str, *, limit_s: float, wall_limit_s: float) -> None:
        assert store_url == "file:///store"
        type(self).limits = (limit_s, wall_limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compile(self, _: Path, kernel: str, problem: str, config: Mapping[str, int], arch: str) -> SimpleNamespace:
        self.compiled.append((kernel, problem, arch, config["tile"]))
        is_right = config["tile"] in self.right
        return SimpleNamespace(status="ok" if is_right else "error", failure=None if is_right else "too large")


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> MadeChild:
    """The child process that reads the folder."""
    child = MadeChild()
    monkeypatch.setattr(module, "ChildProcess", child.start)
    monkeypatch.setattr(module, "Compiler", MadeCompiler)
    monkeypatch.setattr(MadeCompiler, "compiled", [], raising=False)
    monkeypatch.setattr(module, "find_outside_files", lambda *_: [Mistake("c.py", 1, "it is a pointer")])
    return child


def plan(kernel: str, *tiles: int, problem: str = "1x1") -> dict[str, Any]:
    return {
        "kernel": kernel,
        "problem": problem,
        "configs": [{"tile": each} for each in tiles],
        "file": "a.py",
        "line": 3,
    }


def find(sentence: str, line: int | None = None) -> dict[str, Any]:
    return {"file": "a.py", "line": line, "sentence": sentence}


def test_each_file_is_read_for_each_architecture_and_each_mistake_told_once(tmp_path: Path, child: MadeChild) -> None:
    for name in ("b.py", "a.py", "_own.py", "notes.txt"):
        (tmp_path / name).touch()
    for arch in ("sm_90", "sm_100"):
        child.answers["a.py", arch] = {"findings": [find("no problem", 7)], "plans": []}
    child.answers["b.py", "sm_100"] = {"findings": [find("no space")], "plans": []}
    said: list[str] = []
    found = validate_library(tmp_path, (), ("sm_90", "sm_100"), "file:///store", on_step=said.append)
    mistakes = (
        Mistake("a.py", 7, "no problem"),
        Mistake("a.py", None, "no space"),
        Mistake("c.py", 1, "it is a pointer"),
    )
    assert found == Validated(mistakes, 0)
    assert child.asked == [
        ("a.py", "sm_90", True),
        ("b.py", "sm_90", False),
        ("a.py", "sm_100", True),
        ("b.py", "sm_100", False),
    ]
    assert child.started == {"kind": "validate", "library": tmp_path, "cpu_limit_s": 240.0}
    assert child.is_closed
    assert said[:2] == ["a.py: tracing for sm_90", "b.py: tracing for sm_90"]
    assert MadeCompiler.compiled == []


def test_only_files_that_are_named_are_read_and_an_empty_folder_once(tmp_path: Path, child: MadeChild) -> None:
    said: list[str] = []
    validate_library(tmp_path, ("z.py", "_b.py"), ("sm_90",), "file:///store")
    validate_library(tmp_path, (), ("sm_90",), "file:///store", on_step=said.append)
    assert child.asked == [("_b.py", "sm_90", True), ("z.py", "sm_90", False), ("", "sm_90", True)]
    assert said == [f"{tmp_path}: tracing for sm_90"]


def test_an_operator_compiles_if_one_of_its_configs_does(tmp_path: Path, child: MadeChild) -> None:
    (tmp_path / "a.py").touch()
    plans = [plan("fine", 256, 64, 32), plan("large", 256, 128), plan("half", 64), plan("half", 512, problem="2x2")]
    child.answers["a.py", "sm_90"] = {"findings": [], "plans": plans}
    said: list[str] = []
    found = validate_library(tmp_path, (), ("sm_90",), "file:///store", limit_s=2.0, on_step=said.append)
    assert found.operators == 1
    assert [str(each) for each in found.findings[:-1]] == [
        "a.py:3: large on 1x1 does not compile for sm_90 with {'tile': 128}: too large",
        "a.py:3: half on 2x2 does not compile for sm_90 with {'tile': 512}: too large",
    ]
    assert [each[3] for each in MadeCompiler.compiled] == [256, 64, 256, 128, 64, 512]
    assert MadeCompiler.limits == (2.0, 40.0)
    assert said[1] == "a.py: compiling fine on 1x1 for sm_90"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (ChildHung("no answer"), "the library .* cannot be read: no answer"),
        (ChildDied("it ended"), "the library .* cannot be read: it ended"),
        ({"error": "there is no folder"}, "^there is no folder$"),
    ],
)
def test_a_folder_that_cannot_be_read_is_an_error(
    tmp_path: Path, child: MadeChild, answer: Mapping[str, str] | Exception, sentence: str
) -> None:
    child.answers["", "sm_90"] = answer
    with pytest.raises(LibraryError, match=sentence):
        validate_library(tmp_path, (), ("sm_90",), "file:///store")
    assert child.is_closed
