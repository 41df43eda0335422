"""Looking things up: nothing here changes anything."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from commonbook import (
    dates,
    files,
    freshness,
    links,
    memories,
    paths,
    reasoning,
    revisions,
    rights,
    sessions,
    spaces,
    supersession,
    wording,
)
from commonbook.desk import no_memory
from commonbook.errors import BadInput
from commonbook.judgement import REASONING
from commonbook.model import KINDS, Filter, Hit, Link, Memory, Page, Revision, Space, Spaces
from commonbook.ports import Parts, Reading, asking
from commonbook.principals import Actor


def readable(tx: Reading, actor: Actor, name: str | None = None) -> Spaces:
    """Return the spaces that a question reaches: one by its name, with a final '/' all below it too, or all ('/')."""
    return reached(tx, actor, ["/" if name is None else name])


def reached(tx: Reading, actor: Actor, names: Sequence[str]) -> Spaces:
    """Return the spaces that a question to all of these names reaches, each once."""
    tops = {name: name if name == "/" else paths.require_asked_name(name.removesuffix("/")) for name in names}
    few = rights.is_owner(actor) and not any(name.endswith("/") for name in names)
    known = spaces.called(tx, tuple(tops.values())) if few else spaces.everything(tx)
    allowed = rights.readable(tx, actor, known)
    found: dict[str, Space] = {}
    for name, top in tops.items():
        chosen = {id_: space for id_, space in allowed.items() if _reaches(name, top, space)}
        if not chosen and name != "/":
            rights.require_create(tx, actor, known, top)
        found |= chosen
    return found


class Later(Mapping[str, Space]):
    """Spaces that are looked up when somebody first asks which they are."""

    def __init__(self, look_up: Callable[[], Spaces]) -> None:
        """Look them up like this."""
        self._look_up = look_up
        self._found: Spaces | None = None

    def _spaces(self) -> Spaces:
        if self._found is None:
            self._found = self._look_up()
        return self._found

    def __getitem__(self, id_: str) -> Space:
        return self._spaces()[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spaces())

    def __len__(self) -> int:
        return len(self._spaces())


def _reaches(name: str, top: str, space: Space) -> bool:
    if name == "/":
        return True
    return paths.below(space.name, top) if name.endswith("/") else space.name == top


def get_stored(parts: Parts, actor: Actor, memory_id: str) -> Memory:
    """Return one memory with its links and marks."""
    memory_id = wording.memory_id(memory_id)
    with parts.db.reading() as tx:
        allowed = readable(tx, actor)
        found = memories.find(tx, allowed, memory_id)
        if found is None or found.deleted is not None:
            raise no_memory(memory_id)
        return marked(parts, tx, allowed, [found], parts.clock.now())[0]


@asking
def may_have(parts: Parts, actor: Actor, hits: Sequence[Hit]) -> bool:
    """Tell whether an actor may read now where these hits come from, which it could when they were found."""
    if rights.is_owner(actor):
        return True
    with parts.db.reading() as tx:
        allowed = readable(tx, actor)
        found = memories.places(tx, sorted({hit.memory for hit in hits if hit.memory}))
        said = {sessions.place(tx, id_) for id_ in {hit.session for hit in hits if hit.session and not hit.memory}}
    return allowed.keys() >= {*found.values(), *said}


def find_id(parts: Parts, actor: Actor, part: str) -> str:
    """Return the id that begins or ends with these digits, or the one whose file this is."""
    name = part.strip().lower()
    tail = re.search(r"--([0-9a-f]{8,12})\.md\Z", name)
    digits = tail[1] if tail else name
    if not wording.is_unicode(part) or "\0" in part:
        return wording.memory_id(part)
    with parts.db.reading() as tx:
        allowed = readable(tx, actor)
        whole = name if wording.is_memory_id(name) else memories.at_path(tx, posixpath.normpath(part.strip()))
        if whole is not None and memories.find(tx, allowed, whole) is not None:
            return whole
        if not re.fullmatch(r"[0-9a-f-]{4,36}", digits):
            return wording.memory_id(part)
        found = memories.starting(tx, allowed, digits, limit=3)
    if not found:
        raise no_memory(part)
    if len(found) > 1:
        raise BadInput(f"{part!r} means several memories: {', '.join(found)} …", fix="give more digits of the id")
    return found[0]


def page(parts: Parts, actor: Actor, chosen: Filter, *, limit: int, after: str | None) -> Page:
    """Return the newest memories that the filter lets through, and the cursor of the next page."""
    wording.require_page_limit(limit)
    known_kinds(chosen.kinds)
    behind = read_cursor(after) if after else None
    chosen = chosen._replace(tags=wording.tags(chosen.tags), kinds=chosen.kinds or _usual(chosen.space))
    with parts.db.reading() as tx:
        allowed = readable(tx, actor, chosen.space)
        found = memories.page(
            tx,
            allowed,
            chosen,
            since=_time(parts, "since", chosen.since),
            until=_time(parts, "until", chosen.until),
            after=behind,
            limit=limit + 1,
        )
        items = marked(parts, tx, readable(tx, actor), found[:limit], parts.clock.now())
    following = page_cursor(items[-1]) if len(found) > limit else None
    return Page(tuple(items), following)


def _usual(space: str | None) -> tuple[str, ...]:
    """Return the kinds that are meant where none is named: notices only where nothing else is."""
    if space is not None and space.removesuffix("/").rpartition("/")[2] == paths.INVALIDATIONS:
        return ()
    return tuple(kind for kind in KINDS if kind != "notice")


def known_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds that somebody asks for, if there are such."""
    for kind in kinds:
        if kind not in KINDS:
            raise BadInput(f"{kind!r} is not a kind of memory", fix=f"use one of {', '.join(KINDS)}")
    return tuple(kinds)


def history(parts: Parts, actor: Actor, memory_id: str) -> tuple[Revision, ...]:
    """Return every title and text that a memory had, oldest first; a deleted memory has its history still."""
    memory_id = wording.memory_id(memory_id)
    with parts.db.reading() as tx:
        memory = memories.find(tx, readable(tx, actor), memory_id)
        if memory is None:
            raise no_memory(memory_id)
        past = revisions.past(tx, memory)
    present = Revision(
        revision=memory.revision,
        title=memory.title,
        text=memory.text,
        author=memory.revised_by,
        at=memory.revised_at,
        how=memory.revised_how,
        current=memory.deleted is None,
    )
    return (*past, present)


def links_of(parts: Parts, actor: Actor, memory_id: str) -> tuple[Link, ...]:
    """Return the links of a memory in both directions, those that go out first."""
    memory = get_stored(parts, actor, memory_id)
    with parts.db.reading() as tx:
        incoming = links.incoming(tx, readable(tx, actor), [memory.id])
        live = live_ids(tx, readable(tx, actor), [link.source for link in incoming])
    return (*memory.links, *(link for link in incoming if link.source in live))


def all_spaces(parts: Parts, actor: Actor) -> tuple[Space, ...]:
    """Return the spaces that the actor may read, by name."""
    with parts.db.reading() as tx:
        return tuple(sorted(readable(tx, actor).values(), key=lambda space: space.name))


def marked(
    parts: Parts,
    tx: Reading,
    allowed: Spaces,
    found: Sequence[Memory],
    now: datetime,
    *,
    superseded: Callable[[], list[Link]] | None = None,
) -> list[Memory]:
    """Return the memories with what supersedes them and what is to be said of them.

    `superseded` is what `supersession.request_links` returned, where somebody has asked for those already.
    """
    ids = tuple(memory.id for memory in found)
    resting = [memory for memory in found if reasoning.rests(memory)]
    every = spaces.everything(tx) if resting else {}
    above = reasoning.above(tx, every, resting) if resting else reasoning.Above({}, {})
    successors = supersession.newest(supersession.superseding(tx, allowed, ids, requested=superseded))
    troubles = files.troubles_of(tx, ids) if parts.folder.keeps_files else {}
    stands = freshness.of(tx, every, found)
    shown = []
    for memory in found:
        trouble = troubles.get((memory.id, memory.path))
        marks = list(_marks(memory, now, trouble, superseded=memory.id in successors))
        doubts = reasoning.doubts(memory, above) if memory.id in above.known else ()
        doubts = tuple(reasoning.shown(cause, above.known, allowed) for cause in doubts)
        if doubts:
            marks.append("suspect")
        if is_outdated(memory, above.known):
            marks.append("source_changed")
        said = memory._replace(marks=tuple(marks), superseded_by=successors.get(memory.id), doubts=doubts)
        shown.append(_standing(tx, allowed, said, stands[memory.id]) if memory.id in stands else said)
    return shown


def is_outdated(memory: Memory, known: Mapping[str, Memory]) -> bool:
    """Tell whether something that a memory was reasoned from says something else now."""
    pairs = ((link, known.get(link.target)) for link in memory.links if link.relation in REASONING)
    return any(
        target is not None and target.deleted is None and link.revision is not None and link.revision < target.revision
        for link, target in pairs
    )


def _standing(tx: Reading, allowed: Spaces, copy: Memory, stands: freshness.Standing) -> Memory:
    """Return a copy with how it stands to its source; a successor that may not be read is not named."""
    successor = (
        stands.successor if stands.successor and stands.successor in live_ids(tx, allowed, [stands.successor]) else None
    )
    return copy._replace(freshness=stands.freshness, successor=successor)


def _marks(memory: Memory, now: datetime, trouble: str | None, *, superseded: bool) -> Iterable[str]:
    if memory.deleted:
        yield "deleted"
    if superseded:
        yield "superseded"
    if memory.expires and memory.expires < now:
        yield "expired"
    if memory.valid_until and memory.valid_until < now:
        yield "ended"
    if memory.valid_from and memory.valid_from > now:
        yield "not_yet"
    if trouble:
        yield "missing" if trouble == files.MISSING else "malformed"


def live_ids(tx: Reading, allowed: Spaces, ids: Sequence[str]) -> frozenset[str]:
    """Return those of the ids whose memories are in these spaces and not deleted."""
    found = memories.several(tx, allowed, tuple(dict.fromkeys(ids)))
    return frozenset(id_ for id_, memory in found.items() if memory.deleted is None)


def _time(parts: Parts, name: str, value: datetime | str | None) -> datetime | None:
    if value is None:
        return None
    return dates.read_time(value, zone=parts.zone, edge=dates.field_edge(name), now=parts.clock.now())


def page_cursor(memory: Memory) -> str:
    """Write the cursor behind a memory of a page."""
    return base64.urlsafe_b64encode(" ".join(memories.cursor_position(memory)).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[str, str]:
    """Read what `cursor` wrote."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    created, _, memory_id = text.partition(" ")
    if not re.fullmatch(r"[0-9T:.Z-]{27}", created) or not memory_id:
        raise BadInput(f"{cursor!r} is not a cursor", fix="pass on the `next` of the page before, as it is")
    return created, memory_id
