"""Names compilers and the change from one to another, as the judge writes it into a regression and a page reads it.

A compiler is a line such as "cuda-tile 1.7.0 cuda-tileiras 13.4.92 limit 15s": the packages that compile with their
versions, and what limits their time. Knows nothing else of the product.
"""

from dataclasses import dataclass
from typing import Self

NAMED = ("cuda-tile", "nvidia-cuda-tileiras")
"""The packages that a person names to add a toolchain; NVIDIA's others follow the second one's version."""

CAUSE, ARROW, LIMIT = "another compiler: ", " -> ", " limit "


@dataclass(frozen=True)
class CompilerChange:
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.before}{ARROW}{self.after}"

    @property
    def cause(self) -> str:
        """Returns the cause of a regression that a replay under both compilers confirmed. Its words are stored, so they
        must not change."""
        return f"{CAUSE}{self}"

    @classmethod
    def read(cls, cause: str) -> Self | None:
        """Returns the change in the cause of a regression; None for another cause."""
        before, arrow, after = cause.removeprefix(CAUSE).partition(ARROW)
        return cls(before, after) if cause.startswith(CAUSE) and arrow else None

    @property
    def without_limits(self) -> tuple[str, str]:
        """Returns the names of both compilers as reports have them, without the limit of compile time."""
        return self.before.partition(LIMIT)[0], self.after.partition(LIMIT)[0]

    @property
    def versions_before(self) -> dict[str, str]:
        """Returns the versions of NAMED before, as `tilewatch toolchain add` takes them."""
        return _read_versions(self.before)

    @property
    def toolchain_before(self) -> str | None:
        """Returns the name under which a person is told to add the compiler before; None where neither of NAMED
        changed."""
        before, after = self.versions_before, _read_versions(self.after)
        changed = [package for package in NAMED if package in before and before[package] != after.get(package)]
        return name_toolchain(changed[-1], before[changed[-1]]) if changed else None


def name_toolchain(package: str, version: str) -> str:
    """Returns the name under which people are told to add a toolchain of this version."""
    return f"{package.removeprefix('nvidia-')}-{version}"


def _read_versions(compiler: str) -> dict[str, str]:
    words = compiler.split()
    versions = dict(zip(words[::2], words[1::2], strict=False))
    return {package: versions[short] for package in NAMED if (short := package.removeprefix("nvidia-")) in versions}
