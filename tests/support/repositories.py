"""Git repositories as folders, made without git."""

from __future__ import annotations

from pathlib import Path


def repository(folder: Path, origin: str | None = None) -> Path:
    """Make a repository, with an origin if one is given, and return its folder."""
    git = folder / ".git"
    git.mkdir(parents=True, exist_ok=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    remote = f'[remote "origin"]\n\turl = {origin}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n' if origin else ""
    (git / "config").write_text(f'[core]\n\tbare = false\n[remote "fork"]\n\turl = git@host:me/fork.git\n{remote}')
    return folder


def worktree(main: Path, folder: Path) -> Path:
    """Make a worktree of a repository, and return its folder."""
    git = main / ".git" / "worktrees" / folder.name
    git.mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/topic\n")
    (git / "commondir").write_text("../..\n")
    folder.mkdir(parents=True)
    (folder / ".git").write_text(f"gitdir: {git}\n")
    return folder
