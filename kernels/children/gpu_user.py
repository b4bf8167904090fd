"""Tests whether child processes on a GPU can run as different system users."""

import contextlib
import functools
import logging
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewatch.errors import ExpectedError
from tilewatch.kernels.children import sandbox

OWNER, MEASURER = "try as owner", "try as measurer"
"""Roles of the two children of the trial (kernels/gpu/user_trial.py). OWNER is confined like a process that runs a
library, MEASURER like the measuring process."""

DEADLINE_S = 60.0
SHARED_FILES = Path("/dev/shm")  # noqa: S108

log = logging.getLogger(__name__)


def is_of_root() -> bool:
    """Returns whether this process is root and sandboxes its children."""
    return os.geteuid() == 0 and sandbox.find_level() is not sandbox.Level.NONE


@functools.cache
def find_refusal(gpu: str, start: Callable[..., Any]) -> str | None:
    """Returns why child processes on this GPU must run as root, or None if each can have its own user."""
    try:
        refusal = sandbox.find_need_of_root() or _try(gpu, start)
    except (ExpectedError, OSError) as error:
        refusal = str(error)
    if refusal is not None:
        log.warning("commits' host code runs as root on GPU %s: %s", gpu or "0", refusal)
    return refusal


def remove_shared_files(user: int) -> None:
    """Deletes a user's files in /dev/shm, where sandboxed processes may write because CUDA needs it."""
    for each in SHARED_FILES.iterdir():
        with contextlib.suppress(OSError):  # another process removed it
            if each.lstat().st_uid == user:
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()


def _try(gpu: str, start: Callable[..., Any]) -> str | None:
    """Returns why child processes of two users cannot share GPU memory, or None if they can."""
    from tilewatch.kernels.children.child_process import ChildDied, ChildHung  # it asks this module

    drawn = list(secrets.token_bytes(64))
    environment = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
    with contextlib.ExitStack() as started:
        owner, measurer = (start(role, environment=environment) for role in (OWNER, MEASURER))
        started.callback(owner.close)
        started.callback(measurer.close)
        try:
            for each in (owner, measurer):
                each.begin({"ask": "start"})  # both make their contexts at the same time
            timers = [each.finish(deadline_s=DEADLINE_S).get("timer") for each in (owner, measurer)]
            given = owner.ask({"ask": "share", "numbers": drawn}, deadline_s=DEADLINE_S)
            taken = measurer.ask({"ask": "take", "shared": given.get("shared")}, deadline_s=DEADLINE_S)
        except (ChildDied, ChildHung) as error:
            return str(error)
    if not given.get("user"):
        return "a child that should have had another user was still root"
    if timers[0] != timers[1]:
        return f"its timer would be {timers[0]} and not {timers[1]}"
    return None if taken.get("numbers") == drawn else "CUDA passed other numbers on from one user to another"
