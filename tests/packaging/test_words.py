"""The rules for words that a machine can check: docstrings, names, the glossary and the pictures of the map."""

import ast
import functools
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import code_paths

ROOT = Path(__file__).parents[2]
FOLDERS = ("kernels", "db", "worker", "dashboard")
SRC = "src/tilewatch"
EXCEPTIONS = tomllib.loads((Path(__file__).parent / "words_exceptions.toml").read_text(encoding="utf-8"))
"""Lists of what broke a rule when the rule came. They may only get shorter."""
QUESTIONS = ("What", "How", "Which", "Whether", "Of")
SAY_NOTHING = ("told", "said", "heard")
GLOSSARY_ENTRIES = 40
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
NOT_FIRST = (
    *("Of", "As", "In", "By", "From", "With", "Under", "Between", "None", "Empty", "Nothing", "Also", "Both"),
    *("Others", "Again", "Twice", "0", "The same"),
)
"""Beginnings that say nothing of what comes out, or that need the sentence before."""

COMMAND_LINE = ("worker/cli/", "worker/local/", "kernels/comparing/toolchains/commands.py")
"""Folders and modules whose sentences only the command line prints."""

COMMANDS = r"`[^`]*`|pip install.*|^(git|tilewatch) .*"

LAYERS = {
    *("src/tilewatch", "db/lifecycle", "db/page_reads", "db/worker_reads", "worker/submitting", "worker/transfer"),
    *("worker/notify", "worker/cli", "worker/cli/toolchains", "worker/api"),
    *("dashboard/frames", "dashboard/charts", "dashboard/panels", "dashboard/views"),
}
"""Folders in which modules of one name are layers of one subject: its values, its rows, its commands, its page."""


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
    text = GLOSSARY.read_text(encoding="utf-8")
    words = [word for word in re.findall(r"^\| ([a-z ]+) \|", text, re.MULTILINE) if word != "word"]
    assert len(words) == len(set(words)) <= GLOSSARY_ENTRIES


def test_modules_of_one_name_are_layers_of_one_subject() -> None:
    folders = defaultdict(set)
    for path in list_sources():
        if path.stem not in ("__init__", "__main__", "env"):
            folders[path.stem].add(str(path.parent.relative_to(ROOT)))
    several = {name for name, those in folders.items() if len(those) > 1 and not those <= LAYERS}
    listed = set(EXCEPTIONS["modules_of_one_name"])
    assert several - listed == set(), "find a name that a stranger would search for"
    assert listed - several == set(), "take it off the list"


def test_no_name_has_a_word_that_the_glossary_gives_to_something_else() -> None:
    forbidden = {word: entry for entry, words in read_glossary().items() for word in words}
    assert len(forbidden) >= 12
    wrong = {
        place: f"{forbidden[word]} is not called {word}"
        for place, name in list_names()
        for word in forbidden
        if re.search(rf"(?:^|_){word}s?(?:_|$)", name)
    }
    listed = set(EXCEPTIONS["names_with_another_word"])
    assert {place: sentence for place, sentence in wrong.items() if place not in listed} == {}
    assert listed - wrong.keys() == set(), "take it off the list"


def test_a_docstring_begins_with_what_comes_out() -> None:
    found = Counter(
        str(path.relative_to(ROOT)) for path in list_sources() for text in read_docstrings(path) if is_bad(text)
    )
    listed = EXCEPTIONS["docstrings_that_begin_badly"]
    assert {file: count for file, count in found.items() if count > listed.get(file, 0)} == {}
    assert {file: count for file, count in listed.items() if count > found[file]} == {}, "lower the number"


def list_sources() -> list[Path]:
    """Lists our modules, those of src too, without the links in it and without migrations, which are a list in time."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "migrations" not in path.parts]
    own = [path for path in (ROOT / SRC).iterdir() if not path.is_symlink()]
    paths += [
        path for each in own for path in (each.rglob("*.py") if each.is_dir() else [each]) if path.suffix == ".py"
    ]
    return sorted(paths)


def list_names() -> Iterator[tuple[str, str]]:
    """Yields the place and the name of each module and class, the name in lower case with underscores."""
    for path in list_sources():
        file = str(path.relative_to(ROOT))
        yield file, path.stem
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield f"{file} {node.name}", re.sub(r"(?<!^)(?=[A-Z])", "_", node.name).lower()


def read_glossary() -> dict[str, list[str]]:
    """Maps each word to what it must not be called, from the third column."""
    rows = re.findall(r"^\| ([a-z ]+) \| .* \| ?([a-z, ]*) ?\|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return {word: [each.strip().replace(" ", "_") for each in never.split(",") if each.strip()] for word, never in rows}


def read_docstrings(path: Path) -> Iterator[str]:
    """Yields docstrings of modules, classes and functions, and the strings below variables and fields."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for number, statement in enumerate(body):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            follows = number > 0 and isinstance(body[number - 1], ast.Assign | ast.AnnAssign)
            if is_text and isinstance(statement.value.value, str) and (follows or (documented and number == 0)):
                yield statement.value.value.strip()


def is_bad(docstring: str) -> bool:
    return re.match(rf"(?:{'|'.join(NOT_FIRST)})\b", docstring) is not None


def test_a_bad_beginning_is_noticed_and_a_good_one_is_not() -> None:
    assert [is_bad(text) for text in ("As of one check.", "0 when it left.", "The same for rows.")] == [True] * 3
    assert not any(map(is_bad, ("Assigns an owner.", "Nightlies that are late.", "The sample.", "Inside a step.")))


def test_only_the_command_line_names_its_options() -> None:
    """Sentences of the other rooms also reach pages, HTTP and agents, which have no options. Whole commands may stand
    in them."""
    sentences = {
        f"{path.relative_to(ROOT)}:{line} {sentence}"
        for path in list_sources()
        if not str(path.relative_to(ROOT)).startswith(COMMAND_LINE)
        for line, sentence in read_sentences(path)
        if re.search(r"\w --[a-z]", re.sub(COMMANDS, "", sentence))
    }
    assert sentences == set()


def read_sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the texts of a module without its docstrings, and their lines. Values in a text are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = set(read_docstrings(path))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node] if id(node) not in inside else []
        text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
        if text.strip() not in documented:
            yield getattr(node, "lineno", 0), text


def test_the_pictures_of_the_architecture_are_those_of_the_code() -> None:
    """`python -m tools.code_paths` draws them again."""
    for path, text in code_paths.pictures().items():
        assert path.read_text(encoding="utf-8") == text, path.name
