"""Where a folder really lies: file systems whose locks cannot be trusted are refused."""

from __future__ import annotations

import os
import re
from typing import Final

NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "glusterfs", "lustre", "davfs", "beegfs"}
    | {"fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.gcsfuse", "fuse.davfs2", "fuse.cephfs"}
)
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def network_file_system(folder: str, *, mountinfo: str = "/proc/self/mountinfo") -> str | None:
    """Return the kind of network file system that the folder is on, or None (also where the system does not say)."""
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return None
    real = os.path.realpath(folder)
    best, kind = "", None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), before.split()[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # Later lines are mounted over earlier ones at the same place.
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind if kind in NETWORK else None
