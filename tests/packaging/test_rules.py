"""The rules of the house that a machine can check."""

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("kernels", "db", "worker", "dashboard")
MOST_MODULES = 20
"""A folder with more is a list of names, in which nobody finds a thing without knowing its name."""


def test_each_folder_imports_only_what_it_may() -> None:
    lint_imports = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert lint_imports
    checked = subprocess.run([lint_imports, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_make_help_names_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (phony,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^  make ([a-z-]+) ", shown, re.MULTILINE)) == set(phony.split())


def test_src_links_to_every_folder_of_the_product() -> None:
    """A folder that is not linked would be missing in a wheel and in the image."""
    linked = {link.name: link.resolve() for link in (ROOT / "src" / "tilewatch").iterdir() if link.is_symlink()}
    assert linked == {name: ROOT / name for name in (*PRODUCT, "recordings")}


def test_no_link_leads_out_of_the_repository() -> None:
    """A test left one in its working folder, to a file of one machine, and it was committed."""
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    links = [ROOT / line.split("\t")[1] for line in listed.splitlines() if line.startswith("120000")]
    assert len(links) >= len(PRODUCT)
    assert all(link.resolve().is_relative_to(ROOT) for link in links)


def test_no_sql_outside_db() -> None:
    """Other folders pass sessions on and catch errors of the database; what they ask and write has a name in db/."""
    statements = [
        f"{file.relative_to(ROOT)} imports {module}.{name}"
        for folder in PRODUCT
        if folder != "db"
        for file in _modules(folder)
        for module, name in _imports(file)
        if module.split(".")[0] in ("sqlalchemy", "psycopg")
        and module != "sqlalchemy.exc"
        and (module, name) != ("sqlalchemy.orm", "Session")
    ]
    assert statements == []


def test_no_folder_has_too_many_modules() -> None:
    modules = Counter(file.parent for folder in PRODUCT for file in _modules(folder))
    del modules[ROOT / "db" / "migrations" / "versions"]  # a list in time: each change of the tables adds one
    assert {str(folder): count for folder, count in modules.items() if count > MOST_MODULES} == {}


def _modules(folder: str) -> Iterator[Path]:
    return (ROOT / folder).rglob("*.py")


def _imports(file: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names)
