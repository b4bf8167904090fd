"""The kernels under watch here: library files, loaded by path like those of any other repository."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
