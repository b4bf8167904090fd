"""What the documents name exists: files, modules, make targets, links, settings. They stay short and in the index."""

import importlib.util
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest
from typer.main import get_command

from tests.kernels.fixtures import probes
from tilewatch import given_files
from tilewatch.db.server.embedded import POSTGRES_SETTINGS
from tilewatch.kernels import child
from tilewatch.kernels.children import child_process
from tilewatch.kernels.contract import MOST_CONFIGS
from tilewatch.kernels.gpu import rounds
from tilewatch.worker.cli.main import cli
from tilewatch.worker.git import checkouts
from tilewatch.worker.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
MOST_WORDS = 30
"""In a sentence: one that needs more makes two statements."""
MOST_OF_A_PAGE, MOST_OF_README, MOST_OF_ALL = 12 * 1024, 6 * 1024, 240 * 1024
"""Bytes. A page that needs more holds two subjects, or a diary."""
CODE = re.compile(r"```[^\n]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
MODULE = re.compile(r"(?:python -m|celery -A) ([\w.]+)")
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")
PATH = re.compile(r"(?<![\w:/.~-])[\w.*-]+(?:/[\w.*-]+)*/?")
SOURCE_SUFFIXES = {".py", ".js", ".css", ".svg", ".png", ".md"}
PAGE = re.compile(r"\bdocs/[\w./*-]+\.(?:md|toml|yml)\b")
SETTING = re.compile(r"TILEWATCH_[A-Z_]+[A-Z]")
COMMAND = re.compile(r"(?:^|[^\w./=: -] ?|\n\s*|; )tilewatch ([a-z]+)(?: ([a-z][a-z-]*))?")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b")
"""`dashboard/views/NAME.py` and what is in TILEWATCH_HOME are files of the reader."""


@pytest.fixture(scope="module")
def files() -> list[str]:
    """What Git has, and so what a reader has: paths from the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [file for file in listed.stdout.splitlines() if (ROOT / file).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_paths_in_a_document_exist(document: Path, files: list[str]) -> None:
    text = document.read_text()
    # A reader's repository has hidden folders too, such as .github.
    tops = {file.split("/")[0] for file in files if "/" in file and not file.startswith(".")}
    missing = [path for snippet in _snippets(text) for path in _paths(snippet, tops) if not _exists(path, files)]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_links_of_a_document_lead_somewhere(document: Path) -> None:
    targets = [target for target in LINK.findall(document.read_text()) if "://" not in target]
    assert [target for target in targets if not _leads_somewhere(document, target)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_modules_that_a_document_runs_exist(document: Path) -> None:
    modules = [module.rstrip(".") for module in MODULE.findall(document.read_text())]
    assert [module for module in modules if not _runs(module)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_make_targets_of_a_document_exist(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):(?!=)", makefile, re.MULTILINE))
    named = {target for snippet in _snippets(document.read_text()) for target in TARGET.findall(snippet)}
    assert named - targets == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_page_is_short(document: Path) -> None:
    most = MOST_OF_README if document.name == "README.md" else MOST_OF_A_PAGE
    assert len(document.read_bytes()) <= most


def test_all_pages_together_are_short() -> None:
    assert sum(len(page.read_bytes()) for page in (*DOCUMENTS, ROOT / "CHANGELOG.md")) <= MOST_OF_ALL


def test_the_index_names_every_page_and_each_picture_is_on_a_page() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}
    assert set(PAGES) - named == {index}
    shown = {target.rpartition("/")[2] for page in DOCUMENTS for target in LINK.findall(page.read_text())}
    assert {picture.name for picture in (ROOT / "docs" / "pictures").iterdir()} <= shown


def test_every_setting_is_on_its_page_and_no_page_has_another(files: list[str]) -> None:
    settings = {f"TILEWATCH_{name}".upper() for name in Settings.model_fields}
    page = (ROOT / "docs" / "operate" / "settings.md").read_text()
    assert settings - set(SETTING.findall(page)) == set()
    code = "".join((ROOT / file).read_text() for file in files if file.endswith((".py", ".yml", ".yaml")))
    named = {name for document in DOCUMENTS for name in SETTING.findall(document.read_text())}
    assert named - settings - set(SETTING.findall(code)) == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_sentence_is_short(document: Path) -> None:
    assert [each for each in _sentences(document.read_text()) if len(each.split()) > MOST_WORDS] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_commands_of_a_document_exist(document: Path) -> None:
    named = {words for snippet in _snippets(document.read_text()) for words in COMMAND.findall(snippet)}
    assert {words for words in named if not _is_command(*words)} == set()


def test_the_pages_that_programs_name_exist(files: list[str]) -> None:
    """What a person reads in an error or a comment leads to a page that is there."""
    sources = [file for file in files if file.endswith((".py", ".yml", ".yaml", ".toml", ".sh"))]
    named = {(file, page) for file in sources for page in PAGE.findall((ROOT / file).read_text())}
    assert len(named) > 20
    assert {(file, page) for file, page in named if not _exists(page, files)} == set()


def test_the_numbers_on_the_page_about_security_are_those_of_the_code() -> None:
    page = " ".join((ROOT / "docs" / "operate" / "security.md").read_text(encoding="utf-8").split())
    given = defaultdict(str, target=1)
    found = [
        *(probes.list_processes(1), probes.list_remains(1, 1, 1), probes.list_attributes("")),
        *(probes.list_administration(1, ""), probes.list_sockets(given), probes.list_files(given)),
    ]
    for sentence in (
        f"more than {checkouts.MOST_FILES:,} files or {checkouts.MOST_BYTES >> 30} GiB is not checked out",
        f"An answer may have {child_process.ANSWER_BYTES >> 20} MiB, a file {child.FILE_BYTES >> 20} MiB, "
        f"a folder {child_process.FOLDER_BYTES >> 30} GiB, a search space {MOST_CONFIGS:,} configs, "
        f"a file of problems {given_files.MOST_BYTES >> 20} MiB",
        f"Git's objects, up to {given_files.MOST_TOML_BYTES >> 10} KiB",
        f"runs {sum(map(len, found))} probes",
        f"up to {len(probes.list_files(given))} of files are answered",
        f"One launch in {({10: 'ten'})[rounds.CHECK_EVERY]} rounds is drawn",
        f"all {POSTGRES_SETTINGS['max_connections']} connections of the Postgres",
    ):
        assert sentence in page


def test_a_name_that_is_gone_is_noticed() -> None:
    files = ["worker/steps/measure.py", "dashboard/charts/grid.js"]
    tops = {"worker", "dashboard"}
    text = "`worker/measure.py`, `measure.py`, `old.py`, `charts/grid.js`, `worker/steps`, ```\npython worker/gone\n```"
    named = [path for snippet in _snippets(text) for path in _paths(snippet, tops)]
    assert [path for path in named if not _exists(path, files)] == ["worker/measure.py", "old.py", "worker/gone"]
    assert not _runs("tools.gone")
    assert _leads_somewhere(ROOT / "README.md", "CONTRIBUTING.md#the-loop")
    assert not _leads_somewhere(ROOT / "README.md", "CONTRIBUTING.md#the-loops")
    assert not _leads_somewhere(ROOT / "README.md", "gone.md")
    assert _is_command("submit", "nightly")
    assert not _is_command("submits", "")
    assert not _is_command("submit", "nightlies")


def test_a_long_sentence_is_noticed() -> None:
    long = " ".join(["Word", *["word"] * 30])
    text = f"# Head\n\nShort one. {long}.\n\n```\n{long}\n```\n\n| {long} |\n\n- An item.\n- Another `{long}`."
    assert [each for each in _sentences(text) if len(each.split()) > MOST_WORDS] == [f"{long}."]


def _is_command(name: str, subcommand: str) -> bool:
    """Says whether `tilewatch` has the command by its present name. What follows a command that is no group is free."""
    found = get_command(cli).commands.get(name)  # type: ignore[attr-defined]  # ours is a group of commands
    if found is None or found.hidden:
        return False
    return not subcommand or not hasattr(found, "commands") or subcommand in found.commands


def _sentences(text: str) -> Iterator[str]:
    """Yields the sentences of prose and lists, without code, tables, headings and the addresses of links."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^(#|\||<!--).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "CODE", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text))
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        yield from re.split(r"(?<=[.!?])[*\")]*\s+(?=[A-Z\"(*])", " ".join(paragraph.split()))


def _leads_somewhere(document: Path, target: str) -> bool:
    """Says whether a link has a file, and the file a heading of the link's anchor."""
    name, _, anchor = target.partition("#")
    file = document.parent / name if name else document
    return file.exists() and (not anchor or anchor in _list_anchors(file.read_text()))


def _list_anchors(text: str) -> set[str]:
    """Lists the anchors that a forge makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _snippets(text: str) -> Iterator[str]:
    return (block or inline for block, inline in CODE.findall(text))


def _paths(snippet: str, tops: set[str]) -> Iterator[str]:
    """What in a snippet of code is meant as a path: it begins with a folder of ours, or ends like a source file."""
    for path in PATH.findall(snippet):
        path = path.removeprefix(".tilewatch/")  # a CI job's clone of this repository
        pure = PurePosixPath(path)
        ours = "/" in path and pure.parts[0] in tops
        if (ours or pure.suffix in SOURCE_SUFFIXES) and not PLACEHOLDER.search(path):
            yield path.rstrip("/")


def _exists(path: str, files: list[str]) -> bool:
    """Whether it is a file or folder, or a pattern of some. "gemm.py", the end of a file's path, names it too."""
    from_root = path.split("/")[0] in {file.split("/")[0] for file in files}
    return any(
        fnmatch(file, path) or file.startswith(f"{path}/") or (not from_root and file.endswith(f"/{path}"))
        for file in files
    )


def _runs(module: str) -> bool:
    """Whether `python -m` finds it: a module, or a package with a __main__."""
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{module}.__main__")
    except ModuleNotFoundError:
        return False
    return spec is not None
