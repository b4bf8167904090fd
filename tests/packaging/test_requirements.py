"""The pinned lists: complete, hashed, the same everywhere, and without the address of any registry."""

import importlib.metadata
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAMES = ("build", "base", "dev", "gpu", "deepgemm", "s3")
PYTHONS = ("3.11.2", "3.12.0", "3.13.0")


def _machine(python: str) -> dict[str, str]:
    return {
        "python_version": python.rpartition(".")[0],
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


@cache
def _pinned(name: str) -> tuple[tuple[Requirement, int], ...]:
    """Each requirement of a list with how many hashes it has."""
    text = (LISTS / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return tuple((Requirement(line.split(" --hash=")[0]), line.count("--hash=sha256:")) for line in lines)


def _versions(name: str, python: str) -> dict[str, str]:
    machine = _machine(python)
    return {
        canonicalize_name(requirement.name): next(iter(requirement.specifier)).version
        for requirement, _ in _pinned(name)
        if requirement.marker is None or requirement.marker.evaluate(machine)
    }


def _project(*extras: str, group: str | None = None) -> list[Requirement]:
    wanted = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        wanted += PROJECT["project"]["optional-dependencies"][extra]
    return [Requirement(text) for text in wanted + (PROJECT["dependency-groups"][group] if group else [])]


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_pinned_exactly_and_hashed(name: str) -> None:
    assert _pinned(name)
    for requirement, hashes in _pinned(name):
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes > 0, requirement


@pytest.mark.parametrize("name", NAMES)
def test_no_list_holds_an_address_or_a_folder(name: str) -> None:
    text = (LISTS / f"{name}.txt").read_text()
    assert not re.search(r"https?:|file:|--index|--extra-index|--find-links|--trusted|^/|@ ", text, re.MULTILINE)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("base", _project()),
        ("dev", _project("s3", group="dev")),
        ("s3", _project("s3")),
        ("gpu", _project("gpu")),
        ("deepgemm", _project("gpu", "deepgemm")),
    ],
)
def test_a_list_gives_what_pyproject_asks_for(name: str, wanted: Iterable[Requirement], python: str) -> None:
    versions = _versions(name, python)
    for requirement in wanted:
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{name}.txt lacks {requirement}: make lock"
        assert requirement.specifier.contains(version), f"{name}.txt has {version}, not {requirement}: make lock"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["dev", "gpu", "deepgemm", "s3"])
def test_the_lists_agree_on_the_product(name: str, python: str) -> None:
    assert _versions("base", python).items() <= _versions(name, python).items()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["dev", "gpu", "deepgemm"])
def test_the_list_of_the_object_store_can_be_installed_with_each_other_one(name: str, python: str) -> None:
    both = _versions("s3", python).keys() & _versions(name, python).keys()
    assert {each: _versions("s3", python)[each] for each in both} == {
        each: _versions(name, python)[each] for each in both
    }


def test_the_base_list_is_complete() -> None:
    """It is installed without looking at what its packages ask for."""
    listed = {canonicalize_name(requirement.name) for requirement, _ in _pinned("base")}
    todo, seen = _project(), set()
    while todo:
        asked = todo.pop()
        name = canonicalize_name(asked.name)
        if (name, *sorted(asked.extras)) in seen:
            continue
        seen.add((name, *sorted(asked.extras)))
        assert name in listed, f"{name} is missing: make lock"
        for text in importlib.metadata.requires(name) or ():
            needed = Requirement(text)
            extras = asked.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(needed)
    assert len(seen) > len(PROJECT["project"]["dependencies"])
