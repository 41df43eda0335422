"""Finds secrets that are said in prose: "my password is hunter2", and the same in twelve languages.

A name of a secret is looked for first. Then the words around it are read one by one, at most a dozen: after a joint
("is", "lautet", "是") or right beside the name, a value may stand. A value is a secret if it looks like one: it has
digits among letters, or signs. A plain word is one only if it ends its clause ("my password is swordfish.") and is no
word that says what a password is like ("required"). The words are in `commonbook.text.secrets.secret_words`.

Each name costs a bounded number of steps, so the time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from commonbook.text.secrets.secret_words import (
    COMPOUNDS,
    LANGUAGES,
    NAME_PARTS,
    NO_SECRETS,
    PREDICATE_ENDINGS,
    PREPOSITIONS,
    TECHNICAL,
    UNITS,
    Language,
)

Span: TypeAlias = tuple[int, int]

_WINDOW_CHARS: Final = 160
_BEFORE_CHARS: Final = 80
_MAX_WORDS: Final = 12
_MAX_UNJOINED_WORDS: Final = 4
_MAX_WORDS_BEFORE: Final = 5
_MAX_VALUE_CHARS: Final = 128
_MAX_LEAD_CHARS: Final = 24
_DIGIT: Final = re.compile(r"\d")
_REVERSE: Final = frozenset({"as", "como", "comme", "als", "как"})
_VERB_LAST: Final = frozenset({"hi", "ur", "bn"})
_WITHOUT_JOINT: Final = frozenset({"ru", "ar", "bn", "hi", "ur"})
"""Languages in which a value may follow without a word for *is*."""
_SENTENCE_END: Final = ".!;。！।۔"
"""A question may be followed by its answer: "My password? It's hunter2."."""
_ONLY_LINKED: Final = frozenset({"pass"})
_NEVER_PLAIN: Final = frozenset({"pass", "clave", "claves", "暗号", "口令"})
"""Names that also mean other things: a plain word after them is no secret."""
_EDGES: Final = ".,;:!?)]}>\"'”’»」』。！？，、।۔؟،"
_OPENING: Final = {
    '"': '"',
    "'": "'",
    "`": "`",
    "“": "”",
    "‘": "’",
    "«": "»",
    "„": "“",
    "「": "」",
    "『": "』",
    "(": ")",
}
_REFERENCE: Final = re.compile(
    r"^(?:\$|%[({]|\{|<|\*{3}|\.{2,}|~/|\.{0,2}/\w|https?:|www\.|\[|-)|[x*•.…_-]{3,}$|^[\w.+-]+@[\w-]+\.[\w.]+$"
    r"|^[\w-]+(?:/[\w.-]+)+$|^[A-Z]+(?:_[A-Z0-9]+)+$|^[a-z]+(?:_[a-z]+)+$|^[\w-]+\.(?:md|py|txt|json|ya?ml|env|toml|com|org|net)$"
    r"|^[A-Za-z_][\w.]*\(|[=(\[{]|^[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)+$"
)
_NUMBER: Final = re.compile(r"\d[\d]*(?:-\d+)*[#*]?")
_LINK: Final = re.compile(r"\s{0,2}(?:\*\*|__|[\"'”’)\]»])?\s{0,2}(?:[:=：＝]|=>|->|→|—|–|-(?=\s))(?:\*\*|__)?\s{0,3}")
_WORD: Final = re.compile(r"\S+")
_TECHNICAL: Final = re.compile(TECHNICAL)
_AND: Final = re.compile(r"[\"'”’»]?(?:,? (?:and|or|y|o|et|ou|e|und|oder|и|или) |, )")
_PHRASE: Final = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+){2,23}(?=[.,;!?\"'”]|$)")
_HYPHENATED: Final = re.compile(r"[a-z]+(?:-[a-z]+){2,}$")
_MIN_HYPHENATED_CHARS: Final = 15
_MAX_COMMON_WORDS: Final = 0.25
_WORDS_WITH_NUMBER: Final = re.compile(r"(?=[^\n]{0,60}\d)[\w$!#]+(?: [\w$!#]+){2,5}(?=[.!]?\s*(?:\n|$))")
_GLUED: Final = re.compile(r"([^\x21-\x7e。！？；\n]{0,14})([:=]?\s?)([\"'`(]?)([\x21-\x7e]{3,64})")
_GLUED_QUOTE: Final = re.compile(
    r"[^\x21-\x7e。！？；\n]{0,8}?(?:是|为|為|は|：|:|成)\s?[「『“\"]([^」』”\"\n]{2,40})[」』”\"]"
)
_GLUED_BEFORE: Final = re.compile(
    r"(?<![\x21-\x7e])([\x21-\x7e]{6,64})\s?(?:就?是|作为|作為|当|當|が|を)(?:我们?|你们?|您|的|新|旧|网站|登录|服务器|この|私の|新しい){0,4}$"
)
_COUNTED: Final = re.compile(r"\s?[位个個文桁字年月日号號回次天小分秒円元人件%到至〜~-]")


class _Level(IntEnum):
    """How closely a value is joined to the name: right beside it, by a word such as *to*, or by one such as *is*."""

    ADJACENT = 1
    WEAK = 2
    JOINED = 3


class _Name(NamedTuple):
    """A name of a secret in a text: its language, its kind (`p`assword, `c`ode or `k`ey), and where it stands."""

    language: str
    kind: str
    start: int
    end: int
    word: str


def spoken_spans(text: str) -> list[Span]:
    """Return where secrets are that prose tells, in order and without overlaps."""
    # Only this letter becomes two when it is lower-cased, which would shift all positions.
    lowered = text.replace("\u0130", "I").lower()
    spans: list[Span] = []
    for name in _names(lowered):
        spans += _values_of(text, name)
    return _without_overlaps(spans)


def _without_overlaps(spans: Iterable[Span]) -> list[Span]:
    kept: list[Span] = []
    for start, end in sorted(spans):
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


# --- names


_ASCII_NAME_PARTS: Final = {part: sources for part, sources in NAME_PARTS.items() if part.isascii()}


@cache
def _patterns(language: str, kind: str) -> re.Pattern[str]:
    known = LANGUAGES[language]
    return re.compile({"p": known.passwords, "c": known.codes, "k": known.keys}[kind])


def _names(lowered: str) -> Iterator[_Name]:
    """Yield the names of secrets in a text: those around a part that every such name contains."""
    for part, sources in (_ASCII_NAME_PARTS if lowered.isascii() else NAME_PARTS).items():
        at = lowered.find(part)
        while at >= 0:
            end = at + len(part)
            # Codes and keys have digits: without one nearby, nothing more is looked at.
            near = _DIGIT.search(lowered, max(0, at - _BEFORE_CHARS), end + _WINDOW_CHARS) is not None
            names = [_name_around(lowered, at, end, *source) for source in sources if near or source.kind == "p"]
            longest = max((name for name in names if name), key=lambda name: name.end - name.start, default=None)
            if longest:
                yield longest
            at = lowered.find(part, max(end, longest.end if longest else 0))


def _name_around(lowered: str, at: int, end: int, language: str, kind: str, lead: bool) -> _Name | None:  # noqa: FBT001 - given as a source
    """Return the name of a secret that covers a part of a text, if there is one."""
    pattern = _patterns(language, kind)
    match = pattern.match(lowered, at)
    if match and _stands_alone(lowered, *match.span(), language):
        return _Name(language, kind, *match.span(), match[0])
    for match in pattern.finditer(lowered, max(0, at - _MAX_LEAD_CHARS), end + _MAX_LEAD_CHARS) if lead else ():
        if match.start() > at:
            return None
        if match.end() >= end and _stands_alone(lowered, *match.span(), language):
            return _Name(language, kind, *match.span(), match[0])
    return None


def _stands_alone(lowered: str, start: int, end: int, language: str) -> bool:
    """Tell whether a name is a word of its own; names in other scripts may have other letters around them."""
    if not LANGUAGES[language].spaced or language in {"ar", "hi", "bn", "ur"}:
        return True
    before, after = lowered[start - 1 : start], lowered[end : end + 1]
    if after.isalnum() or after in {"_", "("}:
        return False
    if language == "de":
        return lowered.endswith(("wort", "wörter"), start, end) or not before.isalnum()
    return not (before.isalnum() or before in {"_", "-"})


# --- values


def _values_of(text: str, name: _Name) -> list[Span]:
    language = LANGUAGES[name.language]
    if not language.spaced:
        return _glued_values(text, name, language)
    window = text[name.end : name.end + _WINDOW_CHARS].partition("\n")[0]
    words = list(_first(_WORD.finditer(window), _MAX_WORDS + 2))
    if words and words[0].start() and _plain(words[0][0]) in COMPOUNDS:
        return []
    if name.word in _ONLY_LINKED and not _LINK.match(window):
        return []
    found = _value_after(text, name, window, words) or _value_before(text, name)
    return [*found, *_further_values(text, name, found)]


def _first(matches: Iterable[re.Match[str]], count: int) -> Iterator[re.Match[str]]:
    for at, match in enumerate(matches):
        if at == count:
            return
        yield match


def _plain(word: str) -> str:
    """Return a word in lower case without the signs around it."""
    return word.lower().strip(_EDGES + "([{<«„“‘*_`").replace("’", "'")


@cache
def _words_of(language: str) -> dict[str, frozenset[str]]:
    known = LANGUAGES[language]
    return {
        "joints": frozenset(known.joints.split()),
        "weak": frozenset(known.weak_joints.split()),
        "fillers": frozenset(known.fillers.split()),
        "closers": frozenset(known.closers.split()),
        "owners": frozenset(known.owners.split()),
    }


def _value_after(text: str, name: _Name, window: str, words: list[re.Match[str]]) -> list[Span]:
    link = _LINK.match(window)
    if link and (span := _judged(text, name, name.end + link.end(), _Level.JOINED)):
        return [span]
    known = _words_of(name.language)
    level: _Level | None = _Level.ADJACENT
    other_field = False
    if words and not words[0].start() and words[0][0] not in {"'s", "’s", ","}:
        # Something sticks to the name, such as the quote around it.
        level = None
    for at, word in enumerate(words[:_MAX_WORDS]):
        if level is not None:
            closed = at + 1 < len(words) and _plain(words[at + 1][0]) in known["closers"]
            span = _judged(text, name, name.end + word.start(), _Level.JOINED if closed else level)
            if span:
                return [span]
        if at <= _MAX_UNJOINED_WORDS and name.language in _WITHOUT_JOINT and name.kind != "k":
            span = _unjoined(text, name, words[at - 1][0] if at else "", name.end + word.start())
            if span:
                return [span]
        raw, plain = word[0].lower().replace("’", "'"), _plain(word[0])
        level = _next_level(raw, plain, level, known)
        if raw[-1] in ":=：" and level is None and not other_field:
            level = _Level.JOINED
        other_field = other_field or raw[-1] in ",/|" or raw[0] in "\"'`"
        if (raw[-1] in _SENTENCE_END and level is None) or "[masked:" in raw:
            break
    return []


def _unjoined(text: str, name: _Name, before: str, at: int) -> Span | None:
    """Return a value in Latin letters or digits that ends its clause some words after the name."""
    if _plain(before) in PREPOSITIONS:
        return None
    span = _judged(text, name, at, _Level.JOINED if name.kind == "c" else _Level.WEAK)
    return span if span and _ends_clause(text, span[1]) else None


def _next_level(raw: str, plain: str, level: _Level | None, known: dict[str, frozenset[str]]) -> _Level | None:
    """Return how closely the next word is joined to the name."""
    if plain in known["joints"] or raw in known["joints"] or raw in {"->", "=>", "→"}:
        return _Level.JOINED
    if raw == ",":
        return level
    if level in {_Level.JOINED, _Level.WEAK} and plain in known["fillers"]:
        return level
    if plain in known["weak"]:
        return _Level.WEAK
    if level == _Level.ADJACENT and plain in known["fillers"]:
        return level
    return None


def _value_before(text: str, name: _Name) -> list[Span]:
    """Return a value that stands before its name: "hunter2 is my password"."""
    start = max(0, name.start - _BEFORE_CHARS)
    before = re.split(r"\n|[.!?।۔]\s", text[start : name.start])[-1]
    offset = name.start - len(before)
    known = _words_of(name.language)
    joined = False
    words = list(_WORD.finditer(before))
    for word in words[: -_MAX_WORDS_BEFORE - 1 : -1]:
        plain, raw = _plain(word[0]), word[0].lower()
        if plain in known["joints"] or raw in known["joints"] or plain in _REVERSE:
            joined = True
        elif plain not in known["owners"]:
            joined = joined or (name.language in _VERB_LAST and word is not words[-1])
            span = _judged(text, name, offset + word.start(), _Level.ADJACENT) if joined else None
            return [span] if span and span[1] <= name.start else []
    return []


def _further_values(text: str, name: _Name, found: list[Span]) -> list[Span]:
    """Return a second value that is joined to the first: "the passwords are hunter2 and letmein9"."""
    if not found:
        return []
    more = _AND.match(text, found[0][1])
    span = _judged(text, name, more.end(), _Level.ADJACENT) if more else None
    return [span] if span else []


# --- judging a value


def _judged(text: str, name: _Name, at: int, level: _Level) -> Span | None:
    """Return where the secret is that begins here, or None if what stands here is none."""
    if span := _quoted(text, name, at, level):
        return span
    if span := _phrase(text, name, at, level):
        return span
    word = _WORD.match(text, at, at + _MAX_VALUE_CHARS)
    if word is None or (level < _Level.JOINED and word[0].isalpha() and word[0] == word[0].lower()):
        return None
    token = word[0]
    lead = len(token) - len(token.lstrip("\"'`“‘«„(*_"))
    core = token[lead:].rstrip("*`").rstrip(".,;:)]}\"'”’»。।۔،")
    if core.rstrip("!?").isalpha():
        core = core.rstrip("!?")
    core = core.removesuffix("**").removesuffix("`")
    start = at + lead
    following = _WORD.match(text[word.end() : word.end() + 40].lstrip(" "))
    ends_clause = _ends_clause(text, start + len(core))
    if _is_secret(core, name, level, ends_clause=ends_clause, following=_plain(following[0]) if following else ""):
        return start, start + len(core)
    return None


def _phrase(text: str, name: _Name, at: int, level: _Level) -> Span | None:
    """Return a secret of several words: of a passphrase, or after a colon with a number among the words."""
    if level < _Level.JOINED or name.kind != "p":
        return None
    phrase = _PHRASE.match(text, at) if "phrase" in name.word else None
    if phrase and _share_of_common_words(phrase[0]) <= _MAX_COMMON_WORDS:
        return phrase.span()
    line = _WORDS_WITH_NUMBER.match(text, at) if text[at - 2 : at - 1] == ":" else None
    if line and not set(map(_plain, line[0].split())) & (NO_SECRETS | UNITS):
        return line.span()
    return None


def _share_of_common_words(phrase: str) -> float:
    words = re.split("[ -]", phrase.lower())
    return sum(word in NO_SECRETS for word in words) / len(words)


def _quoted(text: str, name: _Name, at: int, level: _Level) -> Span | None:
    closing = _OPENING.get(text[at : at + 1])
    if closing is None or closing == ")" or (level < _Level.JOINED and name.kind != "p"):
        return None
    end = text.find(closing, at + 1, at + 1 + _MAX_VALUE_CHARS)
    content = text[at + 1 : end] if end > 0 else ""
    if closing == "»":
        # French puts blanks inside.
        at, end = at + len(content) - len(content.lstrip()), end - len(content) + len(content.rstrip())
        content = content.strip()
    words = content.split()
    if not 3 <= len(content) <= 64 or content != content.strip() or "\n" in content or len(words) > 8:
        return None
    if (
        2 * sum(_plain(word) in NO_SECRETS for word in words) > len(words)
        or _REFERENCE.search(content)
        or _TECHNICAL.match(content)
    ):
        return None
    if (name.kind == "k" or name.word == "pass") and not _is_mixed(content):
        return None
    if level < _Level.JOINED and len(words) > 1:
        return None
    return at + 1, end


def _ends_clause(text: str, end: int) -> bool:
    rest = text[end : end + 24]
    return (
        re.match(
            r"[\"'”’»`*]*(?:\s*$|\s*\n|[.,;!?)。।۔،]|\s(?:and|but|so|for|on|y|pero|et|mais|e|mas|und|aber|и|но)\s)",
            rest,
        )
        is not None
    )


def _is_secret(core: str, name: _Name, level: _Level, *, ends_clause: bool, following: str = "") -> bool:
    if not core or core.lower() in NO_SECRETS or _REFERENCE.search(core):
        return False
    number = _NUMBER.fullmatch(core)
    if number:
        return _is_secret_number(core.rstrip("#*"), name, level) and following not in UNITS
    if name.kind == "c" and level < _Level.JOINED:
        return False
    if _TECHNICAL.match(core):
        return False
    if name.kind == "p" and len(core) >= _MIN_HYPHENATED_CHARS and _HYPHENATED.match(core):
        return _share_of_common_words(core) <= _MAX_COMMON_WORDS
    if _is_mixed(core):
        shortest = 7 if name.kind == "k" else 6 if level == _Level.ADJACENT else 4
        return len(core) >= shortest and (name.kind != "k" or _has_letter_and_digit(core))
    if name.kind != "p" or name.word in _NEVER_PLAIN or level < _Level.JOINED or not core.isalpha() or len(core) < 4:
        return False
    return ends_clause and _is_unlike_a_predicate(core, name.language)


def _is_secret_number(digits: str, name: _Name, level: _Level) -> bool:
    count = sum(char.isdecimal() for char in digits)
    if re.fullmatch(r"\d{4}-\d\d?-\d\d?|\d{1,3}-\d{1,3}", digits) and name.kind != "c":
        return False
    if name.kind == "k":
        return False
    if name.kind == "p":
        return count >= (4 if level == _Level.JOINED else 6)
    if name.word.startswith(
        ("cv", "security", "c\u00f3digo de seg", "codigo de seg", "prüf", "karten", "安全", "セキュ")
    ):
        return 3 <= count <= 8
    if level == _Level.ADJACENT and name.word == "pin":
        return 4 <= count <= 8 and digits.isdecimal()
    return 4 <= count <= 10


def _is_mixed(core: str) -> bool:
    """Tell whether a value has digits among letters, signs inside, or capitals inside, as words do not."""
    if _has_letter_and_digit(core):
        return True
    if re.search(r"[^\W\d_]", core) and re.search(r"\w[!@#$%^&*?+~]\w|\w[@#$%^&*]+!?$", core):
        return True
    return re.search(r"[a-z][A-Z]", core) is not None and core.isascii() and core.isalnum()


def _has_letter_and_digit(core: str) -> bool:
    return any(map(str.isalpha, core)) and any(map(str.isdecimal, core))


def _is_unlike_a_predicate(core: str, language: str) -> bool:
    """Tell whether a plain word can be a secret, since it does not say what a secret is like."""
    if language == "latin":
        return all(_is_unlike_a_predicate(core, one) for one in PREDICATE_ENDINGS if one != "de")
    if language not in PREDICATE_ENDINGS:
        # In a text of another script a word in Latin letters stands out.
        return core.isascii()
    if language == "de" and core[0].isupper():
        return True
    return not re.search(PREDICATE_ENDINGS[language], core.lower())


# --- languages without blanks


def _glued_values(text: str, name: _Name, language: Language) -> list[Span]:
    window = text[name.end : name.end + _WINDOW_CHARS]
    if (quote := _GLUED_QUOTE.match(window)) and not _REFERENCE.search(quote[1]):
        return [(name.end + quote.start(1), name.end + quote.end(1))]
    match = _GLUED.match(window)
    if match:
        between = match[1].strip()
        joined = bool(match[2].strip()) or between.rstrip("、，").endswith(tuple(language.joints.split()))
        if joined or not between:
            core = match[4].rstrip(".,;:)]}\"'`")
            after = window[match.start(4) + len(core) :]
            level = _Level.JOINED if joined else _Level.ADJACENT
            counted = _NUMBER.fullmatch(core) is not None and _COUNTED.match(after) is not None
            ends = not after or after[0] in "。，、！？；」』”\"'\n ,.!でだ" or after.startswith("です")
            if not counted and _is_secret(core, name, level, ends_clause=ends):
                return [(name.end + match.start(4), name.end + match.start(4) + len(core))]
    before = _GLUED_BEFORE.search(text[max(0, name.start - _BEFORE_CHARS) : name.start])
    if before and _is_secret(before[1], name, _Level.ADJACENT, ends_clause=False):
        offset = max(0, name.start - _BEFORE_CHARS)
        return [(offset + before.start(1), offset + before.end(1))]
    return []
