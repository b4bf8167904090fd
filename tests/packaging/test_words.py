"""The rules for words that a machine can check: docstrings, names, the glossary and the pictures of the map."""

import ast
import functools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools import code_paths

ROOT = Path(__file__).parents[2]
FOLDERS = ("kernels", "db", "worker", "dashboard")
QUESTIONS = ("What", "How", "Which", "Whether", "Of")
SAY_NOTHING = ("told", "said", "heard")
GLOSSARY_ENTRIES = 40


@dataclass(frozen=True)
class Module:
    """`stores`: the variables that it sets, with their lines."""

    file: str
    docstring: str
    stores: tuple[tuple[int, str], ...]
    classes: tuple[str, ...]


@functools.cache
def modules() -> tuple[Module, ...]:
    return tuple(read(path) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))


def read(path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    return Module(
        str(path.relative_to(ROOT)),
        ast.get_docstring(tree) or "",
        tuple(
            (node.lineno, node.id) for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ),
        tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
    )


def test_a_module_says_what_it_does_and_does_not_begin_with_a_question() -> None:
    wrong = {
        module.file: module.docstring.split(".")[0]
        for module in modules()
        if not module.file.startswith("db/migrations/") and module.docstring.split(" ")[0] in ("", *QUESTIONS)
    }
    assert wrong == {}


def test_no_variable_has_a_name_that_says_nothing() -> None:
    wrong = [
        f"{module.file}:{line} {name}" for module in modules() for line, name in module.stores if name in SAY_NOTHING
    ]
    assert wrong == []


def test_two_classes_have_no_name_in_common() -> None:
    """A table and the value that is read from it may: those of db/models.py are the tables."""
    names = Counter(
        name
        for module in modules()
        if module.file != "db/models.py"
        for name in module.classes
        if not name.startswith("_")
    )
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_the_glossary_stays_short_and_explains_a_word_once() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    words = [word for word in re.findall(r"^\| ([a-z ]+) \|", text, re.MULTILINE) if word != "word"]
    assert len(words) == len(set(words)) <= GLOSSARY_ENTRIES


def test_the_pictures_of_the_architecture_are_those_of_the_code() -> None:
    """`python -m tools.code_paths` draws them again."""
    for path, text in code_paths.pictures().items():
        assert path.read_text(encoding="utf-8") == text, path.name
