"""Remembering, editing, moving, linking and deleting memories: each a story in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from commonbook import (
    amend,
    dates,
    following,
    foundations,
    idempotency,
    links,
    memories,
    paths,
    reading,
    sync,
    takein,
    titles,
    wording,
)
from commonbook.desk import Desk, no_memory
from commonbook.errors import BadInput, BadText, BadTime, NotFound, VersionConflict
from commonbook.model import (
    UNSET,
    Changes,
    Deleted,
    Draft,
    Filter,
    Link,
    Memory,
    Receipt,
    Space,
    new_id,
    stamp,
)
from commonbook.new_memory import free_path, new_memory
from commonbook.ports import Parts
from commonbook.principals import Actor
from commonbook.writing import logging_refusal, write

_COMPARED: Final = 50
"""The receipts of so many memories at once name near duplicates; larger batches are imports, and nobody reads them."""

_TIMES: Final = ("occurred", "valid_from", "valid_until", "expires")

# --- remember


def remember(parts: Parts, actor: Actor, drafts: Sequence[Draft]) -> list[Receipt]:
    """Store new memories, all or none; a draft whose key was used before gets its first receipt again."""
    checked = []
    for at, draft in enumerate(drafts):
        with wording.naming(at):
            checked.append(_checked(draft))
    with logging_refusal(parts, actor, "supersede", (old for draft in checked for old in _superseded(draft))):
        return write(parts, actor, lambda desk: _remember_all(desk, checked))


def _superseded(draft: Draft) -> list[str]:
    named = [target for relation, target in draft.links if relation == "supersedes"]
    return [*named, draft.replaces] if draft.replaces else named


def _checked(draft: Draft) -> Draft:
    """Return the draft with everything that can be decided without the book, or refuse it."""
    text = wording.text(draft.text)
    title = wording.title(draft.title) if draft.title else ""
    if not title and not text.strip():
        raise BadText("there is nothing to remember", fix="give a text, or at least a title")
    return draft._replace(
        text=text,
        title=title or titles.title_from(text),
        space=paths.require_space_name(draft.space or paths.PERSONAL),
        kind=wording.kind(draft.kind),
        tags=wording.tags(draft.tags),
        importance=wording.importance(draft.importance),
        links=tuple((wording.new_relation(relation), wording.memory_id(target)) for relation, target in draft.links),
        replaces=wording.memory_id(draft.replaces) if draft.replaces else None,
        key=wording.key(draft.key) if draft.key is not None else None,
    )


def _remember_all(desk: Desk, drafts: Sequence[Draft]) -> list[Receipt]:
    receipts: list[Receipt] = []
    added: list[Memory] = []
    few = len(drafts) <= _COMPARED
    # Spaces are made in one order, so that no two who make the same ones wait for each other.
    for at in sorted(range(len(drafts)), key=lambda one: drafts[one].space or ""):
        with wording.naming(at):
            desk.space(drafts[at].space or paths.PERSONAL)
    for at, draft in enumerate(drafts):
        with wording.naming(at):
            receipt, memory = _remember_one(desk, draft, compare=few)
        receipts.append(receipt)
        if memory is not None:
            added.append(memory)
    desk.issue(added)
    return receipts


def _remember_one(desk: Desk, draft: Draft, *, compare: bool) -> tuple[Receipt, Memory | None]:
    """Store one memory, its file aside; or return the first receipt of its key and no memory."""
    space = desk.space(draft.space or paths.PERSONAL)
    if draft.key is None:
        return _store(desk, draft, space, compare=compare)
    asked = {
        "space": space.id,
        "principal": desk.actor.principal,
        "key": draft.key,
        "content": _fingerprint(desk, draft),
    }
    answer = idempotency.first_answer(desk.tx, **asked)
    if answer is not None:
        return _receipt_from(answer)._replace(new=False), None
    receipt, memory = _store(desk, draft, space, compare=compare)
    idempotency.claim(desk.tx, **asked, answer=json.dumps(receipt._asdict()))
    return receipt, memory


def _store(desk: Desk, draft: Draft, space: Space, *, compare: bool) -> tuple[Receipt, Memory]:
    memory = require_ordered_times(_new_memory(desk, draft, space))
    foundations.require_sound(desk, memory, memory.links)
    duplicate = memories.same_text(desk.tx, desk.readable, memory.text)
    near = memories.near_text(desk.tx, space, memory.text) if compare and space.id in desk.readable else ()
    memories.add(desk.tx, [memory])
    links.add(desk.tx, space.id, memory.links)
    if memory.links:
        desk.shake(None, memory)
    desk.log_memory(memory, "remember", **_logged_links(memory))
    return receipt_of(memory, new=True)._replace(duplicate_of=duplicate, near=near), memory


def _new_memory(desk: Desk, draft: Draft, space: Space) -> Memory:
    memory_id = new_id()
    wanted = [*draft.links, *([("supersedes", draft.replaces)] if draft.replaces else [])]
    return new_memory(
        desk,
        memory_id=memory_id,
        space=space,
        how="remember",
        kind=draft.kind,
        title=draft.title or "",
        text=draft.text,
        tags=draft.tags,
        importance=draft.importance,
        links=resolve_links(desk, memory_id, wanted),
        occurred=desk.time("occurred", draft.occurred),
        valid_from=desk.time("valid_from", draft.valid_from),
        valid_until=desk.time("valid_until", draft.valid_until),
        expires=desk.time("expires", draft.expires),
    )


def require_ordered_times(memory: Memory) -> Memory:
    """Return the memory, or refuse one whose validity ends before it begins."""
    if memory.valid_from and memory.valid_until and memory.valid_until < memory.valid_from:
        raise BadInput("valid_until is before valid_from", fix="exchange the two")
    return memory


def resolve_links(desk: Desk, source: str, wanted: Iterable[tuple[str, str]]) -> tuple[Link, ...]:
    """Return links to memories that are there, with the revision that they have now."""
    wanted = tuple(wanted)
    desk.hold((target for _, target in wanted))
    found = {}
    for relation, target in wanted:
        memory = memories.find(desk.tx, desk.readable, target)
        if memory is None or memory.deleted is not None:
            raise no_memory(target)
        if relation == "supersedes" and memory.space.id not in desk.writable:
            raise no_memory(target)
        found[relation, target] = Link(source, relation, target, memory.revision)
    return tuple(found.values())


def _logged_links(memory: Memory) -> dict[str, object]:
    return {"links": [[link.relation, link.target] for link in memory.links]} if memory.links else {}


def _fingerprint(desk: Desk, draft: Draft) -> str:
    """Return a keyed hash of everything that was asked, so that a repeat is known and nothing can be guessed.

    What stands at its default is left out, so that a field that comes later changes no hash of today. The space is
    part of the key already, by its id, which a rename does not change.
    """
    times = {name: _spelled(desk, name, getattr(draft, name)) for name in _TIMES}
    title = None if draft.title == titles.title_from(draft.text) else draft.title
    asked = {**draft._asdict(), "title": title, **times}
    default = Draft("")._asdict()
    said = {name: asked[name] for name in asked if name not in ("key", "space") and asked[name] != default[name]}
    return desk.parts.keys.keyed_hash(json.dumps(said, sort_keys=True))


def _spelled(desk: Desk, name: str, value: datetime | str | None) -> str | None:
    """Return one spelling for all of a moment; words such as `yesterday` stay words, since a repeat comes later."""
    if value is None:
        return None
    try:
        return stamp(dates.read_time(value, zone=desk.parts.zone, edge=dates.field_edge(name)))
    except BadTime:
        return " ".join(str(value).lower().split())


def receipt_of(memory: Memory, *, new: bool) -> Receipt:
    """Return the receipt for a memory as it is now."""
    return Receipt(
        id=memory.id,
        revision=memory.revision,
        version=memory.version,
        space=memory.space.name,
        path=memory.path,
        new=new,
    )


def _receipt_from(answer: str) -> Receipt:
    said = json.loads(answer)
    return Receipt(**{**said, "near": tuple(said["near"])})


# --- change


def edit(parts: Parts, actor: Actor, memory_id: str, changes: Changes, *, expected_version: int | None) -> Receipt:
    """Change fields of a memory; an edit that changes nothing leaves the version as it is."""

    def story(desk: Desk, memory: Memory) -> Memory:
        said = _edited(desk, memory, changes)
        changed = [name for name in Changes._fields if getattr(said, name) != getattr(memory, name)]
        return amend.amend(desk, memory, said, changed, how="edit") if changed else memory

    return _change(parts, actor, memory_id, story, expected_version=expected_version)


def move(parts: Parts, actor: Actor, memory_id: str, to: str, *, expected_version: int | None) -> Receipt:
    """Move a memory into another space, with its file and its history."""
    paths.require_space_name(to)

    def story(desk: Desk, memory: Memory) -> Memory:
        space = desk.space(to)
        if space.id == memory.space.id:
            return memory
        if memory.notice is not None:
            raise BadInput("a notice stays where the memory is that it is about", fix="move that memory")
        path = free_path(desk, paths.moved(memory.path, memory.space.name, space.name))
        desk.leave(memory, path)
        return amend.amend(desk, memory, memory._replace(space=space, path=path), ["space"], how="move")

    return _change(parts, actor, memory_id, story, expected_version=expected_version)


def link(parts: Parts, actor: Actor, source: str, relation: str, target: str) -> Receipt:
    """Link a memory to another; a link that is there already is left as it is."""
    wording.new_relation(relation)
    target = wording.memory_id(target)

    def story(desk: Desk, memory: Memory) -> Memory:
        if target == memory.id:
            raise BadInput("a memory cannot be linked to itself", fix="name another memory")
        if any((one.relation, one.target) == (relation, target) for one in memory.links):
            return memory
        _require_own_link(memory, relation)
        added = resolve_links(desk, memory.id, [(relation, target)])
        foundations.require_sound(desk, memory, added)
        said = memory._replace(links=(*memory.links, *added))
        return amend.amend(desk, memory, said, ["links"], how="link")

    with logging_refusal(parts, actor, "supersede", [target] if relation == "supersedes" else []):
        return _change(parts, actor, source, story, also=target)


def unlink(parts: Parts, actor: Actor, source: str, relation: str, target: str) -> Receipt:
    """Take a link away."""
    wording.relation(relation)
    target = wording.memory_id(target)

    def story(desk: Desk, memory: Memory) -> Memory:
        _require_own_link(memory, relation)
        rest = tuple(one for one in memory.links if (one.relation, one.target) != (relation, target))
        if len(rest) == len(memory.links):
            raise NotFound(
                f"memory {memory.id} has no link {relation} to {target}", fix="`commonbook show` lists its links"
            )
        return amend.amend(desk, memory, memory._replace(links=rest), ["links"], how="unlink")

    return _change(parts, actor, source, story)


def _require_own_link(memory: Memory, relation: str) -> None:
    """Refuse to change where a copy came from, or what a notice is about."""
    if memory.notice is not None:
        raise BadInput("a notice has the one link to what it is about", fix="link that memory, or `triage` the notice")
    if relation == "shared_from" and memory.shared is not None:
        raise BadInput(
            f"memory {memory.id} is a copy, and has one source",
            fix="`detach` ends the tie to it, `unshare` removes the copy",
        )


def delete(
    parts: Parts, actor: Actor, ids: Sequence[str], *, expected_version: int | None = None, dry_run: bool = False
) -> Deleted:
    """Delete memories, all or none: files go, tombstones and history stay."""
    wanted = tuple(dict.fromkeys(wording.memory_id(memory_id) for memory_id in ids))

    def story(desk: Desk, *, looked: bool) -> Deleted:
        desk.hold(wanted)
        for memory_id in wanted:
            memory = takein.fresh(desk, desk.require(memory_id), looked=looked)
            _require_version(memory, expected_version)
            if not dry_run:
                amend.remove(desk, memory, how="delete")
        return Deleted(ids=wanted, dry_run=dry_run)

    return sync.write_with_a_look(parts, actor, story)


def _change(
    parts: Parts,
    actor: Actor,
    memory_id: str,
    story: Callable[[Desk, Memory], Memory],
    *,
    expected_version: int | None = None,
    also: str | None = None,
) -> Receipt:
    memory_id = wording.memory_id(memory_id)

    def whole(desk: Desk, *, looked: bool) -> Receipt:
        desk.hold(one for one in (memory_id, also) if one)
        memory = takein.fresh(desk, desk.require(memory_id), looked=looked)
        _require_version(memory, expected_version)
        receipt = receipt_of(story(desk, memory), new=False)
        followed = following.spread(desk)
        readable = desk.readable if followed else {}
        return receipt._replace(copies=sum(copy.space.id in readable for copy in followed))

    return sync.write_with_a_look(parts, actor, whole)


def _require_version(memory: Memory, expected: int | None) -> None:
    if expected is not None and memory.version != expected:
        raise VersionConflict(memory=memory.id, expected=expected, found=memory.version)


def _edited(desk: Desk, memory: Memory, changes: Changes) -> Memory:
    said = memory
    if changes.text is not UNSET:
        said = said._replace(text=wording.text(changes.text))
        if memory.title == titles.title_from(memory.text):
            # A title that was only ever the text's first line goes on being that.
            said = said._replace(title=titles.title_from(said.text))
    if changes.title is not UNSET:
        title = wording.title(changes.title) if changes.title else ""
        said = said._replace(title=title or titles.title_from(said.text))
    if changes.kind is not UNSET:
        if memory.notice is not None:
            raise BadInput("a notice stays one", fix="`triage` it, or `delete` it to dismiss it")
        said = said._replace(kind=wording.kind(changes.kind))
    if changes.tags is not UNSET:
        said = said._replace(tags=wording.tags(changes.tags))
    if changes.importance is not UNSET:
        said = said._replace(importance=wording.importance(changes.importance))
    return require_ordered_times(_timed(desk, said, changes))


def _timed(desk: Desk, said: Memory, changes: Changes) -> Memory:
    if changes.occurred is not UNSET:
        said = said._replace(occurred=desk.time("occurred", changes.occurred))
    if changes.valid_from is not UNSET:
        said = said._replace(valid_from=desk.time("valid_from", changes.valid_from))
    if changes.valid_until is not UNSET:
        said = said._replace(valid_until=desk.time("valid_until", changes.valid_until))
    if changes.expires is not UNSET:
        said = said._replace(expires=desk.time("expires", changes.expires))
    return said


def delete_where(parts: Parts, actor: Actor, chosen: Filter, *, dry_run: bool) -> Deleted:
    """Delete every memory that a filter lets through; a filter that lets everything through is refused."""
    if chosen == Filter():
        raise BadInput("nothing says which memories to delete", fix="give ids, a tag, a kind, a space or a time")
    ids: list[str] = []
    after = None
    while True:
        page = reading.page(parts, actor, chosen, limit=wording.MAX_PAGE, after=after)
        ids += [memory.id for memory in page.items]
        after = page.next
        if after is None:
            break
    return delete(parts, actor, ids, dry_run=dry_run)
