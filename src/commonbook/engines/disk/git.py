"""Keeps what is not for others out of git: folders that ignore themselves, and secrets that were committed already.

It also tells when files are rather left as git has checked them out.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_IGNORE_FILE: Final = ".gitignore"
_IGNORE_ALL: Final = b"*\n"
_TIMEOUT_SECONDS: Final = 20.0
# A repository that somebody else made must not run its programs here.
_SAFE: Final = (
    "--no-optional-locks",
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "log.showSignature=false",
)


def ignore_folder(folder: str) -> None:
    """Make a folder ignore itself and everything in it, unless it has an ignore file already."""
    with suppress(OSError):
        fd = os.open(os.path.join(folder, _IGNORE_FILE), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, _IGNORE_ALL)
        finally:
            os.close(fd)


def remove_lone_ignore_file(folder: str) -> None:
    """Remove our ignore file from a folder in which nothing else is left, so that the folder can be removed."""
    place = os.path.join(folder, _IGNORE_FILE)
    with suppress(OSError):
        if os.listdir(folder) == [_IGNORE_FILE]:
            with open(place, "rb") as file:
                is_ours = file.read(len(_IGNORE_ALL) + 1) == _IGNORE_ALL
            if is_ours:
                os.unlink(place)


def committed(folder: str, *paths: str) -> list[str]:
    """Return those of some paths below a folder that are tracked by git, or are in a commit of any branch.

    Without git, or outside of a repository, that is none.
    """
    return [path for path in paths if _run(folder, "ls-files", path) or _run(folder, "log", "--all", "-1", path)]


def is_between_branches(folder: str) -> bool:
    """Return whether the repository around a folder is on no branch, or whether git is changing its files just now.

    Then a commit was checked out, or a rebase or a bisection is under way.
    """
    git = _git_folder(folder)
    if git is None:
        return False
    head = _first_line(os.path.join(git, "HEAD"))
    return bool(head and not head.startswith("ref:")) or os.path.exists(os.path.join(git, "index.lock"))


def _git_folder(folder: str) -> str | None:
    """Return the git folder of the repository around a folder, which a file points to in a worktree."""
    above = os.path.dirname(folder)
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == above:
            return None
        folder, above = above, os.path.dirname(above)
    git = os.path.join(folder, ".git")
    pointer = "" if os.path.isdir(git) else _first_line(git)
    return os.path.join(folder, pointer.removeprefix("gitdir:").strip()) if pointer else git


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.readline()
    except OSError:
        return ""


def _run(folder: str, command: str, *arguments: str) -> str:
    """Return the output of a git command about a path, the last argument; '' if it fails."""
    # Only a home in a git repository needs it.
    import subprocess

    *options, path = arguments
    try:
        return subprocess.run(  # noqa: S603 - no argument comes from outside
            ["git", *_SAFE, command, *options, "--", path],  # noqa: S607 - the user's own git
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
