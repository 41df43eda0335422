"""Project files, trust in them, and the default space as far as settings decide it.

An argument, the environment, a project file or the git repository decides about the space. A `.commonbook.toml` that
lies in a git repository may have come with it: until a person has trusted it, it can switch capture off and nothing
else. So one that cannot be obeyed does no harm until then.

The home has one small file for each trusted one, named by a hash of its path and holding the hash of its content. So a
file that changes, or that is copied elsewhere, has to be trusted again, and nothing in a repository can say that it is
trusted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.core.settings.git_repository import Repository, is_legal_name, paths_above, repository_at
from commonbook.core.settings.settings import PERSONAL, PROJECT_KEYS, Settings, parse_toml, read_config_file
from commonbook.errors import BadInput, BadSpaceName, NotFound

PROJECTS: Final = "projects"
"""The space above the spaces of git repositories."""

_PROJECT_FILE: Final = ".commonbook.toml"
_MAX_PARTS: Final = 7


class ProjectFile(NamedTuple):
    """A `.commonbook.toml`: the space that it names, whether it switches capture off, and whether it is trusted."""

    path: str
    space: str | None
    captures: bool
    trusted: bool


def default_space(settings: Settings) -> str:
    """Return the name of the space that is used when a verb names none.

    It comes from the argument or COMMONBOOK_SPACE, else from the nearest trusted `.commonbook.toml`, else from the git
    repository, else it is `personal`. A book that knows of several repositories of one name decides between them.
    """
    named, repository = chosen_space(settings)
    return named or (f"{PROJECTS}/{repository.name}" if repository else PERSONAL)


def chosen_space(settings: Settings) -> tuple[str | None, Repository | None]:
    """Return the space that is chosen by name, else the git repository that decides, else nothing.

    Inside the home no git repository counts: a home under git is not a project.
    """
    named = settings.space or next((file.space for file in _project_files(settings) if file.trusted), None)
    if named or not settings.cwd or _inside(settings.cwd, settings.home):
        return named, None
    return None, repository_at(settings.cwd)


def capture_allowed(settings: Settings) -> bool:
    """Return whether agents may record their sessions here: yes, unless a `.commonbook.toml` says `off`.

    The nearest trusted file decides. One that is nearer and not trusted can only say `off`.
    """
    for file in _project_files(settings):
        if file.trusted or not file.captures:
            return file.captures
    return True


def untrusted_file(settings: Settings) -> ProjectFile | None:
    """Return the project file that would name the default space if it were trusted, or None."""
    if settings.space:
        return None
    nearest = next((file for file in _project_files(settings) if file.trusted or file.space), None)
    return nearest if nearest is not None and not nearest.trusted else None


def trust(settings: Settings, file: str | None = None, *, trusted: bool = True) -> ProjectFile:
    """Trust a project file, by default the nearest one, as it is now, or no longer; return what it says."""
    path = _project_path(settings, file)
    data = read_config_file(path)
    if data is None:
        raise NotFound(f"there is no {path}", fix=f"name a {_PROJECT_FILE}, or go into its project")
    _parse(path, data)
    if trusted:
        _add_trust(settings.home, path, data)
    else:
        _remove_trust(settings.home, path)
    return _read(settings, path, data)


def _project_path(settings: Settings, file: str | None) -> str:
    if file is None:
        nearest = next(_project_files(settings), None)
        return nearest.path if nearest else os.path.join(settings.cwd, _PROJECT_FILE)
    path = os.path.join(settings.cwd, os.path.expanduser(file))
    return os.path.join(path, _PROJECT_FILE) if os.path.isdir(path) else path


def _project_files(settings: Settings) -> Iterator[ProjectFile]:
    """Yield the project files of the working directory and the folders above it, the nearest first."""
    for path in paths_above(settings.cwd, _PROJECT_FILE):
        try:
            data = read_config_file(path)
        except BadInput:
            if _is_own(path):
                raise
            yield ProjectFile(path, None, captures=True, trusted=False)
            continue
        if data is not None:
            yield _read(settings, path, data)


def _read(settings: Settings, path: str, data: bytes) -> ProjectFile:
    trusted = _is_own(path) or is_trusted(settings.home, path, data)
    try:
        space, captures = _parse(path, data)
    except BadInput:
        if trusted:
            raise
        space, captures = None, not _switches_off(data)
    return ProjectFile(path, space, captures, trusted)


def _is_own(path: str) -> bool:
    """Return whether a project file is the person's own: it lies in no git repository."""
    return repository_at(os.path.dirname(path)) is None


def _switches_off(data: bytes) -> bool:
    """Return whether a project file that cannot be obeyed in other ways switches capture off."""
    import tomllib  # Imported late: most runs have no file to parse.

    try:
        return _captures(tomllib.loads(data.decode()).get("capture")) is False
    except (ValueError, RecursionError):
        return False


def _captures(value: object) -> bool | None:
    """Return whether a value of `capture` means on; None if it means neither on nor off."""
    if isinstance(value, bool):
        return value
    return {"on": True, "off": False}.get(value) if isinstance(value, str) else None


def _parse(path: str, data: bytes) -> tuple[str | None, bool]:
    """Return the space that a project file names, or None, and whether it lets agents record their sessions."""
    values = parse_toml(path, data, PROJECT_KEYS)
    captures, space = _captures(values.get("capture", "on")), values.get("space")
    if captures is None:
        raise BadInput(f"capture in {path} is neither on nor off", fix='write capture = "on" or capture = "off"')
    if space is None:
        return None, captures
    parts = space.split("/") if isinstance(space, str) else []
    if not isinstance(space, str) or len(parts) > _MAX_PARTS or not all(is_legal_name(part) for part in parts):
        raise BadSpaceName(
            f"space in {path} is not the name of a space: {space!r}",
            fix='write it like space = "team/backend": lower-case letters, digits, dots, dashes and underscores',
        )
    return space, captures


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


_FOLDER: Final = os.path.join(".commonbook", "trusted")


def is_trusted(home: str, path: str, data: bytes) -> bool:
    """Return whether a person has trusted the file at this path with this content."""
    try:
        with open(_record(home, path), encoding="ascii") as file:
            return file.read().strip() == sha256(data).hexdigest()
    except OSError:
        return False


def _add_trust(home: str, path: str, data: bytes) -> None:
    """Record that a person trusts the file at this path, as long as its content stays the same."""
    record = _record(home, path)
    os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
    part = f"{record}.{os.getpid()}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(sha256(data).hexdigest() + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, record)


def _remove_trust(home: str, path: str) -> None:
    """Forget that a person has trusted the file at this path."""
    with suppress(FileNotFoundError):
        os.unlink(_record(home, path))


def _record(home: str, path: str) -> str:
    real = os.path.realpath(path).encode(errors="surrogateescape")
    return os.path.join(home, _FOLDER, sha256(real).hexdigest()[:32])
