"""Cut memories and messages into passages, and give each its terms, times, flags and vector for the index.

Labels of passages: texts by which the index filters exactly, beside the tags of a memory.

An index stores labels as it stores tags. Each begins with a control character, which no tag can have.

Cut a text into parts of some 60 to 120 words: a part, not a whole page, is indexed and ranked.

Parts end where paragraphs end. A long paragraph is cut between sentences, and a long sentence between words. Every
character that is not blank is in exactly one part. Parts are numbered, so that a part's neighbours are known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from commonbook.core.markdown import obsidian, transcript
from commonbook.core.tables import vectors
from commonbook.core.text import dates_in_text, metadata, stopwords, terms, titles
from commonbook.core.text import terms as text_terms
from commonbook.core.text.wishes import wishes_in
from commonbook.ports.embedding import Embedder, EmbeddingInput
from commonbook.ports.index import (
    BY_USER,
    FOREVER,
    HAS_DECISIONS,
    IS_COPY,
    IS_MESSAGE,
    IS_QUESTION,
    IS_WISH,
    TELLS_NAME,
    TELLS_TIME,
    IndexedPassage,
)
from commonbook.subjects.memories.marks import Validity, valid_since
from commonbook.subjects.reasoning import invalidations
from commonbook.subjects.recall import scoring, wishes
from commonbook.values.recall import RecallRequest
from commonbook.values.session import Message
from commonbook.values.stored_memory import StoredMemory

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


def passages_of(memory: StoredMemory, seq_by_message: Mapping[str, int | None] | None = None) -> list[Passage]:
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
        for part in split_text(memory.text)
    ]
    return parts or [Passage(f"{memory.id}#0", memory.id, 0, 0, 0, "")]


def text_between(memory: StoredMemory, start: int, end: int, *, is_message: bool) -> str:
    """Return the text of a passage by its place in the text of its memory."""
    if memory.kind == "episode" and is_message:
        return transcript.message_at(memory.text, start, end)
    return memory.text[start:end]


def session_thread(space: str, session: str) -> str:
    """Return the thread of a session's messages: the same name in two spaces is two sessions."""
    return f"{space} {session}"


def is_part_of(memory: StoredMemory, passage: str) -> bool:
    """Return whether a passage has an id of its memory, and not of a message in the log of a session."""
    return passage.startswith(f"{memory.id}#")


def _transcript_passages(memory: StoredMemory, seq_by_message: Mapping[str, int | None] | None) -> list[Passage]:
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


def _introduction(memory: StoredMemory, block: transcript.Block) -> list[Passage]:
    """Return the text above the first message as a passage, if there is any."""
    text = memory.text[block.start : block.end].strip()
    start = memory.text.index(text, block.start)
    return [Passage(f"{memory.id}#0", memory.id, 0, start, start + len(text), text)] if text else []


def _message_passage(
    memory: StoredMemory,
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
    """Return a message that is not in an episode yet as the index stores it; the vector is made from its text."""
    transcript_message = transcript.TranscriptMessage(
        message.id, message.seq, message.author, message.role, message.time, message.text
    )
    thread = session_thread(space, message.session)
    piece = Passage(message.id, thread, message.seq, 0, 0, message.text, transcript_message)
    terms = text_terms.terms(_searched_text(piece, message.text))
    sent = micros(message.time)
    flags = _flags(piece, len(terms))
    return IndexedPassage(
        passage=message.id,
        memory="",
        owner=message.id,
        thread=thread,
        position=message.seq,
        space=space,
        kind="episode",
        tags=(*tags, *labels_of_message(session=message.session, author=message.author, flags=flags)),
        time=sent,
        valid_from=sent,
        valid_until=FOREVER,
        superseded=FOREVER,
        expires=FOREVER,
        start=0,
        end=0,
        seq=message.seq,
        flags=flags,
        speaker=message.author,
        length=len(terms),
        terms=Counter([*terms, *text_terms.spelling_terms(_name(message.author))]),
        vector=vector,
    )


class CutMemory(NamedTuple):
    """A memory, its passages, and the text of each as it is embedded."""

    memory: StoredMemory
    pieces: list[Passage]
    texts: list[str]


def cut(memory: StoredMemory, seq_by_message: Mapping[str, int | None] | None = None) -> CutMemory:
    """Cut a memory into its passages, as `passages_of` does."""
    pieces = passages_of(memory, seq_by_message)
    return CutMemory(memory, pieces, embedded_texts(memory, pieces))


def indexed_passages(parts: CutMemory, *, validity: Validity, vectors: Iterable[Vector | None]) -> list[IndexedPassage]:
    """Return a memory's passages as the index stores them; `vectors` are made from its texts."""
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
        # Its length is the length of its text: names do not make a memory longer.
        entries[0] = first._replace(terms=Counter(first.terms) + Counter(_name_terms(memory, first.terms)))
    return entries


def _name_terms(memory: StoredMemory, known: Collection[str]) -> list[str]:
    """Return the terms by which a memory is named: each name as a whole, and words of its fields that it has not."""
    names = obsidian.names_of(memory)
    fields = (f"{name} {metadata.words_of(value)}" for name, value in memory.metadata.items())
    named = "\n".join((*names, *obsidian.tags_of(memory)))
    added = (*text_terms.terms("\n".join((named, *fields))), *text_terms.spelling_terms(named))
    return [*map(text_terms.name_term, names), *(word for word in dict.fromkeys(added) if word not in known)]


def _embedded_text(piece: Passage, title: str) -> str:
    """Return the text that is embedded: a message, or a part of a memory with the title above it."""
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
    memory: StoredMemory, piece: Passage, terms: Sequence[str], validity: Validity, *, tags: tuple[str, ...]
) -> IndexedPassage:
    happened = piece.message.time if piece.message else memory.occurred or memory.created
    speaker = piece.message.author if piece.message else ""
    flags = _flags(piece, len(terms)) | IS_COPY * follows_source(memory) | HAS_DECISIONS * bool(memory.decisions)
    if not piece.message and piece.position == 0 and memory.author.startswith("user:") and memory.kind != "notice":
        flags |= IS_WISH * (memory.kind == "preference" or bool(wishes_in(piece.text)))
    return IndexedPassage(
        passage=piece.id,
        memory=memory.id,
        owner=memory.id,
        thread=piece.thread,
        position=piece.position,
        space=memory.space.id,
        kind=memory.kind,
        tags=(*tags, *labels_of_passage(memory, author=speaker or memory.author, flags=flags)),
        time=micros(happened),
        valid_from=micros(memory.valid_from or happened if piece.message else valid_since(memory)),
        valid_until=_end(validity.valid_until),
        superseded=_end(validity.superseded_since),
        superseded_until=_end(validity.superseded_until),
        expires=_end(validity.expires),
        start=piece.start,
        end=piece.end,
        seq=piece.message.seq if piece.message else -1,
        flags=flags,
        speaker=speaker,
        length=len(terms),
        terms=Counter([*terms, *text_terms.spelling_terms(_name(speaker))]),
        vector=None,
        root=memory.root if follows_source(memory) else "",
        doubted=invalidations.doubted_by(memory) or "",
    )


def follows_source(memory: StoredMemory) -> bool:
    """Return whether a memory is a copy of a source in this book; a detached or imported one stands for itself."""
    return memory.root != memory.id and memory.shared is not None and not memory.shared.claimed


def root_of(memory: StoredMemory) -> str:
    """Return the root of a copy that follows its source; of any other memory, its own id."""
    return memory.root if follows_source(memory) else memory.id


def _wording(memory: StoredMemory) -> str:
    """Return a text that is the same for a root and for its copies with the same title and text."""
    words = blake2b(f"{memory.title}\n{memory.text}".encode(), digest_size=16).hexdigest()
    return f"{root_of(memory)} {words}"


def _end(moment: datetime | None) -> int:
    return micros(moment) if moment else FOREVER


def _flags(piece: Passage, length: int) -> int:
    """Return the flags that ranking uses; `length` is the number of terms."""
    flags = TELLS_TIME * dates_in_text.tells_time(piece.text) | TELLS_NAME * terms.tells_name(piece.text)
    if piece.message is not None:
        flags |= IS_MESSAGE | BY_USER * (piece.message.role == "user")
        flags |= IS_QUESTION * scoring.is_short_question(piece.text, length)
        flags |= IS_WISH * (piece.message.role == "user" and bool(wishes_in(piece.text)))
    return flags


def embedded_texts(memory: StoredMemory, pieces: Sequence[Passage] | None = None) -> list[str]:
    """Return the text of each passage as it is embedded; a title taken from the text is not put above the first."""
    first_title = "" if memory.title == titles.derive_title(memory.text) else memory.title
    pieces = passages_of(memory) if pieces is None else pieces
    return [_embedded_text(piece, memory.title if piece.position else first_title) for piece in pieces]


def labels_of_message(*, session: str, author: str, flags: int) -> tuple[str, ...]:
    """Return the labels of a message in the log of a session."""
    return session_label(session), _author(author), *wishes.labels_of(author, flags)


def labels_of_passage(memory: StoredMemory, *, author: str, flags: int) -> tuple[str, ...]:
    """Return the labels of a passage of a memory; `author` is the author of a message.

    An episode belongs to a session of its own space. One that was moved away belongs to none.
    """
    of_session = memory.kind == "episode" and memory.session and memory.session_space is None
    by_session = (session_label(memory.session or ""),) if of_session else ()
    return (*by_session, _author(author), *wishes.labels_of(author, flags), *metadata.labels_of(memory.metadata))


def labels_of_request(request: RecallRequest) -> tuple[str, ...]:
    """Return the labels that a passage must have to be found."""
    by_session = () if request.session is None else (session_label(request.session),)
    by_author = () if request.author is None else (_author(request.author),)
    return (*by_session, *by_author, *metadata.labels_of(request.metadata))


def session_label(name: str) -> str:
    """Return the label of the messages and episodes of a session."""
    return f"\x01session {name}"


def _author(name: str) -> str:
    return f"\x01author {name}"


MIN_PART_WORDS: Final = 60
MAX_PART_WORDS: Final = 120

_Span: TypeAlias = tuple[int, int]

_UNSPACED: Final = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
# Two characters of a script without spaces count as a word, and so do 64 characters of a longer run.
_WORD: Final = re.compile(rf"[{_UNSPACED}]{{1,2}}|[^\s{_UNSPACED}]{{1,64}}")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_SENTENCE_END: Final = re.compile(r"[.!?][\"'\u201d\u2019)\]]*(?=\s)|[\u3002\uff01\uff1f\n]")


class Part(NamedTuple):
    """A part of a text: its position among the parts, and its start and end in the text."""

    position: int
    start: int
    end: int
    text: str


def split_text(text: str) -> list[Part]:
    """Cut a text into parts; a blank text has none."""
    pieces = (piece for paragraph in _paragraphs(text) for piece in _pieces(text, paragraph))
    return [
        Part(position, start, end, text[start:end]) for position, (start, end) in enumerate(_join_pieces(text, pieces))
    ]


def size(text: str) -> int:
    """Count the words of a text, as the limits of parts count them."""
    return len(_WORD.findall(text))


def _paragraphs(text: str) -> Iterator[_Span]:
    """Yield the runs of lines between blank lines; a fenced code block is one run, with its blank lines."""
    start, fence = None, ""
    for line in _LINE.finditer(text):
        opening = _FENCE.match(line[0])
        if fence:
            if opening and opening[1].startswith(fence):
                fence = ""
        elif not line[0].strip():
            if start is not None:
                yield start, line.start()
            start = None
            continue
        elif opening:
            fence = opening[1]
        start = line.start() if start is None else start
    if start is not None:
        yield start, len(text)


def _pieces(text: str, span: _Span) -> Iterator[_Span]:
    """Yield a paragraph if it is short enough, else its sentences, and long sentences cut into runs of words."""
    if size(text[slice(*span)]) <= MAX_PART_WORDS:
        yield span
        return
    for start, end in _cut_at(_SENTENCE_END.finditer(text, *span), span):
        words = list(_WORD.finditer(text, start, end))
        if len(words) <= MAX_PART_WORDS:
            yield start, end
        else:
            yield from _cut_at(words[MIN_PART_WORDS - 1 :: MIN_PART_WORDS], (start, end))


def _cut_at(cuts: Iterable[re.Match[str]], span: _Span) -> Iterator[_Span]:
    start, end = span
    for cut in cuts:
        if start < cut.end() < end:
            yield start, cut.end()
            start = cut.end()
    yield start, end


def _join_pieces(text: str, pieces: Iterable[_Span]) -> Iterator[_Span]:
    """Join pieces until a part has enough words, and trim the blanks around it."""
    part: _Span | None = None
    words = 0
    for start, end in pieces:
        more = size(text[start:end])
        if part is not None and (words >= MIN_PART_WORDS or words + more > MAX_PART_WORDS):
            yield _trim(text, part)
            part, words = None, 0
        part = (start if part is None else part[0], end)
        words += more
    if part is not None and words:
        yield _trim(text, part)


def _trim(text: str, span: _Span) -> _Span:
    part = text[slice(*span)]
    return span[0] + len(part) - len(part.lstrip()), span[1] - len(part) + len(part.rstrip())
