"""A launch that needs a kernel fails at once, nvcc runs without the launching process, and the next launch finds it."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilewatch.kernels.compiling.deferred_nvcc import NVCC, DeferredNvcc, find_nvcc

COMPILER = """#!/bin/sh
echo "$@" >> {log}
if [ "$1" = --version ]; then echo "release 13.0"; exit 0; fi
if grep -q broken "$1"; then echo "error: broken"; exit 2; fi
cp "$1" "$4"
"""
"""A compiler whose machine code is the source, and which fails on sources with the word "broken"."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The calls of the compiler, a line each."""
    (tmp_path / "bin").mkdir()
    compiler, log = tmp_path / "bin" / "nvcc", tmp_path / "calls"
    compiler.write_text(COMPILER.format(log=log))
    compiler.chmod(0o700)
    log.touch()
    return log


@pytest.fixture
def deferred(log: Path) -> Iterator[DeferredNvcc]:
    with DeferredNvcc(log.parent / "bin" / "nvcc") as deferred:
        yield deferred


def launch(environment: Mapping[str, str], folder: Path, source: str, flags: str = "-O3 -I/include") -> tuple[int, str]:
    """Calls nvcc as DeepGEMM does. Returns the exit status, and the machine code or what was printed."""
    folder.mkdir(exist_ok=True)
    code, cubin = folder / "kernel.cu", folder / "kernel.cubin"
    code.write_text(source)
    command = f"cd {folder} && {environment[NVCC]} {code} -cubin -o {cubin} {flags} 2>&1"
    done = subprocess.run(command, shell=True, env={**environment}, capture_output=True, text=True)  # noqa: S602
    return done.returncode, cubin.read_text() if done.returncode == 0 else done.stdout


def test_a_kernel_is_compiled_between_two_launches(deferred: DeferredNvcc, log: Path, tmp_path: Path) -> None:
    environment = deferred.make_environment()
    assert launch(environment, tmp_path / "1", "first")[0] != 0
    assert log.read_text() == ""
    wanted = deferred.take_wanted(environment)
    assert [each.read_text() for each in wanted] == ["first"]
    assert deferred.take_wanted(environment) == []
    deferred.compile(wanted)
    assert log.read_text().split()[1:3] == ["-cubin", "-o"]
    assert log.read_text().split()[4:] == ["-O3", "-I/include"]
    assert launch(environment, tmp_path / "2", "first") == (0, "first")
    assert launch(deferred.make_environment(), tmp_path / "3", "first") == (0, "first")
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.parametrize(("source", "flags"), [("second", "-O3 -I/include"), ("first", "-O2 -I/include")])
def test_another_source_or_flag_is_another_kernel(
    deferred: DeferredNvcc, tmp_path: Path, source: str, flags: str
) -> None:
    environment = deferred.make_environment()
    launch(environment, tmp_path / "1", "first")
    deferred.compile(deferred.take_wanted(environment))
    assert launch(environment, tmp_path / "2", source, flags)[0] != 0
    assert len(deferred.take_wanted(environment)) == 1


def test_each_process_has_wanted_kernels_of_its_own(deferred: DeferredNvcc, tmp_path: Path) -> None:
    one, other = deferred.make_environment(), deferred.make_environment()
    launch(one, tmp_path / "1", "first")
    assert deferred.take_wanted(other) == []
    assert len(deferred.take_wanted(one)) == 1


def test_what_two_threads_want_is_compiled_once_and_both_wait(
    deferred: DeferredNvcc, log: Path, tmp_path: Path
) -> None:
    wanted = []
    for number in range(2):
        environment = deferred.make_environment()
        launch(environment, tmp_path / str(number), "first")
        wanted.append(deferred.take_wanted(environment))

    def compile_and_launch(number: int) -> tuple[int, str]:
        deferred.compile(wanted[number])
        return launch(environment, tmp_path / f"again {number}".replace(" ", "-"), "first")

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(compile_and_launch, range(2))) == [(0, "first")] * 2
    assert len(log.read_text().splitlines()) == 1


def test_the_launch_of_a_kernel_that_cannot_be_compiled_has_the_error_of_nvcc(
    deferred: DeferredNvcc, tmp_path: Path
) -> None:
    environment = deferred.make_environment()
    launch(environment, tmp_path / "1", "broken")
    deferred.compile(deferred.take_wanted(environment))
    assert launch(environment, tmp_path / "2", "broken") == (2, "error: broken\n")
    assert deferred.take_wanted(environment) == []


def test_other_calls_reach_nvcc(deferred: DeferredNvcc) -> None:
    """DeepGEMM names its cached kernels by nvcc's version, so kernels compiled here must have the same names."""
    asked = [deferred.make_environment()[NVCC], "--version"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "release 13.0\n"


def test_nvcc_is_found_where_deepgemm_finds_it(log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: str(log.parent / "bin" / "nvcc"))
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv("CUDA_PATH", raising=False)
        monkeypatch.delenv("CUDA_HOME", raising=False)
        assert find_nvcc() == log.parent / "bin" / "nvcc"
        monkeypatch.setenv(name, str(tmp_path / "none"))
        assert find_nvcc() is None
        monkeypatch.setenv(name, str(log.parent))
        assert find_nvcc() == log.parent / "bin" / "nvcc"


def test_nothing_is_left(log: Path) -> None:
    with DeferredNvcc(log.parent / "bin" / "nvcc") as deferred:
        folder = Path(deferred.make_environment()[NVCC]).parent
        assert folder.exists()
    assert not folder.exists()
