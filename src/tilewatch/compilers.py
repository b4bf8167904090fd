"""Writes and reads compiler changes, such as "cuda-tile 1.7.0 limit 15s -> cuda-tile 1.8.0 limit 15s"."""

from dataclasses import dataclass
from typing import Self

NAMED = ("cuda-tile", "nvidia-cuda-tileiras")
"""The packages that a person names to add a toolchain. NVIDIA's other packages follow the second package's version."""

CAUSE, ARROW, LIMIT = "another compiler: ", " -> ", " limit "


@dataclass(frozen=True)
class CompilerChange:
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.before}{ARROW}{self.after}"

    @property
    def cause(self) -> str:
        """Returns the text that databases store as a regression's cause. Its form must not change."""
        return f"{CAUSE}{self}"

    @classmethod
    def read(cls, cause: str) -> Self | None:
        """Parses a regression's cause. Returns None if the cause is not a compiler change."""
        before, arrow, after = cause.removeprefix(CAUSE).partition(ARROW)
        return cls(before, after) if cause.startswith(CAUSE) and arrow else None

    @property
    def without_limits(self) -> tuple[str, str]:
        """Returns the compilers before and after the change, without their time limits."""
        return self.before.partition(LIMIT)[0], self.after.partition(LIMIT)[0]

    @property
    def versions_before(self) -> dict[str, str]:
        """Maps the packages in NAMED to their versions before the change."""
        return _read_versions(self.before)

    @property
    def toolchain_before(self) -> str | None:
        """Returns the name of the toolchain before the change; None if the packages in NAMED did not change."""
        before, after = self.versions_before, _read_versions(self.after)
        changed = [package for package in NAMED if package in before and before[package] != after.get(package)]
        return name_toolchain(changed[-1], before[changed[-1]]) if changed else None


def name_toolchain(package: str, version: str) -> str:
    """Returns a name for a toolchain, such as "cuda-tile-1.7.0"."""
    return f"{package.removeprefix('nvidia-')}-{version}"


def _read_versions(compiler: str) -> dict[str, str]:
    words = compiler.split()
    versions = dict(zip(words[::2], words[1::2], strict=False))
    return {package: versions[short] for package in NAMED if (short := package.removeprefix("nvidia-")) in versions}
