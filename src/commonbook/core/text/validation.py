"""Validate the arguments of callers: texts, titles, tags, kinds, relations, session ids, messages."""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar, cast

from commonbook.errors import BadInput, BadText, CommonbookError, TooLarge
from commonbook.values.ids import UUID_PATTERN
from commonbook.values.memory import (
    KINDS,
    MAX_KEY,
    MAX_METADATA,
    MAX_METADATA_CHARS,
    MAX_NUMBER,
    MAX_RELATION,
    MAX_TAG,
    MAX_TAGS,
    MAX_TEXT_BYTES,
    MAX_TITLE,
    MENTIONS,
    NO_METADATA,
    RELATIONS,
    WOULD_SUPERSEDE,
    Kind,
    Metadata,
    MetadataValue,
    Scalar,
)
from commonbook.values.session import MAX_MESSAGE_BYTES

MAX_PAGE: Final = 1000
MAX_SECONDS: Final = 86_400
"""The largest number of items on a page of a listing."""

_UUID: Final = re.compile(rf"{UUID_PATTERN}\Z")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# Control characters, marks that reorder the rest of a line, and code points that are no characters. Joiners, hyphens
# and marks of direction are ordinary text: Persian, Indic and Hebrew writing and joined emoji need them.
_NOT_IN_A_LINE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
_TAG: Final = re.compile(r"[^,\[\]{}\x00-\x1f\x7f]+\Z")


_Text = TypeVar("_Text", bound=str)


@contextmanager
def error_item(at: int) -> Iterator[None]:
    """Set the index of the failing item on an error raised inside, for operations on several items."""
    try:
        yield
    except CommonbookError as error:
        error.item = at
        raise


def validate_text(value: str) -> str:
    """Return the text unchanged, as it will be stored, or refuse it."""
    _require_unicode(value, "text")
    if "\0" in value:
        raise BadText("the text has a NUL byte", fix="take the NUL bytes out; they are no text")
    size = len(value.encode())
    if size > MAX_TEXT_BYTES:
        raise TooLarge(
            f"the text has {size:,} bytes, at most {MAX_TEXT_BYTES:,} are allowed",
            fix="split it into several memories, or keep it as a file of its own and remember where it is",
        )
    return value


def validate_title(value: str) -> str:
    """Return a title: one line, not too long."""
    _require_unicode(value, "title")
    if "\0" in value:
        raise BadText("the title has a NUL byte", fix="take the NUL bytes out; they are no text")
    line = " ".join(value.split())
    if len(line) > MAX_TITLE:
        raise TooLarge(f"the title has {len(line)} characters, at most {MAX_TITLE} are allowed", fix="shorten it")
    if _CONTROL.search(line):
        raise BadText("the title has control characters", fix="take them out")
    return line


def validate_tags(values: Iterable[str]) -> tuple[str, ...]:
    """Return tags normalised as in a file: without leading '#', with single blanks, each once, in order."""
    cleaned = [" ".join(value.split()).lstrip("# ") for value in validate_list(values, "tags")]
    for tag in cleaned:
        _require_unicode(tag, "tag")
        if len(tag) > MAX_TAG:
            raise TooLarge(f"a tag has {len(tag)} characters, at most {MAX_TAG} are allowed", fix="shorten it")
        if not _TAG.match(tag):
            raise BadInput(f"{tag!r} is not a tag", fix="a tag is a short text without commas or brackets")
    unique = tuple(dict.fromkeys(cleaned))
    if len(unique) > MAX_TAGS:
        raise TooLarge(f"{len(unique)} tags, at most {MAX_TAGS} are allowed", fix="keep those that you will ask for")
    return unique


def validate_list(values: Iterable[_Text], what: str) -> tuple[_Text, ...]:
    """Return several texts; refuse a single string, whose letters would pass for several texts."""
    if isinstance(values, str):
        raise BadInput(f"the {what} are one text, not a list of texts", fix=f"put it into a list: [{values!r}]")
    return tuple(values)


def validate_kind(value: str) -> Kind:
    """Return a known kind that a caller may write; only the system writes notices."""
    if value not in KINDS or value == "notice":
        choices = ", ".join(kind for kind in KINDS if kind != "notice")
        raise BadInput(f"{value!r} is not a kind of memory", fix=f"use one of {choices}")
    return cast("Kind", value)


def validate_relation(value: object) -> str:
    """Return a relation in composed Unicode (NFC): a known one, or a word of the caller's own."""
    relation = parse_relation(value) if isinstance(value, str) else None
    if relation is None:
        raise BadInput(
            f"{value!r} is not a relation",
            fix=f"use {', '.join(RELATIONS)}, or a word of your own of at most {MAX_RELATION} small letters of any"
            " script, digits, - and _",
        )
    if relation == MENTIONS:
        raise BadInput(
            "links of the relation 'mentions' stand in the text of a memory", fix="edit the text: [[title of a note]]"
        )
    return relation


def parse_relation(value: str) -> str | None:
    """Return a relation in composed Unicode (NFC); None if the text is none.

    It is one word: a letter of any script, then letters with their marks, digits, `-` and `_`, none in upper case.
    """
    relation = unicodedata.normalize("NFC", value)
    is_word = all(char in "-_" or unicodedata.category(char)[0] in "LM" or char.isdecimal() for char in relation)
    if not is_word or not relation[:1].isalpha() or len(relation) > MAX_RELATION or relation != relation.lower():
        return None
    return relation


def validate_importance(value: float | None) -> float | None:
    """Return an importance between 0 and 1."""
    if value is not None and not 0.0 <= value <= 1.0:
        raise BadInput(f"importance {value} is out of range", fix="give a number from 0 to 1")
    return None if value is None else float(value)


def validate_seconds(value: float, name: str) -> float:
    """Return a duration of at most a day."""
    if not 0.0 <= value <= MAX_SECONDS:
        raise BadInput(f"{name} {value} is out of range", fix=f"give a number of seconds from 0 to {MAX_SECONDS:,}")
    return float(value)


def validate_key(value: str) -> str:
    """Return an idempotency key."""
    _require_unicode(value, "key")
    if not value or len(value) > MAX_KEY or _CONTROL.search(value):
        raise BadInput("the key must have 1 to 200 printable characters", fix="use a UUID, or an id of your own")
    return value


def require_page_limit(value: int, *, has_next: bool = True) -> None:
    """Refuse a page size below 1 or too large; without `has_next`, the advice does not mention paging."""
    if not 1 <= value <= MAX_PAGE:
        advice = f"ask for 1 to {MAX_PAGE} at a time"
        raise BadInput(f"limit {value} is out of range", fix=f"{advice}, and page on" if has_next else advice)


def validate_new_relation(value: str) -> str:
    """Return a relation that a caller may link two memories by; the book alone makes links of copies and proposals."""
    relation = validate_relation(value)
    if relation == "shared_from":
        raise BadInput("only sharing links a copy to its source", fix="make a copy with `share` or `pull`")
    if relation == WOULD_SUPERSEDE:
        # It takes effect when a file is moved, by the rights of the person who moves it.
        raise BadInput(
            f"only the book writes the relation {relation!r}, for what is proposed",
            fix="use `replaces`, or the relation 'supersedes'",
        )
    return relation


def validate_memory_id(value: str) -> str:
    """Return an id in canonical form, or refuse a value that is none."""
    lowered = value.strip().lower()
    if not is_memory_id(lowered):
        raise BadInput(f"{value!r} is not the id of a memory", fix="`commonbook list` shows the ids")
    return lowered


def is_memory_id(value: str) -> bool:
    """Return whether this is an id in canonical form."""
    return _UUID.match(value) is not None


def is_unicode(value: str) -> bool:
    """Return whether this is well-formed Unicode, without lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _require_unicode(value: str, what: str) -> None:
    if not is_unicode(value):
        raise BadText(f"the {what} has a lone surrogate, which no file can hold", fix="send well-formed Unicode text")


_SESSION: Final = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}")
# Joiners (ZWNJ, ZWJ) and soft hyphens are ordinary text: Persian and Indic writing and joined emoji need them.
_HIDDEN_OR_REORDERING: Final = re.compile(
    r"[\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
_ROLE: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_AUTHOR: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}")


def validate_session_id(value: object) -> str:
    """Return a session's id, or refuse a value that is none."""
    if not isinstance(value, str) or not _SESSION.fullmatch(value):
        raise BadInput(
            "a session's id is empty, too long, or has blanks in it", fix="use 1 to 200 characters without blanks"
        )
    return value


def validate_new_session_id(value: str) -> str:
    """Return the id of a session that is about to be made, or refuse one that shows as another or hides a part.

    Sessions that have such an id from before keep it.
    """
    if _HIDDEN_OR_REORDERING.search(value):
        raise BadInput(
            "a session's id has characters that are not shown, or that reorder others",
            fix="leave control and format characters out",
        )
    return value


def require_message_list(messages: object) -> None:
    """Refuse a single message and any value that is not a list: a string would become one message for each letter."""
    is_single = isinstance(messages, str | bytes | Mapping) or hasattr(messages, "_fields")
    # An object of a client library is one message, although it can be iterated.
    is_single = is_single or hasattr(messages, "model_dump")
    if is_single or not isinstance(messages, Iterable):
        raise BadInput("the messages are no list", fix="put them into a list, also if there is only one")


def validate_message(text: object, *, role: object, author: object, client_id: object) -> None:
    """Refuse a message that a session cannot store."""
    if not isinstance(text, str) or not isinstance(role, str):
        raise BadText("a message's text or role is not a text", fix="send strings")
    if not isinstance(author, str | None) or not isinstance(client_id, str | None):
        raise BadText("a message's author or client id is not a text", fix="send strings, or nothing")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = -1
    if size < 0 or "\0" in text:
        raise BadText(
            "a message has NUL bytes or half characters, which no file can hold", fix="send valid UTF-8 without NUL"
        )
    if size > MAX_MESSAGE_BYTES:
        raise TooLarge("a message is larger than 1 MiB", fix="send it in parts, or store it as a memory")
    if not _ROLE.fullmatch(role):
        raise BadInput(f"{role!r} is not a role", fix="use user, assistant, system, tool or another plain word")
    if author is not None:
        validate_author(author)


def validate_masked(count: object) -> int:
    """Return the number of secrets that a sender has masked in a message, or refuse what is none."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_MESSAGE_BYTES:
        raise BadInput("the number of masked secrets is no number", fix="leave `masked` out")
    return count


def validate_author(value: str) -> str:
    """Return the name of an author, or refuse a text that is none."""
    if not _AUTHOR.fullmatch(value):
        raise BadInput("an author has characters that no name has, or too many", fix="give a name on one line")
    return value


def validate_kinds(kinds: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds of a query, or refuse an unknown one."""
    for kind in kinds:
        if kind not in KINDS:
            raise BadInput(f"{kind!r} is not a kind of memory", fix=f"use one of {', '.join(KINDS)}")
    return cast("tuple[Kind, ...]", tuple(kinds))


_MAX_REASON_CHARS: Final = 1000


def validate_line(value: str, what: str) -> str:
    """Return a reason or note on one line, or refuse it."""
    line = " ".join(validate_text(value).split())
    if len(line) > _MAX_REASON_CHARS:
        raise BadInput(f"the {what} has {len(line)} characters", fix=f"say it in {_MAX_REASON_CHARS}")
    if not is_plain_line(line):
        raise BadInput(f"the {what} has control characters", fix="take them out")
    return line


def is_plain_line(value: str) -> bool:
    """Return whether a text is one line without control characters, and without marks that reorder what follows."""
    return _NOT_IN_A_LINE.search(value) is None


_METADATA_NAME: Final = re.compile(r'[^\W\d](?:[^=":]{0,62}[^\s=":])?')


def validate_metadata(value: object) -> Metadata:
    """Return metadata, or refuse a value that is not a small mapping to scalars and lists of them."""
    if value is NO_METADATA:
        return NO_METADATA
    if not isinstance(value, Mapping):
        raise BadInput("the metadata is no mapping", fix='give a mapping of names to values: {"ticket": "A-12"}')
    if len(value) > MAX_METADATA:
        raise TooLarge(f"{len(value)} fields of metadata, at most {MAX_METADATA} are allowed", fix="leave some out")
    if not value:
        return NO_METADATA
    return Metadata({_metadata_name(name): _metadata_value(name, item) for name, item in value.items()})


def _metadata_name(name: object) -> str:
    if not isinstance(name, str) or not _METADATA_NAME.fullmatch(name) or not is_plain_line(name):
        raise BadInput(
            f"{name!r} is no name of metadata",
            fix='a name begins with a letter or _, and has at most 64 characters, none of them = or : or "',
        )
    return name


def _metadata_value(name: str, value: object) -> MetadataValue:
    if isinstance(value, list | tuple):
        if not value or len(value) > MAX_METADATA or sum(map(len, map(str, value))) > MAX_METADATA_CHARS:
            raise BadInput(
                f"{name!r} is no short list",
                fix=f"give 1 to {MAX_METADATA} values, with at most {MAX_METADATA_CHARS} characters in all",
            )
        return tuple(_metadata_scalar(name, item) for item in value)
    return _metadata_scalar(name, value)


def _metadata_scalar(name: str, value: object) -> Scalar:
    if isinstance(value, str):
        if len(value) > MAX_METADATA_CHARS:
            raise TooLarge(f"{name!r} has {len(value)} characters", fix=f"at most {MAX_METADATA_CHARS} are allowed")
        if not is_plain_line(value):
            raise BadInput(f"{name!r} has characters that no line has", fix="give a text on one line")
        return value
    # Infinity and what is not a number are not below the limit either; an int may be too large for a float.
    if not isinstance(value, bool | int | float) or not abs(value) <= MAX_NUMBER:
        raise BadInput(
            f"{name!r} is no text, number or truth value", fix="give one, or a list of them; a number of at most 2^53"
        )
    return value


def format_cursor(created: str, item_id: str) -> str:
    """Return the cursor after an item of a page."""
    return base64.urlsafe_b64encode(f"{created} {item_id}".encode()).decode().rstrip("=")


def parse_cursor(cursor: str) -> tuple[str, str]:
    """Return the position in a cursor that `format_cursor` made; BadInput if it is none."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    created, _, item_id = text.partition(" ")
    if not re.fullmatch(r"[0-9T:.Z-]{27}", created) or not item_id:
        raise BadInput(f"{cursor!r} is not a cursor", fix="pass on the `next` of the page before, as it is")
    return created, item_id
