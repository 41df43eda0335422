"""Settings: read once, from arguments, the environment and `.commonbook/config.toml` of the home, in this order.

No other module reads the environment. Values are checked here, and a secret is never shown in an error.
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
from commonbook.values.hit import Bars

PERSONAL: Final = "personal"
CONFIG_KEYS: Final = ("busy_seconds", "embedder", "embedder_url", "outbox", "zone")
PROJECT_KEYS: Final = ("capture", "space")

_DEFAULT_HOME: Final = "~/commonbook"
_CONFIG_PATH: Final = os.path.join(".commonbook", "config.toml")
_OUTBOX_PATH: Final = os.path.join(".commonbook", "outbox.db")
_EMBEDDER: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(?::(?!.*[\x00-\x1f])\S(?:.*\S)?)?")
# No user, query or fragment, so that an address can be shown in messages and used in a fingerprint.
_ADDRESS: Final = re.compile(r"https?://(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?(?:/[!\"$->@-~]*)?")
_KEY: Final = re.compile(r"[!-~]+")
_SCHEME: Final = r"postgres(?:ql)?://"
# A plain `@` or `/` in a password would make the rest of the password a host or a name, which are shown.
_HOST: Final = r"(?:\[[0-9A-Za-z:.%]+\]|[A-Za-z0-9._~%+-]*)(?::[0-9]*)?"
_DATABASE: Final = re.compile(rf"{_SCHEME}(?=.)(?:[!-.0-?A-~]*@)?{_HOST}(?:,{_HOST})*(?:/[!->A-~]*)?(?:\?[!-~]*)?")
_DEFAULT_BUSY_SECONDS: Final = 60.0
_EXPLANATIONS: Final = {
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
    """A text that is hidden in its `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show dots in place of the text."""
        return "'...'"


class DatabaseChoice(NamedTuple):
    """The choice of a database server: its address, the folder of keys, and limits of use."""

    address: str
    keys: str | None = None
    connections: int = 20
    """The maximum number of connections of a process."""
    recall_mb: int = 128
    """The size in megabytes of the cache of small spaces that a process recalls from."""

    @property
    def place(self) -> str:
        """The address as it may be shown: hosts, ports and name, without user, password and other options."""
        scheme, _, rest = self.address.partition("://")
        # A password may have a question mark, but no `@` or slash.
        if "@" in rest.partition("/")[0]:
            rest = rest.partition("@")[2]
        rest, _, options = rest.partition("?")
        shown = [option for option in options.split("&") if option.partition("=")[0] in {"host", "hostaddr", "port"}]
        return f"{scheme}://{rest.rpartition('@')[2]}{'?' if shown else ''}{'&'.join(shown)}"

    def __repr__(self) -> str:
        """Show all values, the address without what may be secret."""
        rest = zip(self._fields[1:], self[1:], strict=True)
        return f"DatabaseChoice(address={self.place!r}, {', '.join(f'{name}={value!r}' for name, value in rest)})"


class Settings(NamedTuple):
    """All settings of a process, read once."""

    home: str
    """The absolute path of the home, with symbolic links resolved."""
    cwd: str
    """The absolute path of the working directory; empty if it has been removed."""
    space: str | None = None
    """The space given by argument or COMMONBOOK_SPACE."""
    zone: str | None = None
    """The time zone chosen for this home, if any."""
    system_zone: str | None = None
    """TZ of the system: only a default for a home without a zone of its own."""
    busy_seconds: float = _DEFAULT_BUSY_SECONDS
    """How long to wait for another process before giving up with Busy."""
    editor: str | None = None
    """The command that edits a file."""
    colour: bool = True
    """Whether a terminal may be written to in colour."""
    embedder: EmbedderChoice = EmbedderChoice()
    """The embedder, which turns texts into vectors."""
    outbox: str = ""
    """The absolute path of the outbox, in which a remote client keeps messages that it has not sent yet."""
    database: DatabaseChoice | None = None
    """The database server of the book, if it is not in a home."""
    keys: str | None = None
    """The absolute path of the folder for the keys of a book on a server."""
    key: Secret | None = None
    """The API key of the command line, if it does not act as the owner."""
    bars: Bars = Bars()
    """The confidence from which on a hit is listed as likely, and from which on a prompt gets any."""
    is_default_home: bool = False
    """Whether the home is `~/commonbook`, which the first write makes."""

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
            # An address in place of a home is an argument, so it wins over the environment.
            return cls.load(space=space, environ={**env, "COMMONBOOK_DATABASE": home}, cwd=cwd)
        working = _working_directory() if cwd is None else os.path.realpath(cwd)
        root = _home(os.fspath(home) if home is not None else None, env, working)
        config = _config(os.path.join(root, _CONFIG_PATH))
        return cls(
            home=root,
            cwd=working,
            space=_require_not_empty("space", space) or env.get("COMMONBOOK_SPACE") or None,
            zone=env.get("COMMONBOOK_ZONE") or config.zone,
            system_zone=env.get("TZ"),
            busy_seconds=_busy_seconds(env.get("COMMONBOOK_BUSY_SECONDS") or None, config.busy_seconds),
            editor=env.get("VISUAL") or env.get("EDITOR") or None,
            colour=not env.get("NO_COLOR") and env.get("TERM") != "dumb",
            embedder=_embedder(env, config),
            outbox=_outbox(env, config, root, working),
            database=None if home is not None else _database(env, working),
            keys=_keys(env, working),
            key=_secret(env.get("COMMONBOOK_KEY") or None, "COMMONBOOK_KEY"),
            bars=_bars(env),
            is_default_home=root == _absolute("home", _DEFAULT_HOME, env, working),
        )


def environment() -> Mapping[str, str]:
    """Return the environment of the process, for other modules of settings."""
    return os.environ


def use_one_thread_for_products() -> None:
    """Let numpy multiply in one thread: products of small matrices gain nothing, and a recall takes twice the time."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def hermes_home(environ: Mapping[str, str] | None = None) -> str:
    """Return the folder of the Hermes agent: HERMES_HOME, else `~/.hermes`."""
    env = os.environ if environ is None else environ
    return os.path.abspath(_expand_user(env.get("HERMES_HOME") or "~/.hermes", env))


def _working_directory() -> str:
    try:
        return os.path.realpath(os.getcwd())
    except FileNotFoundError:
        return ""


def _require_not_empty(what: str, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise BadInput(f"the {what} is empty", fix=f"name a {what}, or leave the option out")
    return value


def _home(argument: str | None, env: Mapping[str, str], cwd: str) -> str:
    value = _require_not_empty("home", argument) or env.get("COMMONBOOK_HOME") or _DEFAULT_HOME
    return _absolute("home", value, env, cwd)


def _outbox(env: Mapping[str, str], config: _Config, home: str, cwd: str) -> str:
    """Return the path of the outbox: from the environment, relative to the working directory, else to the home."""
    if named := env.get("COMMONBOOK_OUTBOX"):
        return _absolute("outbox", named, env, cwd)
    return _absolute("outbox", config.outbox or _OUTBOX_PATH, env, home)


def _absolute(what: str, value: str, env: Mapping[str, str], base: str) -> str:
    try:
        path = os.path.join(base, _expand_user(value, env))
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


def _expand_user(path: str, env: Mapping[str, str]) -> str:
    # HOME of the given environment, not of the process, so that tests and services can set it.
    if path == "~" or path.startswith("~" + os.sep):
        return (env.get("HOME") or os.path.expanduser("~")) + path[1:]
    return os.path.expanduser(path)


class _Config(NamedTuple):
    """The values of the home's `config.toml`; None for those that it does not set."""

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
    if busy is not None and (isinstance(busy, bool) or not isinstance(busy, int | float) or not _is_duration(busy)):
        raise BadInput(f"busy_seconds in {path} is not a number of seconds", fix="write it as busy_seconds = 60")
    if outbox is not None and not (isinstance(outbox, str) and outbox and "\0" not in outbox):
        raise BadInput(f"outbox in {path} is not the path of a file", fix='write it as outbox = "~/outbox.db"')
    return _Config(
        zone=zone,
        busy_seconds=None if busy is None else float(busy),
        embedder=_check_pattern(values.get("embedder"), _EMBEDDER, f"embedder in {path}"),
        embedder_url=_check_pattern(values.get("embedder_url"), _ADDRESS, f"embedder_url in {path}"),
        outbox=outbox,
    )


def _embedder(env: Mapping[str, str], config: _Config) -> EmbedderChoice:
    named, url, key = (env.get(f"COMMONBOOK_EMBEDDER{end}") or None for end in ("", "_URL", "_KEY"))
    chosen = _check_pattern(named, _EMBEDDER, "COMMONBOOK_EMBEDDER") or config.embedder or "static"
    name, _, model = chosen.partition(":")
    return EmbedderChoice(
        name=name,
        model=_expand_user(model, env) if model else None,
        url=_check_pattern(url, _ADDRESS, "COMMONBOOK_EMBEDDER_URL") or config.embedder_url,
        key=_check_pattern(key, _KEY, "COMMONBOOK_EMBEDDER_KEY"),
    )


def _database(env: Mapping[str, str], cwd: str) -> DatabaseChoice | None:
    """Return the database server that the environment chooses, or None."""
    names = ("DATABASE", "CONNECTIONS", "RECALL_MB")
    address, connections, recall_mb = (env.get(f"COMMONBOOK_{name}") or None for name in names)
    if address is None:
        return None
    return DatabaseChoice(
        require_address(address, "COMMONBOOK_DATABASE"),
        keys=_keys(env, cwd),
        connections=_number("COMMONBOOK_CONNECTIONS", connections or "20", minimum=2, maximum=1000),
        recall_mb=_number("COMMONBOOK_RECALL_MB", recall_mb or "128", minimum=0, maximum=100_000),
    )


def _bars(env: Mapping[str, str]) -> Bars:
    likely, prompt = (
        _number(name, env.get(name) or str(round(100 * default)), minimum=0, maximum=100) / 100
        for name, default in zip(("COMMONBOOK_LIKELY_PERCENT", "COMMONBOOK_PROMPT_PERCENT"), Bars(), strict=True)
    )
    return Bars(likely, prompt)


def _keys(env: Mapping[str, str], cwd: str) -> str | None:
    """Return the folder of keys that the environment names, or None."""
    named = env.get("COMMONBOOK_KEYS") or None
    return os.path.realpath(os.path.join(cwd, _expand_user(named, env))) if named else None


def _number(name: str, value: str, *, minimum: int, maximum: int) -> int:
    if not value.isascii() or not value.isdecimal() or not minimum <= int(value) <= maximum:
        raise BadInput(
            f"{name} is not a number from {minimum} to {maximum}", fix="set it to such a number, or unset it"
        )
    return int(value)


def require_address(address: str, where: str) -> str:
    """Return the address of a server; BadInput if it is none, without showing it."""
    return _check_pattern(address, _DATABASE, where) or address


def _check_pattern(value: object, pattern: re.Pattern[str], where: str) -> str | None:
    """Return a value that matches the pattern, or None if it is not set; BadInput hides it, as it may be a secret."""
    if value is None or (isinstance(value, str) and pattern.fullmatch(value)):
        return value
    what, fix = _EXPLANATIONS[pattern]
    raise BadInput(f"{where} is not {what}", fix=fix)


def _secret(value: str | None, where: str) -> Secret | None:
    checked = _check_pattern(value, _KEY, where)
    return None if checked is None else Secret(checked)


def _busy_seconds(variable: str | None, configured: float | None) -> float:
    if variable is None:
        return _DEFAULT_BUSY_SECONDS if configured is None else configured
    try:
        seconds = float(variable)
    except ValueError:
        seconds = math.nan
    if not _is_duration(seconds):
        raise BadInput(
            f"COMMONBOOK_BUSY_SECONDS is not a number of seconds: {variable!r}", fix="set it to a number such as 60"
        )
    return seconds


def _is_duration(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0


def read_toml(path: str, known: tuple[str, ...]) -> dict[str, object] | None:
    """Return the values of a TOML file, or None if there is no such file; BadInput for a key that is not known."""
    data = read_config_file(path)
    return None if data is None else parse_toml(path, data, known)


def read_config_file(path: str) -> bytes | None:
    """Return the content of a file of configuration, or None if there is no such file."""
    try:
        # Mostly there is none, which this tells at half the cost.
        os.stat(path)
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}", fix="make it a readable file, or remove it"
        ) from error


def parse_toml(path: str, data: bytes, known: tuple[str, ...]) -> dict[str, object]:
    """Return the values in the content of a TOML file; BadInput for a key that is not known."""
    import tomllib  # Imported late: most runs have no file to parse.

    try:
        values: dict[str, object] = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not TOML: {error}", fix="correct the file, or remove it") from error
    if unknown := sorted(set(values) - set(known)):
        raise BadInput(
            f"{path} sets {', '.join(unknown)}, which is not known here", fix=f"the known keys are: {', '.join(known)}"
        )
    return values


class AgentFolders(NamedTuple):
    """The folders below which agents keep the configuration of a user."""

    home: str
    """The home directory of the user."""
    config: str
    """XDG_CONFIG_HOME, else `~/.config`."""
    codex: str
    """CODEX_HOME, else `~/.codex`."""
    hermes: str
    """HERMES_HOME, else `~/.hermes`; without the part that names a profile."""

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> AgentFolders:
        """Read the environment."""
        env = environment() if environ is None else environ
        home = env.get("HOME") or os.path.expanduser("~")
        config = env.get("XDG_CONFIG_HOME", "")
        return cls(
            home=home,
            config=config if os.path.isabs(config) else os.path.join(home, ".config"),
            codex=env.get("CODEX_HOME") or os.path.join(home, ".codex"),
            hermes=_hermes_root(env.get("HERMES_HOME", "").strip() or os.path.join(home, ".hermes")),
        )


def _hermes_root(folder: str) -> str:
    above, parent = os.path.split(os.path.dirname(os.path.abspath(folder)))
    return above if parent == "profiles" else os.path.abspath(folder)
