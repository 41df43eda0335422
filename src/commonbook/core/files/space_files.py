"""Applies space files: `.space.toml` makes its folder a space, in a clone of the folder and after a lost database.

The database decides which folder is which space, and a space file only adds what the database does not know. It never
moves a memory that the database knows into another space, never renames a space, never changes who may read one and
never ends a review: anybody who can write to the folder, or whose commits are pulled into it, could write such a file.
It begins a review, since the database may be older than the file. A file that asks for more has a trouble, which
`doctor` names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from commonbook.core.markdown import space_file
from commonbook.core.tables import file_journal, spaces
from commonbook.core.text import space_names, titles
from commonbook.core.write import space_folders
from commonbook.core.write.transaction import write
from commonbook.errors import BadFile
from commonbook.values.request import FILESYSTEM_CONTEXT
from commonbook.values.spaces import Space

if TYPE_CHECKING:
    from commonbook.core.markdown.space_file import SpaceFile
    from commonbook.core.write.context import WriteContext
    from commonbook.ports.engines import Engines


def write_new(engines: Engines, ids: Sequence[str]) -> None:
    """Write the space files of these spaces, unless a file is there, which the scan reads."""
    write(engines, FILESYSTEM_CONTEXT, partial(_write_new, ids=ids))


def _write_new(ctx: WriteContext, ids: Sequence[str]) -> None:
    new = (ctx.spaces[id_] for id_ in ids)
    ctx.enqueue_space_files(space for space in new if not ctx.engines.folder.exists(titles.space_file(space.folder)))


def apply_files(engines: Engines, paths: Sequence[str], present: Collection[str]) -> None:
    """Apply space files that are new or changed, upper folders first; `present` are all paths there."""
    ordered = sorted(paths, key=lambda path: (path.count("/"), path))
    write(engines, FILESYSTEM_CONTEXT, partial(_apply_all, paths=ordered, present=present))


def _apply_all(ctx: WriteContext, paths: Sequence[str], present: Collection[str]) -> None:
    for path in paths:
        _apply(ctx, path, present)


def _apply(ctx: WriteContext, path: str, present: Collection[str]) -> None:
    stat, data = ctx.engines.folder.stat(path), ctx.engines.folder.read(path)
    if stat is None or data is None:
        return
    hash_, folder = file_journal.content_hash(data), path.rpartition("/")[0]
    try:
        trouble = _trouble(ctx, folder, space_file.parse(data), present)
    except BadFile as error:
        trouble = error.message
    space = _at(ctx, folder)
    file_journal.set_synced(
        ctx.tx,
        path,
        stat,
        hash_,
        memory=space.id if space else None,
        version=file_journal.SPACE_FILE_VERSION,
        trouble=trouble,
    )


def _at(ctx: WriteContext, folder: str) -> Space | None:
    """Return the space whose folder this is."""
    return next((space for space in ctx.spaces.values() if space.folder == folder), None)


def _trouble(ctx: WriteContext, folder: str, claim: SpaceFile, present: Collection[str]) -> str | None:
    """Do what a space file asks for, as far as that is safe; return what is wrong with it, or None."""
    here, named = _at(ctx, folder), ctx.spaces.get(claim.id)
    if here is not None:
        if named is not None and named.id != here.id:
            return f"has the id of the space {named.name}, but this is the folder of {here.name}"
        return _trouble_with_claim(claim, _with_review(ctx, here, claim))
    if named is not None:
        return _trouble_with_move(ctx, named, folder, claim, present)
    if other := ctx.space_named(claim.name):
        return f"names the space {claim.name}, whose folder is {other.base}"
    trouble = _trouble_with_folder(ctx, folder, claim.name)
    if trouble is None:
        ctx.add_space(claim.name, folder, origin="folder", space_id=claim.id, review=claim.review)
    return trouble


def _with_review(ctx: WriteContext, space: Space, claim: SpaceFile) -> Space:
    """Return a space with the review that its file has and the database does not, which may be the older of the two.

    The stricter one holds until a person decides. A file that is still to be written again does not count.
    """
    is_known = claim.review is None or space.review is not None
    if is_known or claim.name != space.name or file_journal.journal_entries(ctx.tx, [space.id]):
        return space
    reviewed = ctx.spaces[space.id] = spaces.set_review(ctx.tx, space, claim.review)
    ctx.log(reviewed, "space.review", (), review=claim.review)
    return reviewed


def _trouble_with_claim(claim: SpaceFile, space: Space) -> str | None:
    if claim.name != space.name:
        return f"names {claim.name}, but the space here is called {space.name}"
    if claim.review != space.review:
        says, known = claim.review or "none", space.review or "none"
        return f"says that the review is {says}, but it is {known}: only `commonbook space review` sets it"
    return None


def _trouble_with_folder(ctx: WriteContext, folder: str, name: str) -> str | None:
    """Return why a folder cannot become the space of that name, or None."""
    known = ctx.spaces.values()
    if not folder and name != space_names.PERSONAL:
        # Only the first space of a book can be the whole home: in any other, files would change their space.
        return "is of no use: the home itself is the folder of the space personal" if known else None
    if folder and name == space_names.PERSONAL and not space_folders.is_top_of_other(known):
        return "is of no use: the folder of the space personal is the home itself"
    if folder.lower() == space_names.PERSONAL and not space_folders.is_top_of_other(known):
        return "lies in the folder of the space personal"
    if folder and (trouble := space_folders.why_no_space(folder)):
        return trouble
    others = space_folders.others_below(ctx.tx, ctx.spaces.values(), folder) if folder else []
    if others:
        return f"would take memories from the space {others[0].name}, which only `commonbook space create` may do"
    return None


# --- a folder that a person moved or copied


def _trouble_with_move(
    ctx: WriteContext, space: Space, folder: str, claim: SpaceFile, present: Collection[str]
) -> str | None:
    """Take over the new place of a space's folder, unless it was copied; the name of the space stays as it is."""
    if not space_names.has_space_file(space.name) or _is_in_place(ctx, space, present):
        return f"is a copy: the folder of the space {space.name} is {space.base}"
    trouble = _trouble_with_folder(ctx, folder, space.name)
    if trouble is None:
        _move(ctx, space, folder, present)
    return trouble or _trouble_with_claim(claim, _with_review(ctx, ctx.spaces[space.id], claim))


def _is_in_place(ctx: WriteContext, space: Space, present: Collection[str]) -> bool:
    """Return whether the folder of a space still has its space file or a file of the space."""
    if titles.space_file(space.folder) in present:
        return True
    below = (path for path in present if titles.is_below(path, space.folder))
    return any(_lies_in(ctx, path, space) for path in below)


def _lies_in(ctx: WriteContext, path: str, space: Space) -> bool:
    around = titles.space_at(path, ctx.spaces.values())
    return around is not None and around.id == space.id


def _move(ctx: WriteContext, space: Space, folder: str, present: Collection[str]) -> None:
    """Give a space its new folder, and those spaces that were moved along with it."""
    old = space.folder
    moved = [other for other in ctx.spaces.values() if other.folder.startswith(old + "/")]
    for other in (space, *(other for other in moved if not _is_in_place(ctx, other, present))):
        file_journal.drop_synced(ctx.tx, titles.space_file(other.folder), other.id)
        ctx.spaces[other.id] = spaces.set_folder(ctx.tx, other, folder + other.folder.removeprefix(old))
        ctx.log(other, "space.folder", (), folder=ctx.spaces[other.id].folder)


# --- missing space files


def handle_missing(engines: Engines, paths: Sequence[str]) -> None:
    """Note space files that are missing as absent: the next write by a verb into their spaces writes them again.

    A commit that was checked out may be older than they are, and stays as it is until then.
    """
    write(engines, FILESYSTEM_CONTEXT, partial(_handle_missing, paths=paths))


def _handle_missing(ctx: WriteContext, paths: Sequence[str]) -> None:
    for path in paths:
        synced = file_journal.synced_file(ctx.tx, path)
        if synced is None or ctx.engines.folder.exists(path):
            continue
        space = ctx.spaces.get(synced.memory or "")
        if space is None or titles.space_file(space.folder) != path:
            file_journal.drop_synced(ctx.tx, path, synced.memory)
        else:
            file_journal.set_trouble(ctx.tx, path, file_journal.ABSENT)


# --- findings


def folders_by_case(paths: Iterable[str], all_spaces: Iterable[Space]) -> list[tuple[str, Space]]:
    """Return the folders of files that differ from the folder of a space by case alone, each with that space."""
    by_case = {
        space.folder.lower(): space for space in all_spaces if space.folder and space_names.has_folder(space.name)
    }
    folders = sorted({folder for path in paths for folder in titles.folders_above(path)})
    similar = ((folder, by_case.get(folder.lower())) for folder in folders)
    return [(folder, space) for folder, space in similar if space is not None and space.folder != folder]
