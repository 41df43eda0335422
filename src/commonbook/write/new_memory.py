"""Builds the first version of a memory as a value, finds titles and free paths, and logs it. No row is stored here."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from typing import Any

from commonbook.errors import Conflict
from commonbook.markdown import file_format
from commonbook.markdown.memory_conversion import title_of_note
from commonbook.model.ids import new_id
from commonbook.model.memory import Kind
from commonbook.model.spaces import Space
from commonbook.model.stored_memory import StoredMemory
from commonbook.tables import memories
from commonbook.text import file_paths, titles
from commonbook.write import store_version
from commonbook.write.context import WriteContext


def new_memory(
    ctx: WriteContext,
    *,
    space: Space,
    title: str,
    text: str,
    how: str,
    memory_id: str | None = None,
    path: str | None = None,
    kind: Kind = "note",
    tags: tuple[str, ...] = (),
    **fields: Any,  # noqa: ANN401 - further fields of a stored memory
) -> StoredMemory:
    """Return the first version of a memory, written now by the actor; `how` is the verb that its history shows.

    Without `memory_id` it gets a new id; without `path` it gets the default path for its title. It gets its hashes when
    it is added.
    """
    identity = identity_fields(ctx, memory_id=memory_id or new_id(), space=space, title=title, how=how, path=path)
    return StoredMemory(
        **identity,
        kind=kind,
        title=title,
        text=text,
        tags=tags,
        author=ctx.actor.principal,
        **fields,
    )


def log_new_memory(ctx: WriteContext, memory: StoredMemory, action: str, **payload: object) -> None:
    """Record that a memory was added, and what it supersedes."""
    ctx.log_memory(memory, action, **payload)
    store_version.record(ctx, None, memory)


def identity_fields(
    ctx: WriteContext, *, memory_id: str, space: Space, title: str, how: str, path: str | None = None
) -> dict[str, Any]:
    """Return the fields that a new memory never takes from another, even if it is a copy: identity, place, history."""
    now = ctx.tx.now
    return {
        "id": memory_id,
        "space": space,
        "created": now,
        "updated": now,
        "revision": 1,
        "version": 1,
        "revised_by": ctx.actor.principal,
        "revised_at": now,
        "revised_how": how,
        "path": path or _path_for(ctx, space, title, memory_id),
        "layout": "",
    }


def title_with_text(memory: StoredMemory, text: str) -> str:
    """Return the title of a memory that gets another text: a title that was derived follows it."""
    if "title" in file_format.absent_fields(memory.layout) and memory.title == title_of_note(memory, memory.text):
        return title_of_note(memory, text)
    return titles.derive_title(text) if memory.title == titles.derive_title(memory.text) else memory.title


def _path_for(ctx: WriteContext, space: Space, title: str, memory_id: str) -> str:
    """Return the default path of a new file; if it is taken, one with more digits of the id."""
    slug = titles.slug(title)
    path = file_paths.memory_path(space.base, ctx.tx.now, slug, memory_id)
    if memories.at_path(ctx.tx, path):
        path = file_paths.memory_path(space.base, ctx.tx.now, slug, memory_id, taken=True)
    return path


def path_of_restored(ctx: WriteContext, tombstone: StoredMemory) -> str:
    """Return the path for the file of a deleted memory that comes back: its former one, or a free one beside it."""
    lies_in = file_paths.space_at(tombstone.path, ctx.spaces.values())
    if lies_in is not None and lies_in.id == tombstone.space.id:
        return free_path(ctx, tombstone.path)
    # Its space was renamed since.
    former = tombstone.space._replace(own_folder=file_paths.name_by_folders(tombstone.path))
    return free_path(ctx, file_paths.moved_path(tombstone.path, former, tombstone.space, ctx.spaces.values()))


def moved_path(ctx: WriteContext, memory: StoredMemory, space: Space) -> str:
    """Return a free path for a memory that is moved into a space."""
    moved = file_paths.moved_path(memory.path, memory.space, space, ctx.spaces.values())
    # The slug may be of an earlier title, which is not for the readers of the new space.
    return free_path(ctx, file_paths.with_slug(moved, titles.slug(memory.title), memory.id))


def free_path(ctx: WriteContext, path: str, *, taken: Collection[str] = ()) -> str:
    """Return the path, or a numbered one beside it if a memory or a file has it, or if it is one of `taken`."""
    stem, ending = posixpath.splitext(path)
    for number in range(1, 1000):
        candidate = path if number == 1 else f"{stem}-{number}{ending}"
        is_taken = candidate in taken or memories.at_path(ctx.tx, candidate) is not None
        if not is_taken and not ctx.engines.folder.exists(candidate):
            return candidate
    raise Conflict(f"there is no free name beside {path}", fix="move some of those files away")
