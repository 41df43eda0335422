"""Which git repository a folder is in, by git's own files alone, and how a space is named after it."""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

# Patterns are compiled where they are first used, and then kept by `re`: most runs use none.
# One part of a space's name, by the rule of `paths`: no month, no two dots, not the name of a Markdown file.
_LEGAL: Final = r"(?!\d{4}-\d{2}\Z)(?!.*\.\.)(?!.*\.md\Z)[a-z0-9][a-z0-9._-]{0,63}"
_ORIGIN: Final = r'\[\s*remote\s+"origin"\s*\]\s*(?:[#;].*)?'
_URL: Final = r'url\s*=\s*(?:"([^"]*)"|([^#;]*))'
_LONGEST_PART: Final = 64
_A_WHILE: Final = 2.0


def repository_name(cwd: str) -> str | None:
    """Return the name of the repository around a folder, fit for a space, or None outside of any."""
    for folder in upwards(cwd):
        git = _git_folder(os.path.join(folder, ".git"))
        if git is not None:
            shared = _shared_git_folder(git)
            return as_space_name(_origin_name(shared) or _folder_name(folder, git=git, shared=shared))
    return None


def upwards(folder: str) -> Iterator[str]:
    """Yield a folder and every folder around it, the nearest first."""
    while folder:
        yield folder
        above = os.path.dirname(folder)
        folder = above if above != folder else ""


def _git_folder(path: str) -> str | None:
    """Follow a `.git`: a folder, or the file in its place that a worktree or submodule has."""
    if not os.path.isdir(path):
        pointer = _first_line(path)
        if not pointer.startswith("gitdir:"):
            return None
        path = os.path.join(os.path.dirname(path), pointer.removeprefix("gitdir:").strip())
    return os.path.realpath(path) if os.path.isfile(os.path.join(path, "HEAD")) else None


def _shared_git_folder(git: str) -> str:
    """Return the git folder that all worktrees of a repository have in common."""
    common = _first_line(os.path.join(git, "commondir"))
    return os.path.realpath(os.path.join(git, common)) if common else git


def _folder_name(folder: str, *, git: str, shared: str) -> str:
    """Name a repository without an origin by the folder that its first checkout, or the bare repository, is in."""
    if shared == git:
        return os.path.basename(folder)
    name = os.path.basename(shared)
    # `.git` in a checkout, `.bare` beside its worktrees: the folder around it has the name.
    return os.path.basename(os.path.dirname(shared)) if name.startswith(".") else name.removesuffix(".git")


def _origin_name(git: str) -> str | None:
    """Return the last part of the origin's address, whichever way it is written."""
    return _origin_in(_read(os.path.join(git, "config")))


@lru_cache(maxsize=16)
def _origin_in(config: str) -> str | None:
    in_origin = False
    for line in config.splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            in_origin = re.fullmatch(_ORIGIN, stripped, re.IGNORECASE) is not None
        elif in_origin and (found := re.match(_URL, stripped, re.IGNORECASE)):
            address = (found[1] or found[2] or "").strip().replace("\\", "/").rstrip("/")
            address = address.removesuffix("/.git").removesuffix(".git")
            return re.split(r"[/:]", address.rstrip("/"))[-1] or None
    return None


def legal_name(name: str) -> bool:
    """Tell whether one part of a space may be named so."""
    return re.fullmatch(_LEGAL, name, re.ASCII) is not None


def as_space_name(name: str) -> str:
    """Return the name of a repository as one part of a space may have it."""
    lowered = re.sub(r"\.{2,}", ".", re.sub(r"[^a-z0-9._-]+", "-", name.lower()))
    legal = re.sub(r"\.md\Z", "-md", lowered.lstrip("._-").rstrip("-"))
    # Where the name itself does not fit, its checksum still tells two repositories apart.
    checksum = format(zlib.crc32(name.encode(errors="surrogateescape")), "08x")
    if len(legal) > _LONGEST_PART:
        return f"{legal[: _LONGEST_PART - 9].rstrip('.-')}-{checksum}"
    return legal if legal_name(legal) else f"repo-{legal or checksum}"


def _first_line(path: str) -> str:
    return _read(path).partition("\n")[0].strip()


def _read(path: str) -> str:
    """Return the text of one of git's files, and nothing where there is none that we can read."""
    try:
        found = os.stat(path)
        # One that was just written may be written again within the same tick of its clock.
        settled = time.time() - found.st_mtime > _A_WHILE
        return (_text if settled else _text.__wrapped__)(path, found.st_mtime_ns, found.st_size, found.st_ino)
    except OSError:
        return ""


@lru_cache(maxsize=64)
def _text(path: str, *_: int) -> str:
    """Return the text of a file as it was at that time: every call of a book in a repository asks for the same."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 20)
