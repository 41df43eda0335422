"""What a person has settled before any verb runs: the only reader of the environment.

An argument wins over the environment, and that over the home's own `.commonbook/config.toml`.
docs/SETTINGS.md lists every variable and key; a test keeps it complete.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from commonbook.errors import BadInput
from commonbook.ports.embedding import EmbedderChoice

PERSONAL: Final = "personal"
CONFIG_KEYS: Final = ("busy_seconds", "embedder", "embedder_url", "outbox", "zone")
PROJECT_KEYS: Final = ("capture", "space")

_CONFIG: Final = os.path.join(".commonbook", "config.toml")
_OUTBOX: Final = os.path.join(".commonbook", "outbox.db")
# Patterns are compiled where they are first used, and then kept by `re`: most runs use none.
_EMBEDDER: Final = r"[a-z0-9][a-z0-9._-]*(?::(?!.*[\x00-\x1f])\S(?:.*\S)?)?"
# No user, query or fragment: what an address may say is then fit for a message and for a fingerprint.
_ADDRESS: Final = r"https?://(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?(?:/[!\"$->@-~]*)?"
_KEY: Final = r"[!-~]+"
_SCHEME: Final = r"postgres(?:ql)?://"
# An `@` or `/` that stands in a password as it is would make the rest of it a host or a name, which are shown.
_HOST: Final = r"(?:\[[0-9A-Za-z:.%]+\]|[A-Za-z0-9._~%+-]*)(?::[0-9]*)?"
_DATABASE: Final = rf"{_SCHEME}(?=.)(?:[!-.0-?A-~]*@)?{_HOST}(?:,{_HOST})*(?:/[!->A-~]*)?(?:\?[!-~]*)?"
_BUSY_SECONDS: Final = 60.0
_WRONG: Final = {
    _EMBEDDER: ("the name of an embedder", "write NAME or NAME:MODEL, such as openai:text-embedding-3-small"),
    _ADDRESS: (
        "an http or https address without user, query and fragment",
        "write it like https://host.example/v1; a key goes into COMMONBOOK_EMBEDDER_KEY",
    ),
    _DATABASE: (
        "an address of PostgreSQL",
        "write it like postgresql://user:password@host:5432/name; other characters of a password as %xx",
    ),
    _KEY: ("a key", "set it to the key alone: one word, without quotes or line ends"),
}


class Secret(str):
    """A text that says nothing when it is shown as a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show that there is one."""
        return "'...'"


class DatabaseChoice(NamedTuple):
    """A book on a database server: where it is, where its keys are, and how it is used."""

    address: str
    keys: str | None = None
    connections: int = 20
    """How many connections a process may have."""
    recall_mb: int = 128
    """So many megabytes of small spaces a process keeps at hand, to recall from."""
    graph_above: int = 200_000
    """Spaces of more passages are searched by a graph of neighbours; none are if it is 0."""

    @property
    def place(self) -> str:
        """Where the address leads: hosts, ports and name, without user, password and other options."""
        scheme, _, rest = self.address.partition("://")
        # A password may have a question mark, but no `@` or slash.
        if "@" in rest.partition("/")[0]:
            rest = rest.partition("@")[2]
        rest, _, options = rest.partition("?")
        where = [one for one in options.split("&") if one.partition("=")[0] in {"host", "hostaddr", "port"}]
        return f"{scheme}://{rest.rpartition('@')[2]}{'?' if where else ''}{'&'.join(where)}"

    def __repr__(self) -> str:
        """Show everything but what may be secret in the address."""
        rest = zip(self._fields[1:], self[1:], strict=True)
        return f"DatabaseChoice(address={self.place!r}, {', '.join(f'{name}={value!r}' for name, value in rest)})"


class Settings(NamedTuple):
    """Everything that the surroundings decide, read once."""

    home: str
    """The home, absolute, with symbolic links resolved."""
    cwd: str
    """The working directory, the same way; empty when it has been removed under us."""
    space: str | None = None
    """The space that was asked for, by argument or COMMONBOOK_SPACE."""
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
    embedder: EmbedderChoice = EmbedderChoice()
    """What turns texts into vectors."""
    outbox: str = ""
    """The file in which a remote client keeps what it has not sent yet, absolute."""
    database: DatabaseChoice | None = None
    """The server that the book is on, if it is not in a home."""
    key: Secret | None = None
    """The API key with which the command line comes, if it does not act for the owner."""

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
        if isinstance(home, str) and re.match(_SCHEME, home):
            # Who names a server by its address means just that, as who names a home does.
            return cls.load(space=space, environ={**env, "COMMONBOOK_DATABASE": home}, cwd=cwd)
        here = _here() if cwd is None else os.path.realpath(cwd)
        root = _home(os.fspath(home) if home is not None else None, env, here)
        own = _config(os.path.join(root, _CONFIG))
        return cls(
            home=root,
            cwd=here,
            space=_asked("space", space) or env.get("COMMONBOOK_SPACE") or None,
            zone=env.get("COMMONBOOK_ZONE") or own.zone,
            system_zone=env.get("TZ"),
            busy_seconds=_busy_seconds(env.get("COMMONBOOK_BUSY_SECONDS") or None, own.busy_seconds),
            editor=env.get("VISUAL") or env.get("EDITOR") or None,
            colour=not env.get("NO_COLOR") and env.get("TERM") != "dumb",
            embedder=_embedder(env, own),
            outbox=_outbox(env, own, root, here),
            database=None if home is not None else _database(env, here),
            key=_secret(env.get("COMMONBOOK_KEY") or None, "COMMONBOOK_KEY"),
        )


def hermes_home(environ: Mapping[str, str] | None = None) -> str:
    """Return the folder of the Hermes agent: HERMES_HOME, else `~/.hermes`."""
    env = os.environ if environ is None else environ
    return os.path.abspath(_expanded(env.get("HERMES_HOME") or "~/.hermes", env))


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
    value = _asked("home", asked) or env.get("COMMONBOOK_HOME") or "~/commonbook"
    return _absolute("home", value, env, cwd)


def _outbox(env: Mapping[str, str], own: _Config, home: str, cwd: str) -> str:
    """Return where the outbox is: a place named in the environment is relative to where we are, else to the home."""
    if named := env.get("COMMONBOOK_OUTBOX"):
        return _absolute("outbox", named, env, cwd)
    return _absolute("outbox", own.outbox or _OUTBOX, env, home)


def _absolute(what: str, value: str, env: Mapping[str, str], base: str) -> str:
    try:
        path = os.path.join(base, _expanded(value, env))
        if os.path.isabs(path):
            return os.path.realpath(path)
    except ValueError as error:
        raise BadInput(
            f"the {what} cannot be named {value!r}: {error}", fix=f"give the {what} as a plain path"
        ) from error
    raise BadInput(
        f"the {what} {value!r} is relative to a working directory that is gone",
        fix=f"give the {what} as an absolute path",
    )


def _expanded(path: str, env: Mapping[str, str]) -> str:
    # The HOME that was handed in, not the process's own, so that tests and services can decide it.
    if path == "~" or path.startswith("~" + os.sep):
        return (env.get("HOME") or os.path.expanduser("~")) + path[1:]
    return os.path.expanduser(path)


class _Config(NamedTuple):
    """What a home has of its own; None for what it leaves open."""

    zone: str | None
    busy_seconds: float | None
    embedder: str | None
    embedder_url: str | None
    outbox: str | None


def _config(path: str) -> _Config:
    values = read_toml(path, CONFIG_KEYS) or {}
    zone, busy, outbox = (values.get(name) for name in ("zone", "busy_seconds", "outbox"))
    if zone is not None and not (isinstance(zone, str) and zone):
        raise BadInput(f"zone in {path} is not the name of a zone", fix='write it as zone = "Europe/Berlin"')
    if busy is not None and (isinstance(busy, bool) or not isinstance(busy, int | float) or not _a_wait(busy)):
        raise BadInput(f"busy_seconds in {path} is not a number of seconds", fix="write it as busy_seconds = 60")
    if outbox is not None and not (isinstance(outbox, str) and outbox and "\0" not in outbox):
        raise BadInput(f"outbox in {path} is not the path of a file", fix='write it as outbox = "~/outbox.db"')
    return _Config(
        zone=zone,
        busy_seconds=None if busy is None else float(busy),
        embedder=_fitting(values.get("embedder"), _EMBEDDER, f"embedder in {path}"),
        embedder_url=_fitting(values.get("embedder_url"), _ADDRESS, f"embedder_url in {path}"),
        outbox=outbox,
    )


def _embedder(env: Mapping[str, str], own: _Config) -> EmbedderChoice:
    named, url, key = (env.get(f"COMMONBOOK_EMBEDDER{end}") or None for end in ("", "_URL", "_KEY"))
    chosen = _fitting(named, _EMBEDDER, "COMMONBOOK_EMBEDDER") or own.embedder or "static"
    name, _, model = chosen.partition(":")
    return EmbedderChoice(
        name=name,
        model=_expanded(model, env) if model else None,
        url=_fitting(url, _ADDRESS, "COMMONBOOK_EMBEDDER_URL") or own.embedder_url,
        key=_fitting(key, _KEY, "COMMONBOOK_EMBEDDER_KEY"),
    )


def _database(env: Mapping[str, str], cwd: str) -> DatabaseChoice | None:
    """Return the server that was chosen; whoever names a home means that."""
    names = ("DATABASE", "KEYS", "CONNECTIONS", "RECALL_MB", "GRAPH_ABOVE")
    address, keys, connections, recall_mb, above = (env.get(f"COMMONBOOK_{name}") or None for name in names)
    if address is None:
        return None
    return DatabaseChoice(
        checked_address(address, "COMMONBOOK_DATABASE"),
        keys=os.path.realpath(os.path.join(cwd, _expanded(keys, env))) if keys else None,
        connections=_number("COMMONBOOK_CONNECTIONS", connections or "20", least=2, most=1000),
        recall_mb=_number("COMMONBOOK_RECALL_MB", recall_mb or "128", least=0, most=100_000),
        graph_above=_number("COMMONBOOK_GRAPH_ABOVE", above or "200000", least=0, most=10**12),
    )


def _number(name: str, value: str, *, least: int, most: int) -> int:
    if not value.isascii() or not value.isdecimal() or not least <= int(value) <= most:
        raise BadInput(f"{name} is not a number from {least} to {most}", fix="set it to such a number, or to nothing")
    return int(value)


def checked_address(address: str, where: str) -> str:
    """Return the address of a server, if it is one; BadInput if not, without showing it."""
    return _fitting(address, _DATABASE, where) or address


def _fitting(value: object, pattern: str, where: str) -> str | None:
    """Return a value that was set, if it is as it must be; it is never shown, since it may hold a secret."""
    if value is None or (isinstance(value, str) and re.fullmatch(pattern, value)):
        return value
    what, fix = _WRONG[pattern]
    raise BadInput(f"{where} is not {what}", fix=fix)


def _secret(value: str | None, where: str) -> Secret | None:
    fitting = _fitting(value, _KEY, where)
    return None if fitting is None else Secret(fitting)


def _busy_seconds(variable: str | None, configured: float | None) -> float:
    if variable is None:
        return _BUSY_SECONDS if configured is None else configured
    try:
        seconds = float(variable)
    except ValueError:
        seconds = math.nan
    if not _a_wait(seconds):
        raise BadInput(
            f"COMMONBOOK_BUSY_SECONDS is not a number of seconds: {variable!r}", fix="set it to a number such as 60"
        )
    return seconds


def _a_wait(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0


def read_toml(path: str, known: tuple[str, ...]) -> dict[str, object] | None:
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
