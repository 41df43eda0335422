"""Options of the provider, stored as `commonbook/config.json` in the folder of Hermes, and their dialog."""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from commonbook.errors import BadInput, CommonbookError

FOLDER: Final = "commonbook"
_FILE: Final = "config.json"
_ASKED: Final = ("home", "space", "tags", "settle_every", "recall_count", "recall_tokens")
_DEFAULT_ANSWER: Final = "-"
_FIX: Final = "hermes config set memory.provider commonbook"


class Options(NamedTuple):
    """All options, with their defaults."""

    home: str = ""
    space: str = ""
    recall_spaces: str = ""
    url: str = ""
    tags: str = "hermes"
    settle_every: int = 10
    recall_count: int = 6
    recall_tokens: int = 1200
    min_confidence: float = -1.0
    recall_seconds: float = 3.0
    write_seconds: float = 2.0


class _Field(NamedTuple):
    description: str
    minimum: float = 0
    maximum: float = 1_000_000


_FIELDS: Final[Mapping[str, _Field]] = {
    "home": _Field("The folder of your book (empty: COMMONBOOK_HOME, else ~/commonbook)"),
    "space": _Field("One space for the conversations of everybody (empty: one for each profile and user)"),
    "recall_spaces": _Field("Other spaces to recall from, for everybody, separated by commas"),
    "url": _Field("The address of a Commonbook server, in place of a folder (not possible yet)"),
    "tags": _Field("Tags of every session, separated by commas"),
    "settle_every": _Field("Number of turns after which they become an episode, a Markdown file (0: only at the end)"),
    "recall_count": _Field("Maximum number of passages recalled for a turn (0: none)", maximum=50),
    "recall_tokens": _Field("Maximum number of tokens of these passages together", minimum=100),
    "min_confidence": _Field(
        "The chance to answer below which nothing is recalled (-1: the default of Commonbook)", minimum=-1, maximum=1
    ),
    "recall_seconds": _Field("Seconds that a turn waits for a recall", minimum=0.1, maximum=7),
    "write_seconds": _Field(
        "Seconds that a turn waits for the book before it goes into the spill file", minimum=0.1, maximum=60
    ),
}


def load(hermes_home: str) -> Options:
    """Read the options; without a file all have their defaults."""
    path = _path(hermes_home)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Options()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}", fix="repair it, or remove it to start again") from error
    if not isinstance(values, dict):
        raise BadInput(f"{path} is not an object of settings", fix="repair it, or remove it to start again")
    return _options(values, str(path))


def save(values: Mapping[str, Any], hermes_home: str) -> None:
    """Validate options and merge them into the file, which is replaced atomically."""
    path = _path(hermes_home)
    options = _options({**load(hermes_home)._asdict(), **values}, "the given options")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.new")
    default = Options()._asdict()
    changed = {name: value for name, value in options._asdict().items() if value != default[name]}
    draft.write_text(json.dumps(changed, indent=2) + "\n", encoding="utf-8")
    draft.chmod(0o600)
    draft.replace(path)


def schema() -> list[dict[str, Any]]:
    """Return the fields for `hermes memory setup`."""
    default = Options()._asdict()
    return [_describe_field(name, field, default[name]) for name, field in _FIELDS.items()]


def _describe_field(name: str, field: _Field, default: object) -> dict[str, Any]:
    description: dict[str, Any] = {"key": name, "description": field.description, "default": default}
    if not isinstance(default, str):
        description |= {"type": "integer" if isinstance(default, int) else "number", "minimum": field.minimum}
        description |= {"maximum": field.maximum}
    return description


def folder(hermes_home: str) -> Path:
    """Return the folder of the provider."""
    return Path(hermes_home) / FOLDER


def _path(hermes_home: str) -> Path:
    return folder(hermes_home) / _FILE


def _options(values: Mapping[str, Any], where: str) -> Options:
    if unknown := sorted(set(values) - set(_FIELDS)):
        raise BadInput(
            f"{', '.join(unknown)} in {where} is not known here", fix=f"the known settings are: {', '.join(_FIELDS)}"
        )
    default = Options()._asdict()
    return Options(**{name: _value(name, value, default[name], where) for name, value in values.items()})


def _value(name: str, value: object, default: object, where: str) -> Any:  # noqa: ANN401 - of the default's type
    if isinstance(default, str):
        if not isinstance(value, str):
            raise BadInput(f"{name} in {where} is not a text", fix="write it in quotes")
        return value.strip()
    field = _FIELDS[name]
    try:
        number = float(value) if isinstance(value, (str, int, float)) else math.nan
    except ValueError:
        number = math.nan
    if not field.minimum <= number <= field.maximum:
        raise BadInput(
            f"{name} in {where} is not a number from {field.minimum:g} to {field.maximum:g}", fix=f"such as {default}"
        )
    return int(number) if isinstance(default, int) else number


# --- the dialog of `hermes memory setup commonbook`


def run_setup(hermes_home: str, config: Mapping[str, Any], problem: Callable[[], str]) -> None:
    """Ask for the options that people choose, save them, and make Commonbook the provider in Hermes' configuration.

    An empty answer keeps the present value, and a dash puts the default back. `problem` returns why the provider cannot
    be used then.
    """
    _say("\n  Configuring Commonbook. An empty answer keeps the value; a dash puts the default back.\n")
    try:
        answers = _ask_all(load(hermes_home))
        save(answers, hermes_home)
    except CommonbookError as error:
        _say(f"\n  Nothing was saved: {error.message}\n  {error.fix}\n")
        return
    _activate(config)
    _say(f"\n  Saved to {folder(hermes_home) / 'config.json'}")
    why = problem()
    _say(f"  Not available yet: {why}\n" if why else "  Start a new session to use it.\n")


def _ask_all(current: Options) -> dict[str, Any]:
    default = Options()._asdict()
    answers: dict[str, Any] = {}
    for name in _ASKED:
        answer = _ask(name, getattr(current, name))
        if answer is None:
            break
        if answer:
            answers[name] = default[name] if answer == _DEFAULT_ANSWER else answer
    return answers


def _ask(name: str, value: object) -> str | None:
    """Return a valid answer, an empty one, or None if nobody answers any longer."""
    shown = value if value not in ("", None) else "not set"
    while True:
        sys.stdout.write(f"  {_FIELDS[name].description} [{shown}]: ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return None
        answer = line.strip()
        if not answer or answer == _DEFAULT_ANSWER:
            return answer
        try:
            _value(name, answer, Options()._asdict()[name], "the answer")
        except CommonbookError as error:
            _say(f"  {error.message}; {error.fix}")
        else:
            return answer


def _activate(config: Mapping[str, Any]) -> None:
    memory = config.get("memory")
    if isinstance(memory, Mapping) and memory.get("provider") == "commonbook":
        # Hermes rewrites its file without comments: not needed here.
        return
    try:
        hermes = importlib.import_module("hermes_cli.config")
    except ImportError:
        _say(f"\n  Make it the provider: {_FIX}")
        return
    others = memory if isinstance(memory, Mapping) else {}
    hermes.save_config({**config, "memory": {**others, "provider": "commonbook"}})


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
