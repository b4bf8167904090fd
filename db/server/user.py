"""Chooses the user that the embedded servers run as, because Postgres refuses to run as root.

Servers that root starts run in a user namespace, where root is shown as nobody. They can enter root's folders, and no
other user can reach the data. If namespaces are forbidden, as in most containers, the servers run as the real user
nobody. The data then belongs to nobody, who must be able to enter the folders above it.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServerUser:
    """The user that the embedded servers run as. `command` is put in front of a server's command line."""

    command: tuple[str, ...]
    # Of the server's files, as this process sees them.
    uid: int
    gid: int

    def can_enter(self, path: Path) -> bool:
        """Returns whether this user can enter a folder or run a program."""
        return _succeeds((*self.command, "test", "-x", str(path)))

    def own(self, folder: Path) -> None:
        """Makes this user the owner of a folder and of everything in it."""
        if (status := folder.stat()).st_uid == self.uid and status.st_gid == self.gid:
            return
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def choose() -> ServerUser:
    if os.geteuid() != 0:
        return ServerUser((), os.geteuid(), os.getegid())
    nobody = pwd.getpwnam("nobody")
    return in_namespace(nobody) if namespaces_allowed() else as_nobody(nobody)


def in_namespace(nobody: pwd.struct_passwd) -> ServerUser:
    # nobody, not an unused number, because initdb looks up the name of its user
    mapped = (f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}")
    return ServerUser(("unshare", "--user", *mapped, "--"), os.geteuid(), os.getegid())


def as_nobody(nobody: pwd.struct_passwd) -> ServerUser:
    dropped = (f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups")
    return ServerUser(("setpriv", *dropped, "--"), nobody.pw_uid, nobody.pw_gid)


def namespaces_allowed() -> bool:
    return _succeeds(("unshare", "--user", "--map-user=65534", "--map-group=65534", "--", "true"))


def _succeeds(command: tuple[str, ...]) -> bool:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
