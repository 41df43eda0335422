"""Passages as they are indexed: the entries of a memory or message, with terms, times and vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from commonbook.markdown import transcript
from commonbook.model.memory import Memory
from commonbook.model.session import Message
from commonbook.ports.embedding import Embedder, EmbeddingInput
from commonbook.ports.index import BY_USER, FOREVER, IS_CHAT, IS_QUESTION, TELLS_TIME, IndexedPassage
from commonbook.recall import ranking
from commonbook.tables import vectors
from commonbook.text import passages, stopwords, time_expressions, titles
from commonbook.text import terms as text_terms

Vector: TypeAlias = ranking.Floats
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of_micros(micros_: int) -> datetime:
    """Return the moment so many microseconds after 1970 began."""
    return _EPOCH + timedelta(microseconds=micros_)


def micros(moment: datetime) -> int:
    """Return a moment as microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


# --- a memory as passages


class Passage(NamedTuple):
    """A passage of a memory: where it stands, what it says, and who says it, if it is a message."""

    id: str
    thread: str
    position: int
    start: int
    end: int
    text: str
    message: transcript.TranscriptMessage | None = None


def passages_of(memory: Memory, held: Mapping[str, int | None] | None = None) -> list[Passage]:
    """Cut a memory: a transcript message by message, anything else into parts.

    `held` are the messages that the episode holds in its session's log, if it has one: they are found under their own
    ids and numbers, beside their neighbours in the session. One that was taken back (None) is left out, whoever put its
    line there again. What else is in it is the memory's own, and so is everything in a copy that was shared.
    """
    if memory.kind == "episode" and memory.shared is None and transcript.is_transcript(memory.text):
        return _lines(memory, held)
    found = [
        Passage(f"{memory.id}#{part.position}", memory.id, part.position, part.start, part.end, part.text)
        for part in passages.parts(memory.text)
    ]
    return found or [Passage(f"{memory.id}#0", memory.id, 0, 0, 0, "")]


def _lines(memory: Memory, held: Mapping[str, int | None] | None) -> list[Passage]:
    found: list[Passage] = []
    seen: set[str] = set()
    taken_back = {message for message, seq in (held or {}).items() if seq is None}
    for at, block in enumerate(transcript.blocks(memory.text)):
        if block.message is None:
            found += _above(memory, block)
        elif block.message.id not in taken_back:
            # Two messages of one id are a slip of the hand: the second goes by its place.
            again = block.message.id in seen
            found.append(_line(memory, at, block, block.message, {} if again else held))
            seen.add(block.message.id)
    return found


def _above(memory: Memory, block: transcript.Block) -> list[Passage]:
    """Return what stands above the first message, if there is anything."""
    said = memory.text[block.start : block.end].strip()
    start = memory.text.index(said, block.start)
    return [Passage(f"{memory.id}#0", memory.id, 0, start, start + len(said), said)] if said else []


def _line(
    memory: Memory,
    at: int,
    block: transcript.Block,
    told: transcript.TranscriptMessage,
    held: Mapping[str, int | None] | None,
) -> Passage:
    """Return a message: that of a session's log, or the memory's own."""
    piece = Passage(told.id, memory.id, at, block.start, block.end, block.text, told)
    seq = held.get(told.id) if held else None
    if memory.session and seq is not None:
        return piece._replace(thread=memory.session, position=seq, message=told._replace(seq=seq))
    return piece if held is None else piece._replace(id=f"{memory.id}#{at}")


def indexed_message(
    message: Message, *, space: str, tags: tuple[str, ...], embedder: Embedder, known: Mapping[str, bytes]
) -> IndexedPassage:
    """Return a message that no episode holds yet as the index keeps it."""
    told = transcript.TranscriptMessage(
        message.id, message.seq, message.author, message.role, message.time, message.text
    )
    piece = Passage(message.id, message.session, message.seq, 0, 0, message.text, told)
    terms = text_terms.terms(_searched(piece, message.text))
    at = micros(message.time)
    return IndexedPassage(
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


def indexed_passages(
    memory: Memory,
    *,
    superseded: int,
    embedder: Embedder,
    known: Mapping[str, bytes],
    held: Mapping[str, int | None] | None = None,
) -> list[IndexedPassage]:
    """Return a memory's passages as the index keeps them; `known` holds the vectors of a slow embedder."""
    found = passages_of(memory, held)
    texts = embedded_texts(memory, found)
    made = _vectors(texts, embedder, known)
    return [
        _entry(memory, piece, text_terms.terms(_searched(piece, text)), superseded)._replace(vector=vector)
        for piece, text, vector in zip(found, texts, made, strict=True)
    ]


def _embedded(piece: Passage, title: str) -> str:
    """Return the text whose meaning counts: what a message says, or a part with the title above it."""
    return piece.text if piece.message is not None else f"{title}\n{piece.text}".strip()


def _searched(piece: Passage, text: str) -> str:
    """Return the text whose words count: a message's speaker is one of them."""
    return text if piece.message is None else f"{_name(piece.message.author)} {text}"


def _name(author: str) -> str:
    """Return the name in `user:alice`."""
    return author.rpartition(":")[2]


def embedding_input(text: str) -> EmbeddingInput:
    """Return a text as an embedder takes it."""
    return EmbeddingInput(text, ranking.word_weights(text_terms.words(text), stopwords.ENGLISH))


def _vectors(texts: Sequence[str], embedder: Embedder, known: Mapping[str, bytes]) -> Sequence[Vector | None]:
    if not embedder.slow:
        return list(embedder.embed([embedding_input(text) for text in texts]))
    return [ranking.from_bytes(known.get(vectors.hash_of(text))) for text in texts]


def _entry(memory: Memory, piece: Passage, terms: Sequence[str], superseded: int) -> IndexedPassage:
    happened = piece.message.time if piece.message else memory.occurred or memory.created
    return IndexedPassage(
        passage=piece.id,
        memory=memory.id,
        owner=memory.id,
        thread=piece.thread,
        position=piece.position,
        space=memory.space.id,
        kind=memory.kind,
        tags=memory.tags,
        time=micros(happened),
        valid_from=micros(memory.valid_from or happened if piece.message else valid_since(memory)),
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


def valid_since(memory: Memory) -> datetime:
    """Return from when on a memory holds: as it says, else since it happened or was written down."""
    return memory.valid_from or min(memory.created, memory.occurred or memory.created)


def _flags(piece: Passage, length: int) -> int:
    flags = TELLS_TIME * time_expressions.tells_time(piece.text)
    if piece.message is not None:
        flags |= IS_CHAT | BY_USER * (piece.message.role == "user")
        flags |= IS_QUESTION * ranking.is_short_question(piece.text, length)
    return flags


def embedded_texts(memory: Memory, found: Sequence[Passage] | None = None) -> list[str]:
    """Return the texts of a memory's passages whose meaning counts."""
    titled = "" if memory.title == titles.title_from(memory.text) else memory.title
    told = passages_of(memory) if found is None else found
    return [_embedded(piece, memory.title if piece.position else titled) for piece in told]
