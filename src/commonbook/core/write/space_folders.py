"""Chooses the folder of a new or renamed space, so that no memory of another space gets into it."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING

from commonbook.core.tables import spaces as space_rows
from commonbook.core.text.space_names import BESIDE_SPACE, PERSONAL, is_beside_space, is_month

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines
    from commonbook.values.spaces import Space


def choose_folder(
    tx: Reading, engines: Engines, spaces: Collection[Space], name: str, *, with_its_notes: bool = False
) -> str:
    """Return the folder of a space that is not among the `spaces` yet.

    It is the name, in the folder of the space above, spelled as a folder that is there already. If notes of another
    space lie in that folder, it gets a number, unless the space is to have it `with_its_notes`.
    """
    if name == PERSONAL and not any(not space.folder for space in spaces):
        return ""
    wanted = _below_its_parent(spaces, name)
    if is_beside_space(name):
        return wanted
    for number in count(1):
        folder = engines.folder.spelling(wanted if number == 1 else f"{wanted}-{number}")
        if is_free(tx, spaces, folder) or (with_its_notes and not is_taken(spaces, folder)):
            return folder
    raise AssertionError("count never ends")


def _below_its_parent(spaces: Collection[Space], name: str) -> str:
    """Return the name as a folder, in the folder of the nearest space above it."""
    bases = {space.name: space.base for space in spaces}
    above = name
    while above:
        above = above.rpartition("/")[0]
        if above in bases:
            return bases[above] + name.removeprefix(above)
    return name


def is_free(tx: Reading, spaces: Collection[Space], folder: str) -> bool:
    """Tell whether a folder can become a space without taking a memory from another one."""
    return not is_taken(spaces, folder) and not others_below(tx, spaces, folder)


def is_taken(spaces: Collection[Space], folder: str) -> bool:
    """Tell whether a folder is another space already, or would be on a disk that does not tell letters apart."""
    is_personal = folder.lower() == PERSONAL and not is_top_of_other(spaces)
    return is_personal or any(space.folder.lower() == folder.lower() for space in spaces)


def is_top_of_other(spaces: Collection[Space]) -> bool:
    """Tell whether the home itself is the folder of another space than `personal`, as `init --space` makes it."""
    return any(not space.folder and space.name != PERSONAL for space in spaces)


def others_below(tx: Reading, spaces: Collection[Space], folder: str) -> list[Space]:
    """Return the spaces with memories below a folder that would get into another space if the folder became one."""
    ids = space_rows.with_files_below(tx, folder)
    return [space for space in spaces if space.id in ids and not f"{space.folder}/".startswith(f"{folder}/")]


def why_no_space(folder: str) -> str | None:
    """Return why a folder can never be a space of its own, or None."""
    parts = folder.split("/")
    if any(beside in parts for beside in BESIDE_SPACE):
        return "lies in a folder of notices or proposals"
    if is_month(parts[-1]):
        return "lies in the folder of a month"
    return None
