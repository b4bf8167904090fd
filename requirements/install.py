"""Installs a pinned list of packages and the project itself into .venv, and skips what is already installed.

Runs before anything is installed, so it imports the standard library only. It parses on a Python that is too old, so
that it can say so. Usage: python3 requirements/install.py product|dev
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

OLDEST, NEWEST = (3, 11), (3, 13)
ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "requirements"
VENV = ROOT / ".venv"
PROGRESS_EVERY_S = 5.0  # where the output is no terminal, so that a log stays short


class Stop(Exception):
    """Installing cannot go on; the message is a sentence for a person."""


def main(what: str) -> None:
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        use_another_python(what)
    need_program("git", "Tilewatch reads what to watch from Git")
    make_venv()
    gpu = has_nvidia_gpu()
    install("build.txt", "the build tool")
    if what == "dev":
        install("dev.txt", "the product and the development tools")
    install("gpu.txt" if gpu else "base.txt", "the product" + (" and its GPU packages" if gpu else ""))
    if gpu:
        try:
            install("deepgemm.txt", "DeepGEMM and torch (several GB)")
        except Stop as reason:  # sweeps can be measured without this baseline; `tilewatch doctor` lists it as missing
            say(f"continuing without DeepGEMM: {reason}")
    install_project()


def use_another_python(what: str) -> None:
    """Replaces this process by a suitable Python of this machine, or says that there is none."""
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        name = f"python3.{minor}"
        # A version manager's shim may exist and still not work: ask it.
        if shutil.which(name) and subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0:
            os.execvp(name, [name, __file__, what])  # noqa: S606 - no shell wanted
    found = ".".join(map(str, sys.version_info[:3]))
    raise Stop(
        f"Tilewatch needs Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, and this is Python {found}; "
        "install one of those and run make again, with PYTHON=/path/to/it when it is not on PATH"
    )


def need_program(name: str, why: str) -> None:
    if shutil.which(name):
        return
    if not apt_install([name]):
        raise Stop(f"{name} is missing ({why}): run `sudo apt-get install {name}`, then make again")


def apt_install(packages: list[str]) -> bool:
    """Installs Debian packages. Returns False if that is impossible here: not root, or no apt-get."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    say(f"installing Debian's {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            say(f"`{' '.join(command)}` failed: {last_line(done.stdout + done.stderr)}")
            return False
    return True


def make_venv() -> None:
    """Makes a virtual environment of this Python. One of another Python is replaced."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if (VENV / "bin" / "python").exists() and (VENV / "lib" / f"python{version}").is_dir():
        return
    say(f"making {VENV.name} with Python {version}")
    # Debian and Ubuntu keep ensurepip in a package of its own.
    own_pip = importlib.util.find_spec("ensurepip") is not None or apt_install([f"python{version}-venv"])
    if not own_pip and importlib.util.find_spec("pip") is None:
        raise Stop(
            f"this Python {version} has neither ensurepip nor pip: "
            f"run `sudo apt-get install python{version}-venv`, then make again"
        )
    arguments = ["--clear", *([] if own_pip else ["--without-pip"]), str(VENV)]
    done = subprocess.run([sys.executable, "-m", "venv", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        raise Stop(f"python -m venv {VENV} failed: {last_line(done.stdout + done.stderr)}")


def pip() -> list[str]:
    """Returns the command line of the venv's own pip, else of the system's for the venv. pip, because it uses this
    machine's pip settings (a mirror, a proxy, a certificate); the whole base list takes it half a minute."""
    if list((VENV / "lib").glob("python*/site-packages/pip")):
        return [str(VENV / "bin" / "python"), "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", str(VENV / "bin" / "python")]


def install(name: str, called: str) -> None:
    """Installs every package of one list. The lists are complete, so pip must not look for more (--no-deps)."""
    wanted = LISTS / name
    stamp = VENV / f".installed-{name}"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    total = sum("==" in line for line in wanted.read_text(encoding="utf-8").splitlines())
    command = [*pip(), "install", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    follow([*command, "--progress-bar", "off", "-r", str(wanted)], f"installing {called}", total)
    stamp.write_text(digest, encoding="utf-8")


def install_project() -> None:
    """Installs the project itself, editable: a pull needs no second install unless pyproject.toml changed."""
    stamp = VENV / ".installed-project"
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    arguments = ["install", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    follow([*pip(), *arguments], "installing Tilewatch itself", 1)
    stamp.write_text(digest, encoding="utf-8")


def follow(command: list[str], step: str, total: int) -> None:
    """Runs pip and prints one line that counts packages (in a log: a line now and then)."""
    say(f"{step} ({total} packages)" if total > 1 else step)
    seen = 0
    spoke = time.monotonic()
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            output.append(line)
            if total > 1 and line.startswith("Installing collected packages"):
                progress(f"  {step}: unpacking")
            elif line.startswith("Collecting "):
                seen += 1
                if sys.stdout.isatty() or time.monotonic() - spoke > PROGRESS_EVERY_S:
                    spoke = time.monotonic()
                    progress(f"  {step}: {seen} of {total} fetched")
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    if process.returncode != 0:
        wrong = [line for line in output if line.startswith("ERROR")] or output[-1:]
        raise Stop(f"{step} failed: {''.join(wrong).strip()}")


def has_nvidia_gpu() -> bool:
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")


def progress(text: str) -> None:
    print(f"\r\033[K{text}" if sys.stdout.isatty() else text, end="" if sys.stdout.isatty() else "\n", flush=True)


def say(text: str) -> None:
    print(f"tilewatch: {text}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] not in (["product"], ["dev"]):
        sys.exit("usage: python3 requirements/install.py product|dev")
    try:
        main(sys.argv[1])
    except Stop as reason:
        sys.exit(f"tilewatch: {reason}")
