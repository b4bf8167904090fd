"""A watched repository with three real changes, a change of words only and a new name.

Pure but for Git: each change is a pair of texts, put into the tiny library of tiny.py in turn.
"""

from pathlib import Path

from tests.worker import tiny

RESULT = "ct.load(x, index=(i,), shape=(width,)) * 2.0"
MORE = "(ct.load(x, index=(i,), shape=(width,)) + 1.0) * 2.0"

BASE = "Double numbers"
ADD, SPACE, CAST = "Start from one more", "Leave out the wider tiles", "Round on the way"
WORDS, NAME = "Say what a block does", "Call the block by its name"

CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    ADD: ((RESULT, MORE),),
    SPACE: (("(64, 128, 256, 96)", "(64, 96)"),),
    CAST: ((MORE, f"ct.astype(ct.astype({MORE}, ct.float16), ct.float32)"),),
    WORDS: (("    i = ct.bid(0)", "    # Each block doubles one tile.\n    i = ct.bid(0)"),),
    NAME: (("i = ct.bid(0)", "block = ct.bid(0)"), ("index=(i,)", "index=(block,)")),
}


def make(folder: Path, *subjects: str) -> dict[str, str]:
    """The repository with these changes committed one on the other; their shas by subject, with that of BASE."""
    tiny.make(folder)
    source = tiny.SOURCE.replace("FACTOR", "2.0")
    shas = {BASE: tiny.git(folder, "rev-parse", "HEAD").strip()}
    for subject in subjects:
        for before, after in CHANGES[subject]:
            assert before in source, f"{subject}: {before} is not there"
            source = source.replace(before, after)
        (folder / "library" / "double.py").write_text(source)
        tiny.git(folder, "add", ".")
        tiny.git(folder, "commit", "--quiet", "--message", subject)
        shas[subject] = tiny.git(folder, "rev-parse", "HEAD").strip()
    return shas
