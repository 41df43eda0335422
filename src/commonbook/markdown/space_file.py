"""The file `.space.toml`, which makes its folder a space: it holds the name and the id of the space."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from commonbook.errors import BadFile, BadSpaceName
from commonbook.model.ids import UUID_PATTERN
from commonbook.model.spaces import Space
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.text import space_names

if TYPE_CHECKING:
    import tomllib
else:
    # Most writes only render such a file.
    tomllib = LazyModule("tomllib")

_FIX = 'it holds two lines: name = "team/backend" and id = "a UUID in lower case"'


class SpaceFile(NamedTuple):
    """The content of a space file."""

    name: str
    id: str


def render(space: Space) -> bytes:
    """Return the content of the file of a space."""
    return f'# This folder is a space of Commonbook.\nname = "{space.name}"\nid = "{space.id}"\n'.encode()


def parse(data: bytes) -> SpaceFile:
    """Return what a file says; BadFile if it names no space that a folder can be. Other fields are left alone."""
    try:
        values = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadFile(f"is not TOML: {error}", fix=_FIX) from error
    name, id_ = values.get("name"), values.get("id")
    if not isinstance(name, str) or not isinstance(id_, str) or not re.fullmatch(UUID_PATTERN, id_):
        raise BadFile("has no name, or no id that is a UUID", fix=_FIX)
    try:
        space_names.require_query_name(name)
    except BadSpaceName as error:
        raise BadFile(error.message, fix=error.fix) from error
    if not space_names.has_space_file(name):
        raise BadFile(f"names {name}, which is a space of the system", fix=_FIX)
    return SpaceFile(name, id_)
