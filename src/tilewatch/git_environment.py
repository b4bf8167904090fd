"""Makes the environment variables for the git processes that Tilewatch starts."""

import os
import re
from pathlib import Path

OF_A_PERSON = re.compile(
    "GIT_(ASKPASS|SSH|SSL_|HTTP_|PROXY_|ALLOW_PROTOCOL|CEILING_|DISCOVERY_|CONFIG_(COUNT|KEY_|VALUE_|GLOBAL|(NO)?SYSTEM))"
)
"""Matches the names of the variables by which people let git reach servers and configure it. A hook may have set the
others, which would make git use the repository or the index of that hook."""

AS_STORED = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull, "LC_ALL": "C"}
"""An environment in which Git ignores `git replace` and grafts, which exist on one machine only."""

IN_BLOCKS = {"GIT_FLUSH": "0"}
"""Makes git write lists into pipes in blocks, not by line: 100,000 commits take 0.3 s instead of 0.6 (2026-11-28)."""


def make_environment(repository: Path | None = None) -> dict[str, str]:
    """Returns environment variables for git, without those that hooks set. Git does not search above `repository`."""
    kept = {name: each for name, each in os.environ.items() if not name.startswith("GIT_") or OF_A_PERSON.match(name)}
    own = {} if repository is None else {"GIT_CEILING_DIRECTORIES": str(repository.resolve().parent)}
    return {**kept, **AS_STORED, **IN_BLOCKS, **own}
