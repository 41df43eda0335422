"""Cut memories and messages into passages, and give each its terms, times, flags and vector for the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from commonbook.markdown import obsidian, transcript
from commonbook.memories.validity import Validity, valid_since
from commonbook.model.memory import Memory
from commonbook.model.session import Message
from commonbook.ports.embedding import Embedder, EmbeddingInput
from commonbook.ports.index import (
    BY_USER,
    FOREVER,
    HAS_DECISIONS,
    IS_COPY,
    IS_MESSAGE,
    IS_QUESTION,
    TELLS_NAME,
    TELLS_TIME,
    IndexedPassage,
)
from commonbook.reasoning import open_notices
from commonbook.recall import labels, scoring
from commonbook.tables import vectors
from commonbook.text import dates_in_text, names_in_text, passages, stopwords, titles
from commonbook.text import terms as text_terms

Vector: TypeAlias = scoring.Floats
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of_micros(micros_: int) -> datetime:
    """Return the time that is this many microseconds after the beginning of 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=micros_)


def micros(moment: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


# --- a memory as passages


class Passage(NamedTuple):
    """A passage of a memory: its thread and position, its place in the text, and the message if it is one."""

    id: str
    thread: str
    position: int
    start: int
    end: int
    text: str
    message: transcript.TranscriptMessage | None = None


def passages_of(memory: Memory, seq_by_message: Mapping[str, int | None] | None = None) -> list[Passage]:
    """Cut a memory: a transcript into its messages, any other text into parts.

    `seq_by_message` maps the episode's messages in its session's log to their sequence numbers, if it has a session.
    These passages get the message's own id and number, so that they are neighbours of the session's other messages. A
    rewound message (None) is left out, even if a person put its lines back into the file. All other passages belong to
    the memory, and so do all passages of a shared copy.
    """
    if memory.kind == "episode" and memory.shared is None and transcript.is_transcript(memory.text):
        return _transcript_passages(memory, seq_by_message)
    parts = [
        Passage(f"{memory.id}#{part.position}", memory.id, part.position, part.start, part.end, part.text)
        for part in passages.parts(memory.text)
    ]
    return parts or [Passage(f"{memory.id}#0", memory.id, 0, 0, 0, "")]


def text_between(memory: Memory, start: int, end: int, *, is_message: bool) -> str:
    """Return the text of a passage by its place in the text of its memory."""
    if memory.kind == "episode" and is_message:
        return transcript.message_at(memory.text, start, end)
    return memory.text[start:end]


def session_thread(space: str, session: str) -> str:
    """Return the thread of a session's messages: the same name in two spaces is two sessions."""
    return f"{space} {session}"


def is_part_of(memory: Memory, passage: str) -> bool:
    """Tell whether a passage has an id of its memory, and not of a message in the log of a session."""
    return passage.startswith(f"{memory.id}#")


def _transcript_passages(memory: Memory, seq_by_message: Mapping[str, int | None] | None) -> list[Passage]:
    pieces: list[Passage] = []
    seen: set[str] = set()
    rewound = {message for message, seq in (seq_by_message or {}).items() if seq is None}
    for position, block in enumerate(transcript.blocks(memory.text)):
        if block.message is None:
            pieces += _introduction(memory, block)
        elif block.message.id not in rewound:
            # Two messages of one id are an editing mistake: the second gets an id from its position.
            is_duplicate = block.message.id in seen
            pieces.append(
                _message_passage(memory, position, block, block.message, {} if is_duplicate else seq_by_message)
            )
            seen.add(block.message.id)
    return pieces


def _introduction(memory: Memory, block: transcript.Block) -> list[Passage]:
    """Return the text above the first message as a passage, if there is any."""
    text = memory.text[block.start : block.end].strip()
    start = memory.text.index(text, block.start)
    return [Passage(f"{memory.id}#0", memory.id, 0, start, start + len(text), text)] if text else []


def _message_passage(
    memory: Memory,
    position: int,
    block: transcript.Block,
    message: transcript.TranscriptMessage,
    seq_by_message: Mapping[str, int | None] | None,
) -> Passage:
    """Return the passage of a message: in its session's thread if the log has it, else in the memory's."""
    piece = Passage(message.id, memory.id, position, block.start, block.end, block.text, message)
    seq = seq_by_message.get(message.id) if seq_by_message else None
    if memory.session and seq is not None:
        thread = session_thread(memory.space.id, memory.session)
        return piece._replace(thread=thread, position=seq, message=message._replace(seq=seq))
    return piece if seq_by_message is None else piece._replace(id=f"{memory.id}#{position}")


def indexed_message(message: Message, *, space: str, tags: tuple[str, ...], vector: Vector | None) -> IndexedPassage:
    """Return a message that is not in an episode yet as the index stores it; the vector is that of its text."""
    transcript_message = transcript.TranscriptMessage(
        message.id, message.seq, message.author, message.role, message.time, message.text
    )
    thread = session_thread(space, message.session)
    piece = Passage(message.id, thread, message.seq, 0, 0, message.text, transcript_message)
    terms = text_terms.terms(_searched_text(piece, message.text))
    sent = micros(message.time)
    return IndexedPassage(
        passage=message.id,
        memory="",
        owner=message.id,
        thread=thread,
        position=message.seq,
        space=space,
        kind="episode",
        tags=(*tags, *labels.labels_of_message(session=message.session, author=message.author)),
        time=sent,
        valid_from=sent,
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
        vector=vector,
    )


class CutMemory(NamedTuple):
    """A memory, its passages, and the text of each as it is embedded."""

    memory: Memory
    pieces: list[Passage]
    texts: list[str]


def cut(memory: Memory, seq_by_message: Mapping[str, int | None] | None = None) -> CutMemory:
    """Cut a memory into its passages, as `passages_of` does."""
    pieces = passages_of(memory, seq_by_message)
    return CutMemory(memory, pieces, embedded_texts(memory, pieces))


def indexed_passages(parts: CutMemory, *, validity: Validity, vectors: Iterable[Vector | None]) -> list[IndexedPassage]:
    """Return a memory's passages as the index stores them; `vectors` are those of its texts."""
    memory, pieces, texts = parts
    wording = _wording(memory)
    # Looked up once: to search a long text for them again for each of its passages takes quadratic time.
    tags = obsidian.tags_of(memory)
    entries = [
        _indexed(memory, piece, text_terms.terms(_searched_text(piece, text)), validity, tags=tags)._replace(
            vector=vector, wording=wording if piece.message is None else ""
        )
        for piece, text, vector in zip(pieces, texts, vectors, strict=True)
    ]
    # An episode whose messages were all rewound has no passage.
    if pieces and pieces[0].message is None:
        first = entries[0]
        # Its length is that of its text: names do not make a memory longer.
        entries[0] = first._replace(terms=Counter(first.terms) + Counter(_name_terms(memory, first.terms)))
    return entries


def _name_terms(memory: Memory, known: Collection[str]) -> list[str]:
    """Return the terms by which a memory is named: each name as a whole, and words of names and tags it has not."""
    names = obsidian.names_of(memory)
    words = dict.fromkeys(text_terms.terms(" ".join((*names, *obsidian.tags_of(memory)))))
    return [*map(text_terms.name_term, names), *(word for word in words if word not in known)]


def _embedded_text(piece: Passage, title: str) -> str:
    """Return the text that is embedded: that of a message, or a part with the title above it."""
    return piece.text if piece.message is not None else f"{title}\n{piece.text}".strip()


def _searched_text(piece: Passage, text: str) -> str:
    """Return the text whose terms are indexed: a message's with the name of its speaker."""
    return text if piece.message is None else f"{_name(piece.message.author)} {text}"


def _name(author: str) -> str:
    """Return the name in `user:alice`."""
    return author.rpartition(":")[2]


def embedding_input(text: str) -> EmbeddingInput:
    """Return a text with its word weights, as an embedder takes it."""
    return EmbeddingInput(text, scoring.word_weights(text_terms.words(text), stopwords.ENGLISH))


def vectors_of(texts: Sequence[str], embedder: Embedder, known: Mapping[str, bytes]) -> Sequence[Vector | None]:
    """Embed these texts, or look up the stored vectors of a slow embedder; None where there is none yet.

    Many texts at once cost less than each by itself: most words are in several of them.
    """
    if not embedder.slow:
        return list(embedder.embed([embedding_input(text) for text in texts]))
    return [scoring.from_bytes(known.get(vectors.hash_of(text))) for text in texts]


def _indexed(
    memory: Memory, piece: Passage, terms: Sequence[str], validity: Validity, *, tags: tuple[str, ...]
) -> IndexedPassage:
    happened = piece.message.time if piece.message else memory.occurred or memory.created
    speaker = piece.message.author if piece.message else ""
    return IndexedPassage(
        passage=piece.id,
        memory=memory.id,
        owner=memory.id,
        thread=piece.thread,
        position=piece.position,
        space=memory.space.id,
        kind=memory.kind,
        tags=(*tags, *labels.labels_of_passage(memory, author=speaker or memory.author)),
        time=micros(happened),
        valid_from=micros(memory.valid_from or happened if piece.message else valid_since(memory)),
        valid_until=_end(validity.valid_until),
        superseded=_end(validity.superseded_since),
        superseded_until=_end(validity.superseded_until),
        expires=_end(validity.expires),
        start=piece.start,
        end=piece.end,
        seq=piece.message.seq if piece.message else -1,
        flags=_flags(piece, len(terms)) | IS_COPY * follows_source(memory) | HAS_DECISIONS * bool(memory.decisions),
        speaker=speaker,
        length=len(terms),
        terms=Counter(terms),
        vector=None,
        root=memory.root if follows_source(memory) else "",
        doubted=open_notices.doubted_by(memory) or "",
    )


def follows_source(memory: Memory) -> bool:
    """Tell whether a memory is a copy of a source in this book; a detached or imported one stands for itself."""
    return memory.root != memory.id and memory.shared is not None and not memory.shared.claimed


def root_of(memory: Memory) -> str:
    """Return the root of a copy that follows its source; of any other memory, its own id."""
    return memory.root if follows_source(memory) else memory.id


def _wording(memory: Memory) -> str:
    """Return a text that is the same for a root and for its copies with the same title and text."""
    words = blake2b(f"{memory.title}\n{memory.text}".encode(), digest_size=16).hexdigest()
    return f"{root_of(memory)} {words}"


def _end(moment: datetime | None) -> int:
    return micros(moment) if moment else FOREVER


def _flags(piece: Passage, length: int) -> int:
    """Return the flags that ranking uses; `length` is the number of terms."""
    flags = TELLS_TIME * dates_in_text.tells_time(piece.text) | TELLS_NAME * names_in_text.tells_name(piece.text)
    if piece.message is not None:
        flags |= IS_MESSAGE | BY_USER * (piece.message.role == "user")
        flags |= IS_QUESTION * scoring.is_short_question(piece.text, length)
    return flags


def embedded_texts(memory: Memory, pieces: Sequence[Passage] | None = None) -> list[str]:
    """Return the text of each passage as it is embedded; a title taken from the text is not put above the first."""
    first_title = "" if memory.title == titles.derive_title(memory.text) else memory.title
    pieces = passages_of(memory) if pieces is None else pieces
    return [_embedded_text(piece, memory.title if piece.position else first_title) for piece in pieces]
