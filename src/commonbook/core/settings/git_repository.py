"""The git repository around a folder: its name, read from git's own files without git, as the name of a space."""

from __future__ import annotations

import os
import re
import stat as modes
import time
import zlib
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

# One part of a space's name, by the rule of `space_paths`: no month, no two dots, not the name of a Markdown file.
_LEGAL_PART: Final = re.compile(r"(?!\d{4}-\d{2}\Z)(?!.*\.\.)(?!.*\.md\Z)[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_ORIGIN_SECTION: Final = re.compile(r'\[\s*remote\s+"origin"\s*\]\s*(?:[#;].*)?', re.IGNORECASE)
_URL_LINE: Final = re.compile(r'url\s*=\s*(?:"([^"]*)"|([^#;]*))', re.IGNORECASE)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/]*@)?(?P<host>\[[^\]]*\]|[^/:]*)(?::[0-9]*)?/(?P<path>.*)")
_HOST_AND_PATH: Final = re.compile(r"(?:[^/@]+@)?(?P<host>[^/:]{2,}):(?P<path>.*)")
_MAX_PART_CHARS: Final = 64
_SETTLED_SECONDS: Final = 2.0


class Repository(NamedTuple):
    """A git repository: its name as part of the name of a space, and what distinguishes it from others of that name.

    `owner` is the part of the origin's address, or of the path, before the name. `identities` are the address of the
    origin, if there is one, and the place of the repository, which its worktrees share.
    """

    name: str
    owner: str
    identities: tuple[str, ...]

    @property
    def longer_names(self) -> tuple[str, str]:
        """Two more names, for a repository whose name another one has: with its owner, and with a checksum."""
        with_owner = as_space_name(f"{self.owner}-{self.name}")
        checksum = format(zlib.crc32(self.identities[0].encode(errors="surrogateescape")), "08x")
        return with_owner, f"{with_owner[: _MAX_PART_CHARS - 9].rstrip('.-')}-{checksum}"


def repository_at(cwd: str) -> Repository | None:
    """Return the repository around a folder, or None outside of a repository."""
    for path in paths_above(cwd, ".git"):
        git = _git_folder(path)
        if git is not None:
            shared = _shared_git_folder(git)
            return _repository(path, git, shared, _read(f"{shared}/config"))
    return None


@lru_cache(maxsize=16)
def _repository(path: str, git: str, shared: str, config: str) -> Repository:
    """Return the repository with this `.git`, these folders of git and this configuration; each write asks for one."""
    place = f"place:{shared}"
    origin = _parse_origin(config)
    if origin is None:
        name = _folder_name(os.path.dirname(path), git=git, shared=shared)
        top = os.path.dirname(shared) if os.path.basename(shared).startswith(".") else shared
        return Repository(as_space_name(name), os.path.basename(os.path.dirname(top)), (place,))
    parts = re.split(r"[/:]+", origin)
    address = origin if _is_remote(origin) else os.path.normpath(os.path.join(os.path.dirname(shared), origin))
    return Repository(as_space_name(parts[-1]), parts[-2] if parts[1:] else "", (f"origin:{address}", place))


@lru_cache(maxsize=16)
def paths_above(folder: str, name: str) -> tuple[str, ...]:
    """Return the paths of this name in a folder and its parents, the nearest first; each write asks for the same."""
    paths: list[str] = []
    while folder:
        paths.append(os.path.join(folder, name))
        parent = os.path.dirname(folder)
        folder = parent if parent != folder else ""
    return tuple(paths)


def _git_folder(path: str) -> str | None:
    """Return the git folder that a `.git` is or, in a worktree or submodule, points to; None if there is none."""
    try:
        is_folder = modes.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return None
    if not is_folder:
        pointer = _first_line(path)
        if not pointer.startswith("gitdir:"):
            return None
        path = os.path.join(os.path.dirname(path), pointer.removeprefix("gitdir:").strip())
    return _real_path(path) if os.path.isfile(f"{path}/HEAD") else None


_REAL_PATHS: Final[dict[str, str]] = {}


def _real_path(path: str) -> str:
    """Return the path of a folder without links; an earlier answer is used while it leads to the same folder."""
    known = _REAL_PATHS.get(path)
    if known == path:
        return path
    if known is not None:
        with suppress(OSError):
            if os.path.samestat(os.stat(known), os.stat(path)):
                return known
    _REAL_PATHS[path] = os.path.realpath(path)
    return _REAL_PATHS[path]


def _shared_git_folder(git: str) -> str:
    """Return the git folder that all worktrees of a repository share."""
    common = _first_line(f"{git}/commondir")
    return _real_path(os.path.join(git, common)) if common else git


def _folder_name(folder: str, *, git: str, shared: str) -> str:
    """Return the name of the folder of the first checkout, or of the bare repository, where there is no origin."""
    if shared == git:
        return os.path.basename(folder)
    name = os.path.basename(shared)
    # `.git` in a checkout, or `.bare` next to worktrees: its parent folder has the name.
    return os.path.basename(os.path.dirname(shared)) if name.startswith(".") else name.removesuffix(".git")


def _parse_origin(config: str) -> str | None:
    """Return the address of the origin as host and path, however it is written, or None if there is none.

    It has neither user, password nor port, so that all clones of a repository agree and no secret is in it.
    """
    in_origin = False
    for line in config.splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            in_origin = _ORIGIN_SECTION.fullmatch(stripped) is not None
        elif in_origin and (url := _URL_LINE.match(stripped)):
            address = (url[1] or url[2] or "").strip().replace("\\", "/").rstrip("/")
            address = address.removesuffix("/.git").removesuffix(".git").rstrip("/")
            if remote := _URL.match(address) or _HOST_AND_PATH.match(address):
                host, path = remote["host"].lower(), remote["path"].strip("/")
                address = f"{host}/{path}" if host else f"/{path}"
            return address if re.split(r"[/:]", address)[-1] else None
    return None


def _is_remote(address: str) -> bool:
    """Tell an address with a host from a path of this machine, which may be relative to the repository."""
    return not address.startswith(("/", "."))


def is_legal_name(name: str) -> bool:
    """Return whether this is a legal part of a space name."""
    return _LEGAL_PART.fullmatch(name) is not None


@lru_cache(maxsize=64)
def as_space_name(name: str) -> str:
    """Return the name of a repository as a legal part of a space name."""
    lowered = re.sub(r"\.{2,}", ".", re.sub(r"[^a-z0-9._-]+", "-", name.lower()))
    legal = re.sub(r"\.md\Z", "-md", lowered.lstrip("._-").rstrip("-"))
    # A checksum distinguishes repositories whose names do not fit.
    checksum = format(zlib.crc32(name.encode(errors="surrogateescape")), "08x")
    if len(legal) > _MAX_PART_CHARS:
        return f"{legal[: _MAX_PART_CHARS - 9].rstrip('.-')}-{checksum}"
    return legal if is_legal_name(legal) else f"repo-{legal or checksum}"


def _first_line(path: str) -> str:
    return _read(path).partition("\n")[0].strip()


def _read(path: str) -> str:
    """Return the text of one of git's files, or an empty text if it cannot be read."""
    try:
        stat = os.stat(path)
        # A file that was just written may be written again within the same tick of its clock: it is not cached.
        settled = time.time() - stat.st_mtime > _SETTLED_SECONDS
        return (_read_cached if settled else _read_cached.__wrapped__)(
            path, stat.st_mtime_ns, stat.st_size, stat.st_ino
        )
    except OSError:
        return ""


@lru_cache(maxsize=64)
def _read_cached(path: str, *_: int) -> str:
    """Return the text of a file, cached by its time, size and inode: each call in a repository reads the same files."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 20)
