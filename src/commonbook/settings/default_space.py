"""The default space: from an argument, the environment, a project file or the git repository."""

from __future__ import annotations

import os
from typing import Final

from commonbook.errors import BadInput, BadSpaceName
from commonbook.settings.git_repository import folder_and_parents, is_legal_name, repository_name
from commonbook.settings.settings import PERSONAL, PROJECT_KEYS, Settings, read_toml

_PROJECT_FILE: Final = ".commonbook.toml"
_MAX_PARTS: Final = 7


def default_space(settings: Settings) -> str:
    """Return the name of the space that is used when a verb names none.

    It comes from the argument or COMMONBOOK_SPACE, else from the nearest `.commonbook.toml`, else from the git
    repository, else it is `personal`. Inside the home no git repository counts: a home under git is not a project.
    """
    if settings.space:
        return settings.space
    if project_space := _project_space(settings.cwd):
        return project_space
    if not settings.cwd or _inside(settings.cwd, settings.home):
        return PERSONAL
    repository = repository_name(settings.cwd)
    return f"projects/{repository}" if repository else PERSONAL


def capture_allowed(settings: Settings) -> bool:
    """Tell whether agents may record their sessions here: yes, unless the nearest `.commonbook.toml` says `off`."""
    for folder in folder_and_parents(settings.cwd):
        path = os.path.join(folder, _PROJECT_FILE)
        values = read_toml(path, PROJECT_KEYS)
        if values is not None:
            _check_project(path, values)
            return values.get("capture", "on") == "on"
    return True


def _project_space(cwd: str) -> str | None:
    """Return the space that the nearest `.commonbook.toml` names, if it names one."""
    for folder in folder_and_parents(cwd):
        path = os.path.join(folder, _PROJECT_FILE)
        values = read_toml(path, PROJECT_KEYS)
        if values is not None:
            return _check_project(path, values)
    return None


def _check_project(path: str, values: dict[str, object]) -> str | None:
    """Check the values of a project file, and return the space that it names, or None."""
    if values.get("capture", "on") not in ("on", "off"):
        raise BadInput(f"capture in {path} is neither on nor off", fix='write capture = "on" or capture = "off"')
    space = values.get("space")
    if space is None:
        return None
    parts = space.split("/") if isinstance(space, str) else []
    if not isinstance(space, str) or len(parts) > _MAX_PARTS or not all(is_legal_name(part) for part in parts):
        raise BadSpaceName(
            f"space in {path} is not the name of a space: {space!r}",
            fix='write it like space = "team/backend": lower-case letters, digits, dots, dashes and underscores',
        )
    return space


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
