"""Refuses commit messages that break the rules of CONTRIBUTING.md: one change in a short subject, the reason in the
body.

    python tools/check_commits.py               # every commit that was written after this file was added
    python tools/check_commits.py MESSAGE_FILE  # one message, as Git hands it to the hook commit-msg
    python tools/check_commits.py --install     # makes Git run it before each commit of this clone; `make dev` does

It imports only the standard library, so that the hook works before anything is installed."""

from __future__ import annotations  # the hook runs under whatever python3 a machine has

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_LETTERS = 60
ABOUT_THE_AUTHOR = ("say", "tell", "let", "give", "ask", "call", "hold", "keep")
"""Verbs that say what the author does, not what changed: 459 of the first 1,194 subjects began with one."""

NO_VERBS = ("the", "a", "an", "of", "as", "in", "by", "from", "with", "under", "no", "none", "also", "both", "again")
IMPERATIVES = ("pass", "process", "address", "focus", "embed", "feed", "need", "seed", "speed", "bring", "compress")
"""Imperatives whose ending looks like that of a participle or of a third person."""

VERSION = re.compile(r"\b(Python|CUDA|Postgres|Redis|PyTorch|torch|cuda-tile) \d[\d.]*")
UNIT = r"(%|(us|ms|s|min|h|KB|MB|GB|TB|W|x|times|bytes|lines|seconds|minutes|hours|GB/s|TFLOP/s|MHz)\b)"
FIGURE = re.compile(rf"(?<![\w.])(\d[\d.,]*[ -]?{UNIT}|\d+\.\d+(?![\w.]))")
"""Pattern of a figure: a number with a unit, or a decimal. Names such as sm_90, H100, 13.5.37 or 1daa4d3 do not
match."""

POINTER = re.compile(r"\b(it|its|they|them|their|those|these|ones|now|what|again)\b|(?<=: )Name\b", re.I)
"""Words that stand for something outside the subject. Of 50 subjects drawn on 2026-11-30, a reader read 9 twice, and
three of these had such a word; of 50 others another reader read 11 twice, and three had "what" or "again". Of 50 more
another reader read 15 twice, and six of these had the verb "name", which may be to rename, to mention or to label.
Only new messages are checked: 46 of the 400 before have one."""

UNFINISHED = ("fixup!", "squash!", "amend!")
"""Beginnings of subjects that the hook accepts, because `git rebase --autosquash` removes them later."""

HOOK = """#!/bin/sh
# Written by tools/check_commits.py of Tilewatch.
check=tools/check_commits.py
[ -f "$check" ] || exit 0
exec python3 "$check" "$1"
"""


def find_faults(message: str) -> list[str]:
    """Returns the faults of a commit message, one phrase for each."""
    subject, _, rest = message.partition("\n")
    change = re.sub(r"^[\w./-]+: ", "", subject)
    first = change.partition(" ")[0].lower()
    is_inflected = re.search(r"(ed|ing|[^s]s)$", first) and first not in IMPERATIVES
    faults = {
        f"has {len(subject)} letters, more than {MOST_LETTERS}": len(subject) > MOST_LETTERS,
        f"begins with '{first}', which is no imperative": first in NO_VERBS or is_inflected,
        f"begins with '{first}', which describes the author": first in ABOUT_THE_AUTHOR,
        "has a figure, which belongs into the body": FIGURE.search(VERSION.sub("", change)),
        "has a comma, ';' or 'and': make two commits of it": re.search(r"[,;]|\band\b", change),
        "is unfinished work": re.match(r"([\w./-]+: )?wip\b", subject, re.I) or subject.startswith(UNFINISHED),
        "has no body that gives the reason": not rest.strip(),
        "has no empty line before the body": rest.strip() and not rest.startswith("\n"),
    }
    return [fault for fault, is_there in faults.items() if is_there]


def check_message(text: str) -> list[str]:
    """Returns the faults of a message as the editor saves it: with comment lines, and with the diff below a scissors
    line."""
    lines = text.partition("# ------------------------ >8")[0].splitlines()
    message = "\n".join(line for line in lines if not line.startswith("#")).strip()
    if message.startswith((*UNFINISHED, "Merge ", "Revert ")):
        return []
    pointer = POINTER.search(message.partition("\n")[0])
    return [*find_faults(message), *([f"has '{pointer[0]}': write what is meant"] if pointer else [])]


def check_commits(root: Path = ROOT) -> list[str]:
    """Returns the faults of all commits that were written after the one that added this file. The list is empty if the
    checkout has no history."""
    added = _git(root, "log", "--diff-filter=A", "--format=%H %at", "--", "tools/check_commits.py").split()
    if not added:
        return []
    commit, written_at = added[-2:]
    log = _git(root, "log", "--no-merges", "--format=%at%n%h%n%B%x00", f"{commit}..HEAD")
    commits = (each.strip().split("\n", 2) for each in log.split("\0") if each.strip())
    # A branch that began earlier is rebased onto this file: its commits have older author dates.
    return [
        f"{name} {message.splitlines()[0]}: {fault}"
        for at, name, message in commits
        if int(at) > int(written_at) and not message.startswith("Revert ")
        for fault in find_faults(message.strip())
    ]


def install_hook(root: Path = ROOT) -> str | None:
    """Installs the hook commit-msg. Returns a sentence instead if the clone has another hook or another folder of
    hooks."""
    folder = _git(root, "rev-parse", "--path-format=absolute", "--git-path", "hooks")
    if not folder:
        return None
    hook = Path(folder) / "commit-msg"
    if _git(root, "config", "core.hooksPath") or (hook.exists() and "tools/check_commits.py" not in hook.read_text()):
        return f"commit messages are not checked before a commit: {hook} is yours; let it run tools/check_commits.py"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)
    return None


def _git(root: Path, *arguments: str) -> str:
    """Returns the output of a Git command, or "" if the command fails, as it does in a folder that is not a clone."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def main(arguments: list[str]) -> int:
    if arguments == ["--install"]:
        if sentence := install_hook():
            print(sentence)
        return 0
    faults = check_message(Path(arguments[0]).read_text(encoding="utf-8")) if arguments else check_commits()
    for fault in faults:
        print(f"the subject {fault}" if arguments else fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
