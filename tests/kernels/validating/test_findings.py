"""Where a mistake lies, and hints of a space that change no code."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fixtures import tiny_repository
from tilewatch.kernels.library_errors import LibraryError
from tilewatch.kernels.validating import findings
from tilewatch.kernels.validating.findings import _list_idle_hints, _make_finding


@pytest.mark.parametrize(
    ("sentence", "file", "line"),
    [
        ("it fails", "given.py", 7),
        ("it fails (line 12)", "given.py", 12),
        ("library file other-1.py does not load", "other-1.py", 7),
        ("library file other.py does not load: NameError (line 3), or line 4", "other.py", 3),
        ("a deadline 5 of a.pyc", "given.py", 7),
    ],
)
def test_a_mistake_lies_where_its_sentence_says_else_at_its_kernel(sentence: str, file: str, line: int) -> None:
    assert _make_finding("given.py", 7, sentence) == {"file": file, "line": line, "sentence": sentence}
    assert _make_finding("given.py", None, "it fails")["line"] is None


def make_plan(applies: tuple[str, ...], **axes: tuple[int, ...]) -> dict[str, Any]:
    """A plan whose configs have the code that these of their parameters give."""
    configs = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    keys = [str([config.get(name) for name in applies]) for config in configs]
    return {"kernel": "k", "trials": [{"config": c, "code_key": key} for c, key in zip(configs, keys, strict=True)]}


@pytest.mark.parametrize(
    ("applies", "axes", "idle"),
    [
        (("tile", "occupancy"), {"tile": (64, 128), "occupancy": (1, 2)}, []),
        (("tile",), {"tile": (64, 128), "occupancy": (1, 2)}, ["occupancy"]),
        (("tile",), {"tile": (64, 128), "occupancy": (1,)}, []),
        (("tile",), {"tile": (64, 128)}, []),
        ((), {"num_ctas": (1, 2), "num_worker_warps": (4, 8)}, ["num_ctas", "num_worker_warps"]),
        (("num_ctas",), {"num_ctas": (1, 2), "occupancy": (1, 2, 4)}, ["occupancy"]),
        (("occupancy",), {"occupancy": (1, 2)}, []),
        ((), {"tile": (64, 128)}, []),
        ((), {}, []),
    ],
)
def test_a_hint_is_idle_if_no_value_of_several_changes_the_code(
    applies: tuple[str, ...], axes: dict[str, tuple[int, ...]], idle: list[str]
) -> None:
    found = list(_list_idle_hints(make_plan(applies, **axes)))
    assert [each.split(",")[0] for each in found] == [f"k searches the hint {name}" for name in idle]


def test_a_hint_that_changes_the_code_of_one_tile_is_not_idle() -> None:
    plan = make_plan(("tile",), tile=(64, 128), occupancy=(1, 2))
    plan["trials"][0]["code_key"] = "another"
    assert list(_list_idle_hints(plan)) == []
    assert list(_list_idle_hints({"kernel": "k", "trials": []})) == []


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "double.py").write_text(tiny_repository.SOURCE.replace("FACTOR", "2.0"))
    return tmp_path


def ask(library: Path, *files: str) -> dict[str, Any]:
    request = {"library": str(library), "arch": "sm_90", "files": list(files), "is_first": True}
    return dict(findings.answer(request))


def test_a_kernel_without_mistakes_has_a_few_configs_to_compile(library: Path) -> None:
    found = ask(library)
    assert found["findings"] == []
    assert {(each["kernel"], each["file"]) for each in found["plans"]} == {("double", "double.py")}
    assert all(1 <= len(each["configs"]) <= 3 for each in found["plans"])
    assert ask(library, "double.py") == found


def test_only_the_mistakes_of_the_files_that_were_asked_for_are_told(library: Path) -> None:
    (library / "empty.py").write_text("x = 1\n")
    (found,) = ask(library)["findings"]
    assert found["file"] == "empty.py"
    assert "must define KERNELS" in found["sentence"]
    assert ask(library, "empty.py") == {"findings": [found], "plans": []}
    assert ask(library, "double.py")["findings"] == []
    assert [each["sentence"] for each in ask(library, "other.py")["findings"]] == ["other.py declares no operator"]


def test_a_folder_without_an_operator_is_a_mistake_and_one_without_files_an_error(tmp_path: Path) -> None:
    assert ask(tmp_path) == {"error": f"the library folder {tmp_path} holds no watch file and no library file (*.py)"}
    (tmp_path / "none.py").write_text("KERNELS = ()\n")
    mistake = {"file": str(tmp_path), "line": None, "sentence": f"{tmp_path.name} declares no operator"}
    assert ask(tmp_path)["findings"] == [mistake]


@pytest.mark.parametrize("fails", ["problems", "hints"])
def test_a_kernel_with_a_mistake_is_not_compiled(library: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def refuse(_: object) -> None:
        raise LibraryError("no problem can be read")

    if fails == "problems":
        monkeypatch.setattr(findings, "list_problems", refuse)
    else:
        monkeypatch.setattr(findings, "_list_idle_hints", lambda _: iter(["a hint is idle"] * 2))
    found = ask(library)
    sentence = "no problem can be read" if fails == "problems" else "a hint is idle"
    assert [(each["file"], each["sentence"]) for each in found["findings"]] == [("double.py", sentence)]
    assert found["plans"] == []
