"""Chooses the user that the embedded servers run as. Knows nothing of Postgres but that it refuses root.

An ordinary user's servers run as that user. Root's run as nobody, one of two ways:

1. In a user namespace that shows root as nobody. For the file system they are still root's processes, without its
   powers: folders that only root may enter work, nothing changes owner, and no other user can reach the data.
2. Where namespaces are forbidden (the default of most containers), really as nobody. Then the data belongs to nobody,
   who must be able to enter the folders above it; the rights of those folders are not changed for that.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServerUser:
    """The user that the embedded servers run as. `command` goes before a server's own command line; `uid` and `gid` own
    the server's files, seen from here."""

    command: tuple[str, ...]
    uid: int
    gid: int

    def can_enter(self, path: Path) -> bool:
        """Returns True when a server can enter this folder, or run this program."""
        return _succeeds((*self.command, "test", "-x", str(path)))

    def own(self, folder: Path) -> None:
        """Gives a folder and all in it to the server; a no-op when they are the server's already."""
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
    # nobody, and not any unused number: initdb looks its user up by name.
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
