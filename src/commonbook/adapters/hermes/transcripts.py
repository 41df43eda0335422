"""Transcripts of Hermes: the words that a person typed, and the messages that are not stored yet.

All functions are pure. Hermes hands over the same conversation again and again: after each turn, before it compresses,
and at the end. A compression cuts the transcript at the front, an undo or a retry cuts it at the end. Messages have no
ids. So a message is recognised by its fingerprint, a hash of its role and cleaned text, together with its neighbours.
The position alone is not enough, since positions move. The text alone is not enough, since people say `yes` twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.core.text import masking, recall_fence

_MAX_PIECE_CHARS: Final = 256 * 1024
"""This many characters are at most 1 MiB, the limit of a message, in any script."""
_MAX_JOINED: Final = 8
"""At most this many messages without an answer between them are recognised if Hermes has joined them."""

_EMPTY_MEMORY_CONTEXT: Final = re.compile(
    r"<\s*memory-context\s*>\s*(?:\[System note:[^\]]{0,400}\]\s*)?</\s*memory-context\s*>\s*", re.IGNORECASE
)


class TranscriptMessage(NamedTuple):
    """One message of a transcript: its role, the text to store, and the fingerprint that recognises it."""

    role: str
    text: str
    fingerprint: str


class TranscriptDiff(NamedTuple):
    """Result of a comparison: how many of the known messages remain, and the new messages after them."""

    kept: int
    new: tuple[TranscriptMessage, ...]


def clean(text: str) -> str:
    """Return a text without recalled passages, secrets and characters that a file cannot hold."""
    encodable = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    return masking.mask(_EMPTY_MEMORY_CONTEXT.sub("", recall_fence.unfence_any(encodable))).text.strip()


def transcript_message(role: str, content: object) -> TranscriptMessage | None:
    """Return a message as it is stored; None if it is empty, of another role, or written by Hermes itself."""
    if role not in ("user", "assistant"):
        return None
    text = clean(_text(content))
    # A summary may also be in the name of the assistant.
    words = "" if is_summary(text) else clean(typed_words(text)) if role == "user" else text
    return TranscriptMessage(role, words, fingerprint(role, words)) if words else None


def fingerprint(role: str, text: str) -> str:
    """Return the hash by which a message is recognised; Hermes may join and strip texts, so spaces do not count."""
    return sha256(f"{role}\n{''.join(text.split())}".encode("utf-8", "replace")).hexdigest()[:24]


def transcript_messages(messages: Iterable[object]) -> list[TranscriptMessage]:
    """Return the messages of user and assistant, without messages of tools, system prompts and Hermes itself.

    An answer that was cut off by the limit of its length is one message with its continuation.
    """
    result: list[TranscriptMessage] = []
    is_cut_off = False
    for message in messages:
        if not isinstance(message, Mapping) or is_marked(message):
            continue
        parsed = transcript_message(str(message.get("role") or ""), message.get("content"))
        if parsed is None:
            continue
        if is_cut_off and parsed.role == "assistant":
            parsed = joined((result.pop(), parsed))
        result.append(parsed)
        is_cut_off = parsed.role == "assistant" and message.get("finish_reason") == "length"
    return result


def joined(messages: Sequence[TranscriptMessage]) -> TranscriptMessage:
    """Return several messages of one role as one."""
    text = ("\n\n" if messages[0].role == "user" else " ").join(message.text for message in messages)
    return TranscriptMessage(messages[0].role, text, fingerprint(messages[0].role, text))


def has_summary(messages: Iterable[object]) -> bool:
    """Return whether the beginning of a transcript was replaced by a summary."""
    return any(isinstance(message, Mapping) and is_summary(_text(message.get("content"))) for message in messages)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = (item.get("text") if isinstance(item, Mapping) else item for item in content)
    return "\n".join(part for part in parts if isinstance(part, str))


def split_text(text: str) -> list[str]:
    """Split a text into parts that fit into one message each."""
    return [text[at : at + _MAX_PIECE_CHARS] for at in range(0, len(text), _MAX_PIECE_CHARS)]


# --- the last turn


def split_question(messages: Iterable[object], question: str) -> list[object]:
    """Return a transcript in which the question of the last turn is a message of its own.

    Hermes joins it to the message before if that has no answer: words of a turn that was interrupted, or a summary.
    """
    result = list(messages)
    for index in range(len(result) - 1, -1, -1):
        message = result[index]
        content = message.get("content") if isinstance(message, Mapping) and message.get("role") == "user" else None
        if isinstance(content, str) and question and content.endswith("\n\n" + question):
            before = content[: -len(question)].rstrip()
            result[index : index + 1] = [{"role": "user", "content": before}, {"role": "user", "content": question}]
            break
        if content == question:
            break
    return result


def split_joined(
    messages: Iterable[TranscriptMessage], unanswered: Sequence[Sequence[TranscriptMessage]]
) -> list[TranscriptMessage]:
    """Return a transcript in which messages that Hermes joined are apart.

    `unanswered` has the known messages of the user in runs without an answer between them. Unknown words may follow
    the last run.
    """
    runs = _joined_runs([run[-_MAX_JOINED:] for run in unanswered])
    last = unanswered[-1][-_MAX_JOINED:] if unanswered else ()
    return [
        part
        for message in messages
        for part in runs.get(message.fingerprint) or _split_unknown(message, last) or (message,)
    ]


def _joined_runs(runs: Sequence[Sequence[TranscriptMessage]]) -> dict[str, Sequence[TranscriptMessage]]:
    """Return all parts of the runs, by the fingerprint that they have when they are joined."""
    return {
        joined(run[start:end]).fingerprint: run[start:end]
        for run in runs
        for start in range(len(run))
        for end in range(start + 2, len(run) + 1)
    }


def _split_unknown(message: TranscriptMessage, run: Sequence[TranscriptMessage]) -> Sequence[TranscriptMessage]:
    """Return the known messages with which a message begins, and its other words; empty if there are none."""
    parts: list[TranscriptMessage] = []
    words = message.text if message.role == "user" else ""
    for known in run:
        if words.startswith(known.text + "\n\n"):
            words = words[len(known.text) :].lstrip()
            parts.append(known)
    return [*parts, TranscriptMessage("user", words, fingerprint("user", words))] if parts and words else ()


class LastTurn(NamedTuple):
    """A transcript that ends with a turn: its messages, the index of the question, and notices that were left out."""

    messages: list[TranscriptMessage]
    start: int
    notices: tuple[str, ...] = ()


def with_turn(
    messages: Sequence[TranscriptMessage], user: str, assistant: str, known: Collection[str] = ()
) -> LastTurn:
    """Return a transcript that ends with this turn, with the answer that Hermes gives for the turn itself.

    Nobody types within a turn. So all messages of the user after the question are notices of Hermes. The fingerprints
    stay those of the transcript, so that the same message is recognised in the next transcript.
    """
    question, answer = transcript_message("user", user), transcript_message("assistant", assistant)
    result = list(messages)
    start = _question_index(result, question, known)
    if start == len(result):
        # The transcript has no words of a person: Hermes began the turn, or there is no transcript at all.
        is_answered = question is None and bool(result)
        missing = [message for message in (question, answer) if message]
        return LastTurn(result if is_answered else [*result, *missing], len(result))
    notices = tuple(message.fingerprint for message in result[start + 1 :] if message.role == "user")
    result[start + 1 :] = [message for message in result[start + 1 :] if message.role != "user"]
    if question and not result[start].text.endswith(question.text):
        result[start] = result[start]._replace(text=question.text)
    if answer and result[-1].role == "assistant":
        result[-1] = result[-1]._replace(text=answer.text)
    elif answer:
        result.append(answer)
    return LastTurn(result, start, notices)


def _question_index(
    messages: Sequence[TranscriptMessage], question: TranscriptMessage | None, known: Collection[str]
) -> int:
    """Return the index of the question; the last message of the user, if no new one has its words."""
    last = last_turn_start(messages)
    if question is None or last == len(messages):
        return last
    for index in range(last, -1, -1):
        if messages[index].role == "user":
            if messages[index].text.endswith(question.text):
                return index
            if messages[index].fingerprint in known:
                break
    return last


def last_turn_start(messages: Sequence[TranscriptMessage]) -> int:
    """Return the index of the last message of the user, where the last turn begins."""
    return next((index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "user"), len(messages))


# --- new messages


def compare(
    known: Sequence[str],
    messages: Sequence[TranscriptMessage],
    *,
    inherited: int = 0,
    unknown_prefix: bool,
    completes_turn: bool,
) -> TranscriptDiff:
    """Compare a transcript with the known fingerprints and return the new messages.

    `inherited` is the number of known messages, at the front, that belong to another session. `unknown_prefix` says
    that the transcript may begin with unknown messages, of another session or another process. `completes_turn` says
    that its last message is new, unless the whole transcript is known.
    """
    fingerprints = [message.fingerprint for message in messages]
    if fingerprints == list(known[: len(fingerprints)]) and (len(fingerprints) > inherited or not completes_turn):
        return TranscriptDiff(len(known), ())
    if list(known) == fingerprints[: len(known)] and (known or not unknown_prefix):
        return TranscriptDiff(len(known), tuple(messages[len(known) :]))
    end = _end_of_overlap(known, fingerprints[: len(fingerprints) - completes_turn])
    if end:
        return TranscriptDiff(len(known), tuple(messages[end:]))
    # No message is known, so only the last turn certainly belongs to this session.
    return TranscriptDiff(len(known), tuple(messages[last_turn_start(messages) :]) if completes_turn else ())


def compare_started(
    known: Sequence[str], at: int, turn: LastTurn, *, unknown_prefix: bool, is_compressed: bool
) -> TranscriptDiff:
    """Compare a transcript whose last question was stored when its turn started, at this index of the known messages.

    The question is stored again, after the others, if the transcript has unknown messages before it.
    """
    messages, start = turn.messages, turn.start
    fingerprints = [message.fingerprint for message in messages]
    before, prior = known[:at], fingerprints[:start]
    retried = retry_index(before, prior, known[at], is_compressed=is_compressed)
    if retried is not None:
        return TranscriptDiff(retried, tuple(messages[start:]))
    end = _end_of_overlap(before, prior)
    if (end and end < len(prior)) or (prior and not before and not unknown_prefix):
        return TranscriptDiff(at, tuple(messages[end:]))
    early, answer = list(known[at + 1 :]), fingerprints[start + 1 :]
    answered = len(answer) if early[: len(answer)] == answer else _end_of_overlap(early, answer)
    return TranscriptDiff(len(known), tuple(messages[start + 1 + answered :]))


def retry_index(known: Sequence[str], prior: Sequence[str], question: str, *, is_compressed: bool) -> int | None:
    """Return where a question is known that is asked again; None if it is new.

    `prior` is the transcript before the question. It ends where the question was first asked, if the answer was
    discarded. A compressed transcript begins later than the known messages.
    """
    if not is_compressed and list(known[: len(prior)]) == list(prior):
        end = len(prior)
    else:
        ends = ((_common_suffix(known[:end], prior, len(prior)), end) for end in range(1, len(known) + 1))
        length, end = max(ends, default=(0, 0))
        end = end if length else len(known)
    return end if end < len(known) and known[end] == question else None


def is_sublist(known: Sequence[str], fingerprints: Sequence[str]) -> bool:
    """Return whether the fingerprints are a contiguous part of the known ones."""
    return any(
        list(known[start : start + len(fingerprints)]) == list(fingerprints)
        for start in range(len(known) - len(fingerprints) + 1)
        if known[start : start + 1] == list(fingerprints[:1])
    )


def _end_of_overlap(known: Sequence[str], fingerprints: Sequence[str]) -> int:
    """Return the index after the longest known suffix in a transcript; 0 if there is none."""
    best = (0, 0)
    for end in range(1, len(fingerprints) + 1):
        best = max(best, (_common_suffix(known, fingerprints, end), end))
    return best[1] if best[0] else 0


def _common_suffix(known: Sequence[str], fingerprints: Sequence[str], end: int) -> int:
    """Return how many of the last known messages precede an index of a transcript."""
    count, limit = 0, min(len(known), end)
    while count < limit and known[-count - 1] == fingerprints[end - count - 1]:
        count += 1
    return count


def compare_after_undo(
    known: Sequence[str], messages: Sequence[TranscriptMessage], *, unknown_prefix: bool, completes_turn: bool
) -> TranscriptDiff | None:
    """Return the remaining and the new messages after an undo; None if the transcript does not show them.

    Known messages remain up to the end of the longest run that the transcript shares with them; of several, the one
    with which both begin.
    """
    compared = last_turn_start(messages) if completes_turn else len(messages)
    fingerprints = [message.fingerprint for message in messages[:compared]]
    if not fingerprints and messages and not unknown_prefix:
        return TranscriptDiff(0, tuple(messages))
    length, end, kept = _longest_run(known, fingerprints)
    if not unknown_prefix and list(known[:length]) == fingerprints[:length]:
        end = kept = length
    if not length:
        return None
    return TranscriptDiff(kept, tuple(messages[end:]))


def _longest_run(known: Sequence[str], fingerprints: Sequence[str]) -> tuple[int, int, int]:
    """Return the longest common run: its length, its end in the transcript and in the known list; the last if equal."""
    best, previous_row = (0, 0, 0), [0] * (len(fingerprints) + 1)
    for known_end, expected in enumerate(known, 1):
        row = [0] * (len(fingerprints) + 1)
        for end, actual in enumerate(fingerprints, 1):
            if expected == actual:
                row[end] = previous_row[end - 1] + 1
                best = max(best, (row[end], end, known_end))
        previous_row = row
    return best


# --- typed words
#
# Hermes writes user messages of its own, and puts texts into those of people: skills, attached files, notes. Its
# messages and notes begin with a label in brackets. A skill and a file become a reference: `/name`, `@file:name`.

# The whole message is by Hermes: the bracket is its heading, and the text below belongs to it.
_HEADINGS: Final = (
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]",
    "[PRIOR CONTEXT",
    "[Your active task list was preserved",
    "[Continuing toward ",
    "[ASYNC DELEGATION",
    "[IMPORTANT: Background process ",
    "[Background process ",
)
# Only the bracket is by Hermes: the words after it were typed.
_NOTES: Final = (
    "[System: ",
    "[System note: ",
    "[Note: model was just switched",
    "[Voice input ",
    "[USER INITIATED SKILLS RELOAD:",
    "[IMPORTANT: ",
)
# These have no label. They are recognised by their place in a turn; the text is for transcripts of another process.
_UNLABELLED: Final = (
    "You've reached the maximum number of tool-calling iterations allowed.",
    "You just executed tool calls but returned an empty response.",
    "Continue from the compressed conversation context above. This marker exists",
)
_SUMMARIES: Final = _HEADINGS[:3]
_REVIEW: Final = "Review the conversation above and "
_REVIEW_LIMIT: Final = "You can only call memory and skill management tools."

_SKILL: Final = re.compile(r'\[IMPORTANT: The user has invoked the "([^"\n]+)" (?:stacked )?skill( bundle)?,')
_SKILL_INSTRUCTION: Final = "The user has provided the following instruction alongside the skill invocation: "
_BUNDLE_INSTRUCTION: Final = "\nUser instruction: "
_END_OF_SKILL_INSTRUCTION: Final = "\n\n[Runtime note:"
_END_OF_BUNDLE_INSTRUCTION: Final = "\n\n[Loaded as part of the "

_ATTACHMENTS: Final = re.compile(r"(?:\A|\n\n)--- (?:Context Warnings|Attached Context) ---\n")
_REFERENCE: Final = re.compile(
    r"^(?:[📄📁🌐] (@\S.*?) \(\d+ tokens\)$|🧾 (git .+?) \(\d+ tokens\)$|📎 (@\S.*?) \(|- (@\w+:\S+): )", re.MULTILINE
)


def typed_words(text: str) -> str:
    """Return the words that a person typed, with references for what Hermes put in; empty if it wrote the message."""
    if text.startswith(_UNLABELLED):
        return ""
    while text.startswith("["):
        if skill := _SKILL.match(text):
            return _skill_words(text, skill)
        if text.startswith(_HEADINGS):
            return ""
        if not text.startswith(_NOTES):
            break
        text = text[_end_of_bracket(text) :].lstrip()
    return _without_attachments(text)


def is_summary(text: str) -> bool:
    """Return whether a message begins with Hermes' summary of earlier turns, which are gone from the transcript."""
    return text.startswith(_SUMMARIES)


def is_review(text: str) -> bool:
    """Return whether Hermes asks a copy of the agent for a review, which newer versions do not hand to a memory."""
    return text.startswith(_REVIEW) and _REVIEW_LIMIT in text


def is_marked(message: Mapping[object, object]) -> bool:
    """Return whether Hermes has marked a message as its own, by a key such as `_empty_recovery_synthetic`."""
    return any(value and str(key).startswith("_") and str(key).endswith("_synthetic") for key, value in message.items())


def _skill_words(text: str, skill: re.Match[str]) -> str:
    name, bundle = skill[1], bool(skill[2])
    # An instruction comes after the text of a skill, which may quote the marker, but before the texts of a bundle.
    marker = _BUNDLE_INSTRUCTION if bundle else _SKILL_INSTRUCTION
    end = _END_OF_BUNDLE_INSTRUCTION if bundle else _END_OF_SKILL_INSTRUCTION
    before, found, after = text.partition(marker) if bundle else text.rpartition(marker)
    instruction = after.partition(end)[0].strip() if found and before else ""
    command = " ".join("/" + re.sub(r"[\s_]+", "-", word.strip().lstrip("/")).lower() for word in name.split(","))
    return f"{command} {instruction}".strip()


def _end_of_bracket(text: str) -> int:
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if not depth:
            return index + 1
    return len(text)


def _without_attachments(text: str) -> str:
    """Replace the texts of attached files by their references."""
    start = _ATTACHMENTS.search(text)
    if start is None:
        return text
    found = _REFERENCE.finditer(text, start.start())
    references = dict.fromkeys(next(filter(None, reference.groups())) for reference in found)
    return "\n".join(part for part in (text[: start.start()].strip(), " ".join(references)) if part)
