"""What a person has settled before any verb runs: the only reader of the environment.

An argument wins over the environment, and that over the home's own `.commonplace/config.toml`.
docs/SETTINGS.md lists every variable and key; a test keeps it complete.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from commonplace.errors import BadInput, BadSpaceName

PERSONAL: Final = "personal"
CONFIG_KEYS: Final = ("busy_seconds", "zone")
PROJECT_KEYS: Final = ("capture", "space")

_CONFIG: Final = os.path.join(".commonplace", "config.toml")
_PROJECT: Final = ".commonplace.toml"
# Patterns are compiled where they are first used, and then kept by `re`: most runs use none.
# One part of a space's name, by the rule of `paths`: no month, no two dots, not the name of a Markdown file.
_LEGAL: Final = r"(?!\d{4}-\d{2}\Z)(?!.*\.\.)(?!.*\.md\Z)[a-z0-9][a-z0-9._-]{0,63}"
_ORIGIN: Final = r'\[\s*remote\s+"origin"\s*\]\s*(?:[#;].*)?'
_URL: Final = r'url\s*=\s*(?:"([^"]*)"|([^#;]*))'
_LONGEST_PART: Final = 64
_MOST_PARTS: Final = 7
_BUSY_SECONDS: Final = 60.0


class Settings(NamedTuple):
    """Everything that the surroundings decide, read once."""

    home: str
    """The home, absolute, with symbolic links resolved."""
    cwd: str
    """The working directory, the same way; empty when it has been removed under us."""
    space: str | None = None
    """The space that was asked for, by argument or COMMONPLACE_SPACE."""
    zone: str | None = None
    """The zone that was chosen for this home, if one was."""
    system_zone: str | None = None
    """TZ, as the system has it: only a default for a home without a zone of its own."""
    busy_seconds: float = _BUSY_SECONDS
    """How long to wait for another process before giving up with Busy."""
    editor: str | None = None
    """The command that edits a file."""
    colour: bool = True
    """Whether colour is welcome on a terminal."""

    @classmethod
    def load(
        cls,
        home: str | os.PathLike[str] | None = None,
        *,
        space: str | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Settings:
        """Read the arguments, the environment and the home's configuration, in this order."""
        env = os.environ if environ is None else environ
        here = _here() if cwd is None else os.path.realpath(cwd)
        root = _home(os.fspath(home) if home is not None else None, env, here)
        zone, patience = _config(os.path.join(root, _CONFIG))
        return cls(
            home=root,
            cwd=here,
            space=_asked("space", space) or env.get("COMMONPLACE_SPACE") or None,
            zone=env.get("COMMONPLACE_ZONE") or zone,
            system_zone=env.get("TZ"),
            busy_seconds=_busy_seconds(env.get("COMMONPLACE_BUSY_SECONDS") or None, patience),
            editor=env.get("VISUAL") or env.get("EDITOR") or None,
            colour=not env.get("NO_COLOR") and env.get("TERM") != "dumb",
        )


def default_space(settings: Settings) -> str:
    """Name the space that is meant when no verb names one.

    The one asked for; else the nearest `.commonplace.toml`'s; else the git repository's; else `personal`.
    Inside the home there is no project: a home under git is not about itself.
    """
    if settings.space:
        return settings.space
    if named := _project_space(settings.cwd):
        return named
    if not settings.cwd or _inside(settings.cwd, settings.home):
        return PERSONAL
    repository = _repository_name(settings.cwd)
    return f"projects/{repository}" if repository else PERSONAL


def _here() -> str:
    try:
        return os.path.realpath(os.getcwd())
    except FileNotFoundError:
        return ""


def _asked(what: str, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise BadInput(f"the {what} is empty", fix=f"name a {what}, or leave the option out")
    return value


def _home(asked: str | None, env: Mapping[str, str], cwd: str) -> str:
    value = _asked("home", asked) or env.get("COMMONPLACE_HOME") or "~/commonplace"
    try:
        path = os.path.join(cwd, _expanded(value, env))
        if os.path.isabs(path):
            return os.path.realpath(path)
    except ValueError as error:
        raise BadInput(f"no folder can be named {value!r}: {error}", fix="give the home as a plain path") from error
    raise BadInput(
        f"the home {value!r} is relative to a working directory that is gone", fix="give the home as an absolute path"
    )


def _expanded(path: str, env: Mapping[str, str]) -> str:
    # The HOME that was handed in, not the process's own, so that tests and services can decide it.
    if path == "~" or path.startswith("~" + os.sep):
        return (env.get("HOME") or os.path.expanduser("~")) + path[1:]
    return os.path.expanduser(path)


def _config(path: str) -> tuple[str | None, float | None]:
    """Return the zone and the patience that a home has of its own."""
    values = _toml(path, CONFIG_KEYS) or {}
    zone, busy = values.get("zone"), values.get("busy_seconds")
    if zone is not None and not (isinstance(zone, str) and zone):
        raise BadInput(f"zone in {path} is not the name of a zone", fix='write it as zone = "Europe/Berlin"')
    if busy is not None and (isinstance(busy, bool) or not isinstance(busy, int | float) or not _a_wait(busy)):
        raise BadInput(f"busy_seconds in {path} is not a number of seconds", fix="write it as busy_seconds = 60")
    return zone, None if busy is None else float(busy)


def _busy_seconds(variable: str | None, configured: float | None) -> float:
    if variable is None:
        return _BUSY_SECONDS if configured is None else configured
    try:
        seconds = float(variable)
    except ValueError:
        seconds = math.nan
    if not _a_wait(seconds):
        raise BadInput(
            f"COMMONPLACE_BUSY_SECONDS is not a number of seconds: {variable!r}", fix="set it to a number such as 60"
        )
    return seconds


def _a_wait(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0


def _toml(path: str, known: tuple[str, ...]) -> dict[str, object] | None:
    """Return what a TOML file says, or None if there is no such file; a key that is not known is an error."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}", fix="make it a readable file, or remove it"
        ) from error
    import tomllib  # Most runs come this far without a file to parse.

    try:
        values: dict[str, object] = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not TOML: {error}", fix="mend the file, or remove it") from error
    if unknown := sorted(set(values) - set(known)):
        raise BadInput(
            f"{path} sets {', '.join(unknown)}, which is not known here", fix=f"the known keys are: {', '.join(known)}"
        )
    return values


def _project_space(cwd: str) -> str | None:
    """Return the space that the nearest `.commonplace.toml` names, if it names one."""
    for folder in _upwards(cwd):
        path = os.path.join(folder, _PROJECT)
        values = _toml(path, PROJECT_KEYS)
        if values is not None:
            return _checked_project(path, values)
    return None


def _checked_project(path: str, values: dict[str, object]) -> str | None:
    if values.get("capture", "on") not in ("on", "off"):
        raise BadInput(f"capture in {path} is neither on nor off", fix='write capture = "on" or capture = "off"')
    space = values.get("space")
    if space is None:
        return None
    parts = space.split("/") if isinstance(space, str) else []
    if not isinstance(space, str) or len(parts) > _MOST_PARTS or not all(_legal(part) for part in parts):
        raise BadSpaceName(
            f"space in {path} is not the name of a space: {space!r}",
            fix='write it like space = "team/backend": lower-case letters, digits, dots, dashes and underscores',
        )
    return space


def _upwards(folder: str) -> Iterator[str]:
    while folder:
        yield folder
        above = os.path.dirname(folder)
        folder = above if above != folder else ""


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _repository_name(cwd: str) -> str | None:
    """Return the name of the repository around a folder, fit for a space, or None outside of any."""
    for folder in _upwards(cwd):
        git = _git_folder(os.path.join(folder, ".git"))
        if git is not None:
            shared = _shared_git_folder(git)
            return _as_space_name(_origin_name(shared) or _folder_name(folder, git=git, shared=shared))
    return None


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
    in_origin = False
    for line in _read(os.path.join(git, "config")).splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            in_origin = re.fullmatch(_ORIGIN, stripped, re.IGNORECASE) is not None
        elif in_origin and (found := re.match(_URL, stripped, re.IGNORECASE)):
            address = (found[1] or found[2] or "").strip().replace("\\", "/").rstrip("/")
            address = address.removesuffix("/.git").removesuffix(".git")
            return re.split(r"[/:]", address.rstrip("/"))[-1] or None
    return None


def _legal(name: str) -> bool:
    return re.fullmatch(_LEGAL, name, re.ASCII) is not None


def _as_space_name(name: str) -> str:
    lowered = re.sub(r"\.{2,}", ".", re.sub(r"[^a-z0-9._-]+", "-", name.lower()))
    legal = re.sub(r"\.md\Z", "-md", lowered.lstrip("._-").rstrip("-"))
    # Where the name itself does not fit, its checksum still tells two repositories apart.
    checksum = format(zlib.crc32(name.encode(errors="surrogateescape")), "08x")
    if len(legal) > _LONGEST_PART:
        return f"{legal[: _LONGEST_PART - 9].rstrip('.-')}-{checksum}"
    return legal if _legal(legal) else f"repo-{legal or checksum}"


def _first_line(path: str) -> str:
    return _read(path).partition("\n")[0].strip()


def _read(path: str) -> str:
    """Return the text of one of git's files, and nothing where there is none that we can read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""
