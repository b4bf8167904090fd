"""Chooses the user that the embedded servers run as, because Postgres refuses to run as root.

An ordinary user's servers run as that user. Servers that root starts run as nobody, in one of two ways:

1. In a user namespace that shows root as nobody. To the file system they are root's processes without its powers: they
   can enter folders that only root may enter, no file changes its owner, and no other user can reach the data.
2. If namespaces are forbidden, as in most containers, as the real user nobody. Then the data belongs to nobody, who
   must be able to enter the folders above it; the rights of those folders are not changed.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServerUser:
    """The user that the embedded servers run as. `command` is put in front of a server's command line. The server's
    files belong to `uid` and `gid`, in the numbering of this process."""

    command: tuple[str, ...]
    uid: int
    gid: int

    def can_enter(self, path: Path) -> bool:
        """Returns whether a server of this user can enter this folder or run this program."""
        return _succeeds((*self.command, "test", "-x", str(path)))

    def own(self, folder: Path) -> None:
        """Makes this user the owner of a folder and of everything in it. Does nothing if it owns the folder already."""
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
