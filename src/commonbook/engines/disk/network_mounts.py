"""Detects folders on network file systems, whose file locks cannot be trusted, from the mount table."""

from __future__ import annotations

import os
import re
from typing import Final

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "glusterfs", "lustre", "davfs", "beegfs"}
    | {"fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.gcsfuse", "fuse.davfs2", "fuse.cephfs"}
)
_OCTAL_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def network_file_system(folder: str, *, mountinfo: str = "/proc/self/mountinfo") -> str | None:
    """Return the type of the network file system that holds the folder; None if it is local or unknown."""
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return None
    real_path = os.path.realpath(folder)
    longest, kind = "", None
    for line in lines:
        before, _, after = line.partition(" - ")
        mount_point = _OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), before.split()[4])
        inside = real_path == mount_point or real_path.startswith(mount_point.rstrip("/") + "/")
        # A later line is mounted over an earlier one at the same mount point.
        if inside and len(mount_point) >= len(longest):
            longest, kind = mount_point, after.split()[0]
    return kind if kind in NETWORK_FILE_SYSTEMS else None
