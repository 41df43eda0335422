"""What the index is told: memories cut into passages, and how far it has followed the book.

The index is a projection: it can be thrown away at any time. What has changed since it was last written is searched
directly (the *tail*), so that a recall need not wait for the index; when that becomes too much, whoever recalls next
writes it down for all.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from commonbook import (
    analysis,
    audit,
    changes,
    home,
    memories,
    passages,
    ranking,
    sessions,
    spaces,
    stopwords,
    supersession,
    titles,
    transcripts,
    vectors,
    when,
)
from commonbook.batches import in_batches
from commonbook.catalogue import (
    BY_USER,
    FOREVER,
    IS_CHAT,
    IS_QUESTION,
    TELLS_TIME,
    Applied,
    Entry,
    Layer,
    Marker,
    Tail,
)
from commonbook.errors import CommonbookError
from commonbook.model import Memory, Message, Progress, Spaces, quiet
from commonbook.ports import Embedder, Index, IndexView, IndexWriter, Overtaken, Parts, Reading, Said

RULES: Final = "2"
"""Changes whenever the same memory gives other passages or terms than before: an index by other rules is made anew."""

ANY: Final = sys.maxsize
"""However many have changed."""

FEW: Final = 128
"""So many changed memories are searched directly; more are written down first."""

Vector: TypeAlias = ranking.Floats

_BATCH: Final = 500
_PATIENCE: Final = 60.0
_IMPATIENCE: Final = 0.5
"""So many seconds a recall waits for another process that is writing the index, before it searches without it."""

_REST: Final = 30.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment_at(micros_: int) -> datetime:
    """Return the moment so many microseconds after 1970 began."""
    return _EPOCH + timedelta(microseconds=micros_)


def micros(moment: datetime) -> int:
    """Return a moment as microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


# --- a memory as passages


class Piece(NamedTuple):
    """A passage of a memory: where it stands, what it says, and who says it, if it is a message."""

    id: str
    thread: str
    position: int
    start: int
    end: int
    text: str
    message: transcripts.Utterance | None = None


def pieces(memory: Memory, held: Mapping[str, int | None] | None = None) -> list[Piece]:
    """Cut a memory: a transcript message by message, anything else into parts.

    `held` are the messages that the episode holds in its session's log, if it has one: they are found under their own
    ids and numbers, beside their neighbours in the session. One that was taken back (None) is left out, whoever put its
    line there again. What else is in it is the memory's own, and so is everything in a copy that was shared.
    """
    if memory.kind == "episode" and memory.shared is None and transcripts.is_transcript(memory.text):
        return _lines(memory, held)
    found = [
        Piece(f"{memory.id}#{part.position}", memory.id, part.position, part.start, part.end, part.text)
        for part in passages.parts(memory.text)
    ]
    return found or [Piece(f"{memory.id}#0", memory.id, 0, 0, 0, "")]


def _lines(memory: Memory, held: Mapping[str, int | None] | None) -> list[Piece]:
    found: list[Piece] = []
    seen: set[str] = set()
    taken_back = {message for message, seq in (held or {}).items() if seq is None}
    for at, block in enumerate(transcripts.blocks(memory.text)):
        if block.message is None:
            found += _above(memory, block)
        elif block.message.id not in taken_back:
            # Two messages of one id are a slip of the hand: the second goes by its place.
            again = block.message.id in seen
            found.append(_line(memory, at, block, block.message, {} if again else held))
            seen.add(block.message.id)
    return found


def _above(memory: Memory, block: transcripts.Block) -> list[Piece]:
    """Return what stands above the first message, if there is anything."""
    said = memory.text[block.start : block.end].strip()
    start = memory.text.index(said, block.start)
    return [Piece(f"{memory.id}#0", memory.id, 0, start, start + len(said), said)] if said else []


def _line(
    memory: Memory,
    at: int,
    block: transcripts.Block,
    told: transcripts.Utterance,
    held: Mapping[str, int | None] | None,
) -> Piece:
    """Return a message: that of a session's log, or the memory's own."""
    piece = Piece(told.id, memory.id, at, block.start, block.end, block.text, told)
    seq = held.get(told.id) if held else None
    if memory.session and seq is not None:
        return piece._replace(thread=memory.session, position=seq, message=told._replace(seq=seq))
    return piece if held is None else piece._replace(id=f"{memory.id}#{at}")


def message_entry(
    message: Message, *, space: str, tags: tuple[str, ...], embedder: Embedder, known: Mapping[str, bytes]
) -> Entry:
    """Return a message that no episode holds yet as the index keeps it."""
    told = transcripts.Utterance(message.id, message.seq, message.author, message.role, message.time, message.text)
    piece = Piece(message.id, message.session, message.seq, 0, 0, message.text, told)
    terms = analysis.terms(_searched(piece, message.text))
    at = micros(message.time)
    return Entry(
        passage=message.id,
        memory="",
        owner=message.id,
        thread=message.session,
        position=message.seq,
        space=space,
        kind="episode",
        tags=tags,
        time=at,
        valid_from=at,
        valid_until=FOREVER,
        superseded=FOREVER,
        expires=FOREVER,
        start=0,
        end=0,
        seq=message.seq,
        flags=_flags(piece, len(terms)),
        speaker=message.author,
        length=len(terms),
        terms=Counter(terms),
        vector=_vectors([message.text], embedder, known)[0],
    )


def entries(
    memory: Memory,
    *,
    superseded: int,
    embedder: Embedder,
    known: Mapping[str, bytes],
    held: Mapping[str, int | None] | None = None,
) -> list[Entry]:
    """Return a memory's passages as the index keeps them; `known` holds the vectors of a slow embedder."""
    found = pieces(memory, held)
    texts = embedded_texts(memory, found)
    made = _vectors(texts, embedder, known)
    return [
        _entry(memory, piece, analysis.terms(_searched(piece, text)), superseded)._replace(vector=vector)
        for piece, text, vector in zip(found, texts, made, strict=True)
    ]


def _embedded(piece: Piece, title: str) -> str:
    """Return the text whose meaning counts: what a message says, or a part with the title above it."""
    return piece.text if piece.message is not None else f"{title}\n{piece.text}".strip()


def _searched(piece: Piece, text: str) -> str:
    """Return the text whose words count: a message's speaker is one of them."""
    return text if piece.message is None else f"{_name(piece.message.author)} {text}"


def _name(author: str) -> str:
    """Return the name in `user:alice`."""
    return author.rpartition(":")[2]


def said(text: str) -> Said:
    """Return a text as an embedder takes it."""
    return Said(text, ranking.said(analysis.words(text), stopwords.ENGLISH))


def _vectors(texts: Sequence[str], embedder: Embedder, known: Mapping[str, bytes]) -> Sequence[Vector | None]:
    if not embedder.slow:
        return list(embedder.embed([said(text) for text in texts]))
    return [ranking.from_bytes(known.get(vectors.hash_of(text))) for text in texts]


def _entry(memory: Memory, piece: Piece, terms: Sequence[str], superseded: int) -> Entry:
    happened = piece.message.time if piece.message else memory.occurred or memory.created
    return Entry(
        passage=piece.id,
        memory=memory.id,
        owner=memory.id,
        thread=piece.thread,
        position=piece.position,
        space=memory.space.id,
        kind=memory.kind,
        tags=memory.tags,
        time=micros(happened),
        valid_from=micros(memory.valid_from or happened if piece.message else begins(memory)),
        valid_until=micros(memory.valid_until) if memory.valid_until else FOREVER,
        superseded=superseded,
        expires=micros(memory.expires) if memory.expires else FOREVER,
        start=piece.start,
        end=piece.end,
        seq=piece.message.seq if piece.message else -1,
        flags=_flags(piece, len(terms)),
        speaker=piece.message.author if piece.message else "",
        length=len(terms),
        terms=Counter(terms),
        vector=None,
    )


def begins(memory: Memory) -> datetime:
    """Return from when on a memory holds: as it says, else since it happened or was written down."""
    return memory.valid_from or min(memory.created, memory.occurred or memory.created)


def _flags(piece: Piece, length: int) -> int:
    flags = TELLS_TIME * when.tells_time(piece.text)
    if piece.message is not None:
        flags |= IS_CHAT | BY_USER * (piece.message.role == "user")
        flags |= IS_QUESTION * ranking.is_short_question(piece.text, length)
    return flags


# --- following the book


class _Made(NamedTuple):
    """The passages of a memory, and of which version: its own, since when it is superseded, and what it holds."""

    version: tuple[int, int, Mapping[str, int | None]]
    entries: list[Entry]


class Follower:
    """Knows what has changed since the index was written, and writes it down when it is too much to search directly."""

    def __init__(self, index: Index, embedder: Embedder) -> None:
        """Follow with this index."""
        self._index = index
        self._embedder = embedder
        self._guard = threading.Lock()
        self._trusted: Marker | None = None
        self._not_before = 0.0
        self._tail: Tail = ()
        self._total = -1
        self._state: tuple[Marker | None, Mapping[str, int]] | None = None
        self._made: dict[str, _Made] = {}

    def known(self) -> IndexView | None:
        """Return the index as it was last seen, if it was believed then."""
        view = self._index.known()
        return view if view.marker is not None and view.marker == self._trusted else None

    def view(self, parts: Parts, progress: Progress = quiet) -> IndexView:
        """Return the index as it is, with what has changed written down if that is too much to search directly."""
        view, changed = self._look(parts)
        if changed > FEW and self._may_write():
            try:
                self.write(parts, wait=_IMPATIENCE, progress=progress)
            except CommonbookError:
                # Where the index cannot be written, everything is searched directly: slower, and as right.
                self._not_before = time.monotonic() + _REST
            view, _ = self._look(parts)
        return view

    def _look(self, parts: Parts) -> tuple[IndexView, int]:
        """Return the index, or none if it is not to be believed, and how much has changed since."""
        view = self._index.view()
        with parts.db.reading() as tx:
            seen = self._seen(tx, view.marker)
            changed = len(changes.since(tx, seen, changes.counts(tx)))
        return (view if seen or view.marker is None else self._index.nothing()), changed

    def tail(self, tx: Reading, view: IndexView, total: int, *, most: int = ANY) -> Tail:
        """Return what has changed since this view of the index, as the book tells it, which is looked at later.

        `total` is how many changes there were in all. Overtaken if more than `most` are not written down, and could be.
        """
        with self._guard:
            known = self._state is not None and self._state[0] == view.marker
            if known and total == self._total:
                return self._kept(self._tail, (), most)
            counts = changes.counts(tx)
            if self._state is not None and known:
                before, seen = self._tail, self._state[1]
            else:
                before, seen = (), self._seen(tx, view.marker)
            fresh = changes.since(tx, seen, counts)
            self._kept(before, fresh, most)
            if fresh:
                made = self._made_for(tx, fresh)
                self._made = {**self._made, **made} if before else made
                before = (*before, _layer(made, fresh))
            self._state, self._tail, self._total = (view.marker, counts), before, total
            return before

    def _kept(self, before: Tail, fresh: Sequence[str], most: int) -> Tail:
        """Return a tail that is not too long, with what is new in it; Overtaken if it is, and could be written down."""
        if len(frozenset(fresh).union(*(layer.gone for layer in before))) > most and self._may_write():
            raise Overtaken
        return before

    def _may_write(self) -> bool:
        return time.monotonic() > self._not_before

    def compares(self, view: IndexView) -> bool:
        """Tell whether the index's vectors are this embedder's: those of another are never compared with them."""
        return view.marker is None or view.marker.embedder == self._embedder.fingerprint

    def write(
        self,
        parts: Parts,
        *,
        anew: bool = False,
        also: Sequence[str] = (),
        wait: float = _PATIENCE,
        progress: Progress = quiet,
    ) -> int:
        """Bring the index up to the book, under its lock; `anew`, from nothing. `also` names what else is new.

        Return how many memories were written down.
        """
        with self._index.writing(wait=wait) as writer, parts.db.reading() as tx:
            seen = {} if anew else self._seen(tx, writer.marker)
            if not seen:
                writer.clear()
            counts = changes.counts(tx)
            changed = dict.fromkeys((*changes.since(tx, seen, counts), *also))
            self._write(tx, writer, tuple(changed), counts, progress)
            return len(changed)

    def _write(
        self,
        tx: Reading,
        writer: IndexWriter,
        changed: Sequence[str],
        counts: Mapping[str, int],
        progress: Progress,
    ) -> None:
        before = writer.marker
        ours = before is None or before.embedder == self._embedder.fingerprint
        for at in range(0, len(changed), _BATCH):
            progress("indexing", at, len(changed))
            some = changed[at : at + _BATCH]
            layer = _layer(self._made_for(tx, some), some)
            # Beside vectors of another embedder ours have no place: whoever re-embeds makes the index anew.
            writer.add(layer if ours else _without_vectors(layer))
        heads = audit.heads(tx)
        applied = {space: Applied(number, *heads.get(space, (0, ""))) for space, number in counts.items()}
        embedder = self._embedder.fingerprint if before is None or ours else before.embedder
        marker = Marker(home.facts(tx)["id"], RULES, embedder, applied)
        writer.commit(marker)
        progress("indexing", len(changed), len(changed))

    def _seen(self, tx: Reading, marker: Marker | None) -> Mapping[str, int]:
        """Return how far an index has followed each space; nowhere if it is not this book's, or of another past."""
        if marker is None:
            return {}
        if marker != self._trusted:
            if (marker.rules, marker.home) != (RULES, home.facts(tx)["id"]):
                return {}
            if not audit.has(tx, {space: (one.seq, one.hash) for space, one in marker.applied.items() if one.seq}):
                return {}
            self._trusted = marker
        return {space: one.number for space, one in marker.applied.items()}

    def _made_for(self, tx: Reading, ids: Sequence[str]) -> dict[str, _Made]:
        """Return the passages of those of these memories that there are; what was made before is not made again."""
        made: dict[str, _Made] = {}
        every = spaces.everything(tx)
        for some in in_batches(ids, _BATCH):
            there = memories.several(tx, every, some)
            live = [one for one in there.values() if one.deleted is None]
            ended = superseded_since(tx, [memory.id for memory in live])
            known = self._known(tx, (text for memory in live for text in embedded_texts(memory)))
            held = sessions.held_by(tx, [memory.id for memory in live if memory.session])
            made |= self._messages(tx, every, [one for one in some if one not in there])
            for memory in live:
                own = held.get(memory.id, {}) if memory.session else None
                version = (memory.version, ended.get(memory.id, FOREVER), own or {})
                before = self._made.get(memory.id)
                if before is not None and before.version == version and not self._embedder.slow:
                    made[memory.id] = before
                else:
                    found = entries(memory, superseded=version[1], embedder=self._embedder, known=known, held=own)
                    made[memory.id] = _Made(version, found)
        return made

    def _messages(self, tx: Reading, every: Spaces, ids: Sequence[str]) -> dict[str, _Made]:
        """Return the passages of those of these messages that no episode holds and nobody took back."""
        found = sessions.several(tx, every, ids)
        open_ = [one for one in found.values() if one[0].episode is None and one[0].taken_back is None]
        tags = sessions.tags_of(tx, sorted({message.session for message, _ in open_}))
        known = self._known(tx, (message.text for message, _ in open_))
        return {
            message.id: _Made(
                (0, 0, {}),
                [
                    message_entry(
                        message,
                        space=space,
                        tags=tags.get(message.session, ()),
                        embedder=self._embedder,
                        known=known,
                    )
                ],
            )
            for message, space in open_
        }

    def _known(self, tx: Reading, texts: Iterable[str]) -> Mapping[str, bytes]:
        if not self._embedder.slow:
            return {}
        hashes = {vectors.hash_of(text) for text in texts}
        return vectors.known(tx, self._embedder.fingerprint, sorted(hashes))


def _layer(made: Mapping[str, _Made], changed: Iterable[str]) -> Layer:
    return Layer(tuple(entry for one in made.values() for entry in one.entries), frozenset(changed))


def _without_vectors(layer: Layer) -> Layer:
    return layer._replace(entries=tuple(entry._replace(vector=None) for entry in layer.entries))


def embedded_texts(memory: Memory, found: Sequence[Piece] | None = None) -> list[str]:
    """Return the texts of a memory's passages whose meaning counts."""
    titled = "" if memory.title == titles.title_from(memory.text) else memory.title
    told = pieces(memory) if found is None else found
    return [_embedded(piece, memory.title if piece.position else titled) for piece in told]


def superseded_since(tx: Reading, ids: Sequence[str]) -> dict[str, int]:
    """Return since when each of these memories is superseded: since the first of what follows it holds.

    All spaces count, since the index keeps one time for a passage, whoever recalls it.
    """
    found = supersession.superseding(tx, spaces.everything(tx), ids)
    return {id_: min(micros(begins(one)) for one in sources) for id_, sources in found.items()}
