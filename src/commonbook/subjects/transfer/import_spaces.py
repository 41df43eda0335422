"""Decides into which space each file of an import goes.

A folder of notes goes into one space. An export of this program has a space file in the folder of each space, and its
files go into those spaces: the one with that id, else the one of that name, else a new one; or below a space that is
given. On request, each folder with a possible name of a space counts as one, as in exports without space files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from commonbook.core.access import permissions
from commonbook.core.markdown import space_file
from commonbook.core.markdown.space_file import SpaceFile
from commonbook.core.tables import spaces as space_rows
from commonbook.core.text import space_names, titles
from commonbook.core.write import space_folders
from commonbook.errors import BadFile, BadInput
from commonbook.values.reports import Finding

if TYPE_CHECKING:
    from commonbook.core.write.context import WriteContext
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines
    from commonbook.values.spaces import Review, Space, SpaceScope
    from commonbook.values.stored_memory import StoredMemory


class Place(NamedTuple):
    """The space that a file is imported into, and its path in the folder of that space.

    `id` is that of the space in the book that the file comes from, and `folder` the folder of the space there. Those of
    notices and proposals have the id, folder and review of the space that they belong to.
    """

    space: str
    rest: str
    id: str | None = None
    folder: str | None = None
    review: Review | None = None


class SourceSpaces(NamedTuple):
    """The spaces of a source of an import: one for all files, or those that its folders are."""

    space: str | None
    by_folder: Mapping[str, SpaceFile]
    folders_as_spaces: bool = False

    def place(self, path: str) -> Place:
        """Return the place of a file of the source."""
        if self.folders_as_spaces:
            name = titles.name_by_folders(path)
            is_inside = path.startswith(name + "/") and name != space_names.PERSONAL
            return Place(name, path.removeprefix(name + "/") if is_inside else path)
        for folder in titles.folders_above(path):
            if folder in self.by_folder:
                return self._below(_in_space(self.by_folder[folder], folder, path))
        return Place(self.space or space_names.PERSONAL, path)

    def place_named(self, name: str) -> Place:
        """Return the place of a space of the source, by its name there."""
        if self.folders_as_spaces:
            return Place(name, "")
        if not self.by_folder:
            return Place(self.space or space_names.PERSONAL, "")
        named = ((folder, space) for folder, space in self.by_folder.items() if space.name == name)
        return self._below(next((_in_space(space, folder, "") for folder, space in named), Place(name, "")))

    def _below(self, place: Place) -> Place:
        """Return the place below the space that is given, if one is: the spaces of the source are then new ones."""
        if self.space is None:
            return place
        top = self.by_folder[""].name if "" in self.by_folder else space_names.PERSONAL
        if top != space_names.PERSONAL and space_names.is_within(place.space, top):
            # The source is the folder of a space, which becomes the given one.
            return Place(self.space + place.space.removeprefix(top), place.rest)
        return Place(f"{self.space}/{place.space}", place.rest.removeprefix(f"{space_names.PERSONAL}/"))


def _in_space(space: SpaceFile, folder: str, path: str) -> Place:
    """Return the place of a file in the folder of a space; its notices and proposals are in spaces of their own."""
    rest = path.removeprefix(folder + "/") if folder else path
    for beside in space_names.BESIDE_SPACE:
        for prefix in (f"{beside}/", "" if folder else f"{space.name}/{beside}/"):
            if prefix and rest.startswith(prefix):
                return Place(f"{space.name}/{beside}", rest.removeprefix(prefix), space.id, folder, space.review)
    return Place(space.name, rest, space.id, folder, space.review)


def require_target(space: str | None, *, folders_as_spaces: bool) -> SourceSpaces:
    """Return the spaces of a source as far as the caller decides them; BadInput if they cannot be."""
    if space is not None:
        space_names.require_space_name(space)
    if space is not None and folders_as_spaces:
        raise BadInput("the files cannot go into one space and into those of their folders", fix="choose one of both")
    return SourceSpaces(space, {}, folders_as_spaces)


def all_spaces(tx: Reading) -> SpaceScope:
    """Return all spaces of the book by id."""
    return space_rows.get_all(tx)


def read_space_files(engines: Engines, source: str) -> tuple[dict[str, SpaceFile], list[Finding]]:
    """Return the space files of a source by their folders, and a finding for each that does not parse."""
    by_folder: dict[str, SpaceFile] = {}
    malformed: list[Finding] = []
    for file in engines.external_files.space_files(source):
        try:
            by_folder[file.path.rpartition("/")[0]] = space_file.parse(file.data)
        except BadFile as error:
            malformed.append(Finding(what="not imported", where=file.path, why=f"it {error.message}", fix=error.fix))
    return by_folder, malformed


def new_names(spaces: SpaceScope, places: Iterable[Place]) -> tuple[str, ...]:
    """Return the names of the spaces that an import into these places makes."""
    names = (place.space for place in places if find_space(spaces, place) is None)
    return tuple(dict.fromkeys(name for name in names if not space_names.is_system(name)))


def find_space(spaces: SpaceScope, place: Place) -> Space | None:
    """Return the space of this book that a place means, or None if the import makes it."""
    is_beside = space_names.is_beside_space(place.space)
    by_id = spaces.get(place.id) if place.id and not is_beside else None
    if by_id is not None and space_names.has_space_file(by_id.name):
        return by_id
    return next((space for space in spaces.values() if space.name == place.space), None)


def require_space(ctx: WriteContext, place: Place) -> Space:
    """Return the space that a file is imported into, made as in the book that it comes from if there is none."""
    if space_names.is_beside_space(place.space):
        name, _, beside = place.space.rpartition("/")
        owner = require_space(ctx, place._replace(space=name))
        return ctx.require_writable_space(f"{owner.name}/{beside}", origin="import")
    space = find_space(ctx.spaces, place)
    if space is not None or place.id is None:
        return ctx.require_writable_space(space.name if space else place.space, origin="import")
    permissions.require_create(ctx.tx, ctx.actor, ctx.spaces, place.space)
    space_id = None if place.id in ctx.spaces else place.id
    folder = _folder(ctx, place)
    return ctx.add_space(place.space, folder, origin="import", space_id=space_id, review=place.review)


def _folder(ctx: WriteContext, place: Place) -> str:
    """Return the folder of a new space: as in the source if that can be one here, else one by its name."""
    others, folder = ctx.spaces.values(), place.folder
    if folder and not space_folders.why_no_space(folder) and space_folders.is_free(ctx.tx, others, folder):
        return folder
    return ctx.choose_folder(place.space)


def home_path(ctx: WriteContext, space: Space, rest: str) -> str | None:
    """Return the path of an imported file in the home; None if the folders of its path are another space."""
    return _path_in(ctx.spaces, space, rest)


def attachment_path(spaces: SpaceScope, place: Place) -> str:
    """Return the path of an attachment in the home, in the folder of the space that its notes are in."""
    space = find_space(spaces, place)
    return (space and _path_in(spaces, space, place.rest)) or likely_path(place)


def _path_in(spaces: SpaceScope, space: Space, rest: str) -> str | None:
    for folder in dict.fromkeys((space.folder, space.base)):
        path = f"{folder}/{rest}" if folder else rest
        lies_in = titles.space_at(path, spaces.values())
        if lies_in is not None and lies_in.id == space.id:
            return path
    return None


def plain_path(memory: StoredMemory) -> str:
    """Return the path that a memory would have if it had been written here."""
    return titles.memory_path(memory.space.base, memory.created, titles.slug(memory.title), memory.id)


def likely_path(place: Place) -> str:
    """Return the path that a file will probably have in the home, to tell whether the home can have it."""
    return place.rest if place.space == space_names.PERSONAL else f"{place.space}/{place.rest}"
