"""What a person has chosen for the provider: `commonbook/config.json` in the folder of Hermes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from commonbook.errors import BadInput

FOLDER: Final = "commonbook"
_FILE: Final = "config.json"


class Options(NamedTuple):
    """Everything that can be chosen."""

    home: str = ""
    space: str = ""
    url: str = ""
    tags: str = "hermes"
    settle_every: int = 10
    recall_count: int = 6
    recall_tokens: int = 1200
    min_score: float = -1.0
    recall_seconds: float = 3.0
    write_seconds: float = 2.0


class _Field(NamedTuple):
    description: str
    least: float = 0
    most: float = 1_000_000


_FIELDS: Final[Mapping[str, _Field]] = {
    "home": _Field("The folder of your book (empty: COMMONBOOK_HOME, else ~/commonbook)"),
    "space": _Field("The space for what is said here (empty: that of the project, else personal)"),
    "url": _Field("The address of a Commonbook server, in place of a folder (not possible yet)"),
    "tags": _Field("Tags of every session, with commas between them"),
    "settle_every": _Field("After how many turns they become an episode, a Markdown file (0: only at the end)"),
    "recall_count": _Field("How many passages are recalled for a turn, at most (0: none)", most=50),
    "recall_tokens": _Field("How many tokens they have together, at most", least=100),
    "min_score": _Field("Below which score nothing is recalled (-1: Commonbook's own)", least=-1, most=1),
    "recall_seconds": _Field("How long a turn waits for what is recalled", least=0.1, most=7),
    "write_seconds": _Field("How long a turn waits for the book before it is kept beside it", least=0.1, most=60),
}


def load(hermes_home: str) -> Options:
    """Read what was chosen; without a file, nothing was."""
    path = _path(hermes_home)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Options()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}", fix="mend it, or remove it to begin anew") from error
    if not isinstance(values, dict):
        raise BadInput(f"{path} is not an object of settings", fix="mend it, or remove it to begin anew")
    return _options(values, str(path))


def save(values: Mapping[str, Any], hermes_home: str) -> None:
    """Write what was chosen, beside what had been chosen before; nothing is written of what cannot be."""
    path = _path(hermes_home)
    chosen = _options({**load(hermes_home)._asdict(), **values}, "what was chosen")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.new")
    default = Options()._asdict()
    kept = {name: value for name, value in chosen._asdict().items() if value != default[name]}
    draft.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    draft.chmod(0o600)
    draft.replace(path)


def schema() -> list[dict[str, Any]]:
    """Return the fields for `hermes memory setup`."""
    default = Options()._asdict()
    return [_described(name, field, default[name]) for name, field in _FIELDS.items()]


def _described(name: str, field: _Field, default: object) -> dict[str, Any]:
    told: dict[str, Any] = {"key": name, "description": field.description, "default": default}
    if not isinstance(default, str):
        told |= {"type": "integer" if isinstance(default, int) else "number", "minimum": field.least}
        told |= {"maximum": field.most}
    return told


def folder(hermes_home: str) -> Path:
    """Return where the provider keeps what is its own."""
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
    if not field.least <= number <= field.most:
        raise BadInput(
            f"{name} in {where} is not a number from {field.least:g} to {field.most:g}", fix=f"such as {default}"
        )
    return int(number) if isinstance(default, int) else number
