"""The file `.space.toml`, which makes its folder a space: it holds the name and the id of the space.

It also says whose memories the space has reviewed, if it has any, so that a lost database does not end the review.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from commonbook.core.text import space_names
from commonbook.errors import BadFile, BadSpaceName
from commonbook.values.ids import UUID_PATTERN
from commonbook.values.spaces import AGENTS, Review, Space

_FIX = 'it holds two lines: name = "team/backend" and id = "a UUID in lower case"'


class SpaceFile(NamedTuple):
    """The content of a space file."""

    name: str
    id: str
    review: Review | None = None


def render(space: Space) -> bytes:
    """Return the content of the file of a space."""
    review = f'review = "{space.review}"\n' if space.review else ""
    return f'# This folder is a space of Commonbook.\nname = "{space.name}"\nid = "{space.id}"\n{review}'.encode()


def parse(data: bytes) -> SpaceFile:
    """Return what a file says; BadFile if it names no space that a folder can be. Other fields are left alone."""
    import tomllib  # noqa: PLC0415 - most runs have no file to parse

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
    review = values.get("review")
    if review not in {None, AGENTS}:
        raise BadFile(f"has another review than {AGENTS!r}", fix='write review = "agents", or leave the line out')
    return SpaceFile(name, id_, review)
