"""Mask secrets and private parts of a text before it is stored.

`mask` puts `[masked: github token]` in the place of a secret. A token is recognised by its provider's prefix. A
password or key without a prefix is recognised by the name before it (`password=`, `token:`, `--api-key`, `://user:`):
any value is masked where only a secret can stand, such as after `API_KEY=` or at the end of a line; elsewhere only a
value that looks like a secret. A variable's name, a call, a path, a type or placeholder stays. A password that prose
tells in English or German is found by `spoken_secrets`. Prose about passwords, hashes, ids and paths is left alone. All
patterns take linear time: none can fail in more than one way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeAlias

from commonbook.core.text.metadata import scalars_of
from commonbook.core.text.recall_fence import KeyedHash, unfence
from commonbook.core.text.spoken_secrets import NO_SECRETS, PREDICATE_ENDING, spoken_spans
from commonbook.errors import BadInput
from commonbook.values.memory import (
    MAX_METADATA_CHARS,
    MAX_TAG,
    MAX_TITLE,
    NO_METADATA,
    Metadata,
    MetadataValue,
    Scalar,
)


class Masked(NamedTuple):
    """A text without its secrets, and the number of secrets."""

    text: str
    count: int  # type: ignore[assignment]  # a tuple's own `count` is of no use here


def clean_for_storage(text: str, keyed_hash: KeyedHash) -> Masked:
    """Return a text as it may be stored: without recalled text that the home of this key fenced, or secrets."""
    return mask(unfence(text, keyed_hash))


def mask_title(title: str) -> Masked:
    """Mask the secrets of a title, and cut it to the length that a title may have."""
    masked = mask(title)
    return masked._replace(text=masked.text[:MAX_TITLE]) if masked.count else masked


def mask_tags(tags: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """Return tags without secrets, and the number of secrets; a tag has no brackets, so its placeholder has none."""
    masked = [_mask_tag(tag) for tag in tags]
    if not masked:
        return (), 0
    safe = (PLACEHOLDERS.sub(TAG_PLACEHOLDER, tag.text)[:MAX_TAG].strip() for tag in masked)
    return tuple(dict.fromkeys(safe)), sum(tag.count for tag in masked)


_LONG_NUMBER: Final = re.compile(r"\d{13,}")
"""An id may be a long number that happens to pass for a card's number, which is written in groups."""


def tells_secret(name: str) -> bool:
    """Return whether a name has a key or a token in it."""
    return mask(_LONG_NUMBER.sub("", name)).count > 0


def require_no_secret(name: str, what: str) -> str:
    """Return a new name that identifies something, such as a space, or refuse it without repeating it.

    It cannot be masked: the masked name would be another one.
    """
    if tells_secret(name):
        raise BadInput(
            f"the {what} has a secret in it", fix="choose another one: it would stand in file names or in the log"
        )
    return name


@lru_cache(maxsize=1024)
def _mask_tag(tag: str) -> Masked:
    """Mask a tag; the same ones come again and again."""
    return mask_title(tag)


def mask_metadata(fields: Mapping[str, MetadataValue]) -> tuple[Metadata, int]:
    """Return metadata without secrets, and the number of secrets; a name such as `password` tells of its value."""
    if not fields:
        return NO_METADATA, 0
    masked, total = dict(fields), 0
    for name, value in fields.items():
        parts = [_mask_scalar(name, each) for each in scalars_of(value)]
        if count := sum(part_count for _, part_count in parts):
            texts = [part for part, _ in parts]
            masked[name], total = texts if isinstance(value, list | tuple) else texts[0], total + count
    return Metadata(masked), total


def _mask_scalar(name: str, value: Scalar) -> tuple[Scalar, int]:
    if not isinstance(value, str):
        return value, 0
    text, count = mask(f"{name}={value}")
    if not text.startswith(f"{name}="):
        text, count = mask(value)
    return text.removeprefix(f"{name}=")[:MAX_METADATA_CHARS], count


def mask(text: str) -> Masked:
    """Replace every secret and every `<private>` part by a placeholder in brackets that names its kind."""
    total = 0
    for _ in range(_MAX_ROUNDS if text else 0):
        text, count = _mask_once(text)
        total += count
        if not count:
            break
    return Masked(text, total)


_MAX_ROUNDS: Final = 4
"""Of adjacent secrets without a separator, the second is recognised only when the first is masked."""


def _mask_once(text: str) -> Masked:
    total = 0
    for step in _STEPS:
        text, count = step(text)
        total += count
    return Masked(text, total)


PLACEHOLDERS: Final = re.compile(r"\[masked: [a-z ]{1,30}\]")
TAG_PLACEHOLDER: Final = "(masked)"


def _placeholder(kind: str) -> str:
    return f"[masked: {kind}]"


Span: TypeAlias = tuple[int, int]
_Check: TypeAlias = Callable[[str], bool]


def _replace_spans(text: str, spans: Sequence[Span], kind: str) -> Masked:
    """Replace each span by a placeholder; spans are in order and do not overlap."""
    if not spans:
        return Masked(text, 0)
    pieces, position = [], 0
    for start, end in spans:
        pieces += [text[position:start], _placeholder(kind)]
        position = end
    return Masked("".join([*pieces, text[position:]]), len(spans))


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern, cached: each is compiled on first use."""
    return re.compile(pattern)


# --- private parts


_PRIVATE: Final = r"(?i)<(/?)\s{0,8}private(?:\s[^<>]{0,100})?>"


def _mask_private(text: str) -> Masked:
    return _replace_spans(text, list(_private_spans(text)) if "<" in text else [], "private")


def _private_spans(text: str) -> Iterator[Span]:
    depth = start = 0
    for tag in compiled(_PRIVATE).finditer(text):
        # A tag between backticks is mentioned, not used.
        if text[tag.start() - 1 : tag.start()] == "`" == text[tag.end() : tag.end() + 1]:
            continue
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield start, tag.end()
    if depth:
        yield start, len(text)


# --- private keys


_PEM: Final = r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_PEM_LINE: Final = (
    r"(?:\s|\\[nrt]|[>\"'])*(?:[A-Za-z0-9+/=]{30,}|[A-Za-z0-9+/=]*\Z|(?:Proc-Type|DEK-Info|Version|Comment): [^\n]*)"
)


def _mask_private_keys(text: str) -> Masked:
    return _replace_spans(text, list(_pem_spans(text)), "private key")


def _pem_spans(text: str) -> Iterator[Span]:
    """Yield the blocks from BEGIN to END; of a block that is cut off, the lines of its key that are present."""
    begin: re.Match[str] | None = None
    for line in compiled(_PEM).finditer(text) if "PRIVATE KEY" in text else ():
        if line[1] == "END" and begin:
            yield begin.start(), line.end()
            begin = None
        elif line[1] == "BEGIN":
            if begin and (end := _pem_body_end(text, begin.end(), line.start())):
                yield begin.start(), end
            begin = line
    if begin and (end := _pem_body_end(text, begin.end(), len(text))):
        yield begin.start(), end


def _pem_body_end(text: str, start: int, limit: int) -> int | None:
    end = start
    while end < limit and (line := compiled(_PEM_LINE).match(text, end, limit)) and line.end() > end:
        end = line.end()
    return end if end > start else None


# --- tokens with a known prefix


def _accept(_value: str) -> bool:
    return True


def _is_mixed(value: str) -> bool:
    """Return whether a value has letters with digits, or letters of both cases, as words seldom do."""
    return _has(r"[A-Za-z]", value) and (_has(r"\d", value) or (value != value.lower() and value != value.upper()))


def _is_key(value: str) -> bool:
    """Return whether a run of letters and digits is long and mixed, or too long for a word."""
    runs = compiled(r"[A-Za-z0-9]{16,}").findall(value)
    return any(len(run) >= 32 or _is_mixed(run) for run in runs)


def _is_aws_secret(value: str) -> bool:
    return all(_has(kind, value) for kind in ("[a-z]", "[A-Z]", r"\d"))


def _has(pattern: str, value: str) -> bool:
    return compiled(pattern).search(value) is not None


def _is_option_value(option: str) -> bool:
    """Return whether the password of a command line option is none that stands for another, such as a variable."""
    return _is_url_password(option.partition(":")[2])


class _Token(NamedTuple):
    """A kind of token: searched only in texts with one of the hints, and masked if the check accepts the match.

    If the pattern has a group, only the group is masked.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: str
    check: _Check = _accept


_START: Final = r"(?<![A-Za-z0-9])"
_END: Final = r"(?![A-Za-z0-9])"
_OTHER_PREFIXES: Final = (
    "gsk_", "xai-", "pplx-", "r8_", "nvapi-", "tvly-", "dop_v1_", "shpat_", "shpss_", "lin_api_", "ntn_", "hvs.",
    "dckr_pat_", "PMAK-", "dapi", "sntrys_", "ATATT", "figd_", "rnd_", "sbp_", "secret_",
)  # fmt: skip
# JWT, Bearer, Basic and options come last: their value may be one of the other tokens.
_TOKENS: Final = (
    _Token("commonbook key", ("cbk_",), rf"{_START}cbk_[A-Za-z0-9_-]{{43}}", _is_mixed),
    _Token("anthropic key", ("sk-ant-",), rf"{_START}sk-ant-[A-Za-z0-9_-]{{16,}}", _is_mixed),
    _Token("openai key", ("sk-",), rf"{_START}sk-(?:proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{{16,}}", _is_mixed),
    _Token("api key", ("sk-",), rf"{_START}sk-[A-Za-z0-9_-]{{16,}}", _is_key),
    _Token("aws key", ("AKIA", "ASIA", "ABIA", "ACCA"), rf"{_START}A(?:KI|SI|BI|CC)A[A-Z0-9]{{16}}{_END}"),
    _Token("github token", ("gh",), rf"{_START}gh[opusr]_[A-Za-z0-9]{{30,}}"),
    _Token("github token", ("github_pat_",), rf"{_START}github_pat_[A-Za-z0-9_]{{20,}}"),
    _Token(
        "gitlab token",
        ("gl",),
        rf"{_START}gl(?:pat|ptt|dt|rt|soat|cbt|ft|imt|agent)-[\w-]{{20,}}(?:\.[\w-]+)*",
        _is_mixed,
    ),
    _Token("slack token", ("xox", "xapp-"), rf"{_START}(?:xox[a-z](?:\.xox[a-z])?|xapp)-[\w-]{{10,}}", _is_mixed),
    _Token(
        "slack webhook",
        ("hooks.slack.com",),
        r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9]+/[A-Za-z0-9/]+",
    ),
    _Token("stripe key", ("k_live_", "k_test_"), rf"{_START}[rs]k_(?:live|test)_[A-Za-z0-9]{{10,}}"),
    _Token("stripe secret", ("whsec_",), rf"{_START}whsec_[A-Za-z0-9+/=]{{20,}}"),
    _Token("google key", ("AIza",), rf"{_START}AIza[A-Za-z0-9_-]{{30,}}"),
    _Token("google token", ("ya29.",), rf"{_START}ya29\.[A-Za-z0-9_-]{{20,}}"),
    _Token("google secret", ("GOCSPX-",), rf"{_START}GOCSPX-[A-Za-z0-9_-]{{20,}}"),
    _Token("hugging face token", ("hf_",), rf"{_START}hf_[A-Za-z0-9]{{30,}}"),
    _Token("npm token", ("npm_",), rf"{_START}npm_[A-Za-z0-9]{{30,}}"),
    _Token("pypi token", ("pypi-",), rf"{_START}pypi-(?:AgE[A-Za-z0-9_-]{{16,}}|[A-Za-z0-9_-]{{50,}})"),
    _Token("telegram token", (":",), r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{30,}"),
    _Token("twilio key", ("SK",), rf"{_START}SK[0-9a-f]{{32}}{_END}"),
    _Token("twilio token", ("AC",), rf"(?<=(?<![A-Za-z0-9])AC[0-9a-f]{{32}}:)[0-9a-f]{{32}}{_END}"),
    _Token("sendgrid key", ("SG.",), rf"{_START}SG\.[A-Za-z0-9_-]{{16,}}\.[A-Za-z0-9_-]{{16,}}"),
    _Token("azure key", ("Key=", "key="), r"(?i)(?:(?<=AccountKey=)|(?<=AccessKey=))[A-Za-z0-9+/=%]{20,}"),
    _Token("azure signature", ("sig=",), r"(?<=[?&;]sig=)[A-Za-z0-9+/=%]{30,}", _is_mixed),
    _Token("discord token", (".",), rf"{_START}[MNO][\w-]{{23,27}}\.[\w-]{{6}}\.[\w-]{{27,}}", _is_mixed),
    _Token("age key", ("AGE-SECRET-KEY-1",), rf"{_START}AGE-SECRET-KEY-1[A-Z0-9]{{30,}}"),
    _Token(
        "api key",
        _OTHER_PREFIXES,
        rf"{_START}(?:{'|'.join(map(re.escape, _OTHER_PREFIXES))})[A-Za-z0-9_-]{{20,}}",
        _is_key,
    ),
    _Token("jwt", ("eyJ",), r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    _Token("token", ("earer", "EARER"), r"(?i)(?<=\bbearer )[ \t]{0,8}[A-Za-z0-9._~+/=-]{12,}", _is_mixed),
    _Token("password", ("asic ", "ASIC "), r"(?i)authorization\W{1,8}basic ([A-Za-z0-9+/_-]{8,}={0,2})"),
    _Token("password", ("mysql",), r"\bmysql\w* (?:[^\n|;]{0,80}? )?-p([^\s\"'$]{4,128})"),
    _Token(
        "password",
        ("-u ", "--user "),
        r"(?<!\S)(?:-u|--user) [\"']?[^\s:\"']{1,64}:([^\s\"']{4,128})",
        _is_option_value,
    ),
)
_MIN_TOKEN_CHARS: Final = 12
"""Every token is or follows a run of this number of characters without a blank: a text without one has no token."""

_FORTY_CHARS: Final = r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
_AWS_NAMES: Final = r"(?i)aws|secret.?access.?key|secret.?key"
_AWS_NAME_DISTANCE: Final = 80


def _mask_tokens(text: str) -> Masked:
    total = 0
    if max(map(len, text.split()), default=0) < _MIN_TOKEN_CHARS:
        return Masked(text, total)
    for token in _TOKENS:
        # A loop takes a third of the time of `any`, and there are thirty tokens for each text.
        for hint in token.hints:
            if hint in text:
                break
        else:
            continue
        matches = compiled(token.pattern).finditer(text)
        spans = [match.span(match.lastindex or 0) for match in matches if token.check(match[0])]
        text, count = _replace_spans(text, spans, token.kind)
        total += count
    text, count = _replace_spans(text, list(_aws_secret_spans(text)), "aws key")
    return Masked(text, total + count)


def _aws_secret_spans(text: str) -> Iterator[Span]:
    """Yield AWS secrets, which have no prefix: forty letters and digits soon after a word that names them."""
    for match in compiled(_FORTY_CHARS).finditer(text):
        before = text[max(0, match.start() - _AWS_NAME_DISTANCE) : match.start()]
        if _is_aws_secret(match[0]) and _has(_AWS_NAMES, before):
            yield match.span()


# --- passwords in URLs


_IN_URL: Final = r"://[^\s/:@?#\"'<>`]{0,256}:([^\s/\"'<>`]{1,256})@(?=[\w\[{$%*-])(?!sha\d)"
# Only where no path can hold an `@` may a slash be part of the password.
_IN_DATABASE_URL: Final = r"://[^\s/:@?#\"'<>`]{0,256}:([^\s\"'<>`@]{1,256})@(?=[\w\[{$%*-])"
_DATABASES: Final = r"(?i)(?:postgres|postgresql|mysql|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver)(?:\+\w+)?$"
_MAX_SCHEME_CHARS: Final = 30


def _mask_url_passwords(text: str) -> Masked:
    if "://" not in text:
        return Masked(text, 0)
    spans = [match.span(1) for match in compiled(_IN_URL).finditer(text) if _is_url_password(match[1])]
    text, count = _replace_spans(text, spans, "password")
    spans = [
        match.span(1)
        for match in compiled(_IN_DATABASE_URL).finditer(text)
        if _is_url_password(match[1])
        and _has(_DATABASES, text[max(0, match.start() - _MAX_SCHEME_CHARS) : match.start()])
    ]
    text, more = _replace_spans(text, spans, "password")
    return Masked(text, count + more)


def _is_url_password(value: str) -> bool:
    """Return whether a value in a URL is a password, and not a port, a variable or a placeholder."""
    return not _has(r"^(?:\d{1,5}(?:[/?#]|$)|\$[{(]|\$[A-Z_]+$|%s$|%\(|\*{3}|x{3,}$|\.{3}|\{)|\[masked:", value)


# --- values assigned to a name of a secret


# Lower case, for a lower-cased text: a search that ignores case is four times as slow.
_NAMES: Final = (
    r"-pass(?:in|out) pass|passwor[dt]s?|passwd|passphrase|pwd|(?:_|-|\bstore|\bkey|\brequire)pass(?![a-z])|\bpass(?==)"
    r"|kennwort|\bsshpass -p|\bidentified by|authorization: bearer"
    r"|(?:api|access|auth|secret|private|signing|encryption|account|master|client|license|webhook|service)[ _-]?key"
    r"|secret|token|credentials?"
)
_NAME_PARTS: Final = ("pass", "pwd", "key", "secret", "token", "credential", "kennwort", "identified by", "bearer")
"""Every name contains one of these: most texts contain none, which is much faster to check."""
_TAKES_BLANK: Final = r"^(?:requirepass|-pass(?:in|out) pass|sshpass -p|identified by|authorization: bearer)$"
_BEFORE_BLANK: Final = (
    r"(?i)(?:^|\s)--?[\w-]*$|(?:^|\s)(?:env|setx) \w*$"
    r"|\b(?:login|user(?:name)?|benutzer|zugangsdaten|credentials):? [^\s]{1,40} (?:(?:/|und|and) )?$"
)
"""The text before a name whose value follows after a blank: an option's dashes, a word of a file format, a user."""

_VALUE: Final = (
    r"(?:(?:\\{0,3}[\"'`]\]?|\*\*)?[ \t]{0,8}"
    r"(?P<sign>=>|:=|={1,3}|:[ ]?(?:str|string|bytes)(?:[ ]?\|[ ]?None)?[ ]?=|:|\"[ ]value=|,(?=[ ]?['\"])"
    r"|\r?\n[ ]{0,40}value:)"
    r"(?:\*\*)?[ \t]{0,8}|(?P<tag>>)|(?P<option>[ ]))"
    r"(?:(?P<quote>\\{0,3}[\"'`])(?P<quoted>[^\"'`\n\\]+)|(?P<bare>"
    r"(?:(?![&,;|?(\[{][\w-]{1,50}[=:])[^\s\"'`<>\\])+))"
)
_MAX_NAME_CHARS: Final = 60
_REFERENCE: Final = (
    r"^(?:\$|%[({]|\{|<|!\w+$|\*{3}|\.{2,}|~|\.{0,2}/\w|https?:|env[.:]|vault:|process\.|os\."
    r"|[A-Za-z_][\w.]*[(\[])|\[masked:"
)
_DOTTED_OR_TYPE: Final = r"^(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|(?:[A-Z][a-z]+){2,})$"
_IDENTIFIER: Final = r"^(?:[a-z]+\d?(?:_[a-z0-9]+)+|[A-Z]+\d?(?:_[A-Z0-9]+)+|[a-z]+(?:[A-Z][a-z]+)+)$"
_PLACEHOLDER: Final = r"(?i)^(?:[x.*_•-]+|your[ _-].*|.*[_-]here\d?|change.?(?:me|it|this)|\(.*\))$"
_HARMLESS: Final = frozenset({
    "required", "optional", "string", "password", "passwort", "secret", "token", "hidden", "disabled", "enabled",
    "default", "example", "redacted", "masked", "placeholder", "undefined", "boolean", "integer", "none", "null",
    "true", "false", "bytes", "text", "tokens", "auto", "prompt", "secretstr", "int", "bool", "float", "option",
    "options", "flag", "instead",
})  # fmt: skip
_LINE_END: Final = r"[\"'`*]{0,3}[.,;]?[ \t]{0,8}(?:#|\\?n?$|\r?\n|\\n)"


def _mask_assigned(text: str) -> Masked:
    return _replace_spans(text, list(_assigned_spans(text)), "secret")


def _assigned_spans(text: str) -> Iterator[Span]:
    search_from = 0
    # Only this letter becomes two when it is lower-cased, which would shift all positions.
    lowered = text.replace("\u0130", "I").lower()
    if not any(part in lowered for part in _NAME_PARTS):
        return
    for name in compiled(_NAMES).finditer(lowered):
        match = compiled(_VALUE).match(text, name.end()) if name.start() >= search_from else None
        before = text[max(0, name.start() - _MAX_NAME_CHARS) : name.start()]
        if match and _can_have_value(before, name[0], match):
            start, end = match.span("quoted" if match["quote"] else "bare")
            # The full stop of a sentence and the closing bracket of a call are not part of a value.
            value = match["quoted"] or match["bare"].rstrip(".,;:)]}|")
            if _looks_secret(name, before, match, value):
                yield start, start + len(value)
                search_from = end
            elif not match["quote"]:
                search_from = end


def _can_have_value(before: str, name: str, match: re.Match[str]) -> bool:
    """Return whether a value can follow a name: after a blank only for an option, after `>` only for a tag."""
    if match["option"]:
        return _has(_BEFORE_BLANK, before) or _has(_TAKES_BLANK, name)
    if match["tag"]:
        return _has(r"<[\w:.-]*$", before) and match.string.startswith("</", match.end())
    if match["sign"] == ",":
        return _has(r"define\([\"']\w*$", before)
    return not before.endswith("[masked: ")


def _looks_secret(name: re.Match[str], before: str, match: re.Match[str], value: str) -> bool:
    """Return whether a value is a secret: where only a secret can stand, any value but a placeholder or code."""
    is_constant = match.string[name.start() : name.end()].isupper() and not _has(r"[a-z][\w-]*$", before)
    if _has(_REFERENCE, value) or _has(_PLACEHOLDER, value) or value.lower().rstrip("!") in _HARMLESS:
        return False
    if not is_constant and (_has(_DOTTED_OR_TYPE, value) or (not match["quote"] and _has(_IDENTIFIER, value))):
        return False
    is_password, blank = _has(_CHOSEN_BY_PEOPLE, name[0]), _has(r"\s", value)
    if _is_certain(name, before, match, value, is_constant=is_constant) and _has(r"[^\W\d_]", value):
        return len(value) >= (4 if is_password else 6) and (not blank or bool(match["quote"]))
    if is_password:
        literal = match["quote"] and "=" in (match["sign"] or "")
        return len(value) >= 6 and bool(literal or value.isdigit() or _has_digit_or_sign(value))
    return len(value) >= 8 and not blank and _has(r"\d", value) and _has(r"[A-Za-z]", value)


def _is_certain(name: re.Match[str], before: str, match: re.Match[str], value: str, *, is_constant: bool) -> bool:
    """Return whether a value stands where only a secret can stand, so that it need not look like one."""
    sign, text, end = match["sign"], match.string, (match.end() if match["quote"] else match.start("bare") + len(value))
    has_prefix = _has(r"[\w?&-]$", before)
    is_word = value.lower() in NO_SECRETS or (value.isalpha() and not has_prefix and _has(_ENDING, value))
    ends_line = compiled(_LINE_END).match(text, end) is not None
    if match["option"] and not _has(r"-[\w-]*$", before):
        return _has(_TAKES_BLANK, name[0]) or is_constant or (ends_line and not is_word)
    if not sign or is_constant or _has(_TAKES_BLANK, name[0]):
        return True
    if match["quote"] and _has(r"\s", value):
        return False
    if sign in {"==", "==="} or (not has_prefix and value.isalpha() and not _has(_CHOSEN_BY_PEOPLE, name[0])):
        return False
    if sign == ":":
        can_be_type = value.isalpha() and not _has(_CHOSEN_BY_PEOPLE, name[0])
        return not is_word and (match["quote"] is not None or (ends_line and not can_be_type))
    # An argument of a call may be a variable.
    return match["quote"] is not None or (
        text.startswith("=", name.end()) and text[end : end + 1] not in {",", ")", "(", "["}
    )


_CHOSEN_BY_PEOPLE: Final = r"pass|pwd|kennwort|identified by"
_ENDING: Final = rf"{PREDICATE_ENDING}|(?:lich|ig|bar|sam|los|haft)$"


def _has_digit_or_sign(value: str) -> bool:
    return not _has(r"\s", value) and _has(r"[^\W\d_]", value) and _has(r"\d|[!#$%^&*+~@]", value)


# --- numbers of payment cards: digits of a known issuer, in the usual groups, that pass the Luhn check


_DIGITS: Final = re.compile(r"(?<![A-Za-z\d_.,+-])\d(?:[ \u00a0\u2009\u202f.-]?\d){12,18}(?![A-Za-z\d_]|[.,-]\d)")
_EIGHT_DIGITS: Final = re.compile(r"\d{4}\D?\d{4}")
_GROUPS: Final = frozenset(
    {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (4, 4, 4, 1), (4, 4, 5), (6, 13), (8, 8)}
)
_OTHER_NUMBER: Final = re.compile(
    r"(?i)(?:order|tracking|shipment|parcel|invoice|reference|ticket|serial|imei|iccid|isbn|ean|gtin|barcode|part|case"
    r"|pedido|commande|bestell\w*|sendungs\w*|rechnungs\w*|заказ\w*|订单号?|運單|注文)[^\w\n]*(?:\w{1,8}[^\w\n]+){0,2}$"
)
_CONTEXT_CHARS: Final = 40


def _card_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the numbers of payment cards are, in any digits."""
    # Most texts have no number so long, which this is faster to tell.
    for match in _DIGITS.finditer(text) if _EIGHT_DIGITS.search(text) else ():
        groups = [len(group) for group in re.split(r"[^\d]", match[0])]
        digits = "".join(str(int(char)) for char in match[0] if char.isdecimal())
        if not _is_issued(digits) or not _passes_luhn(digits):
            continue
        if len(groups) > 1 and tuple(groups) not in _GROUPS:
            continue
        if len(groups) == 1 and _OTHER_NUMBER.search(text[max(0, match.start() - _CONTEXT_CHARS) : match.start()]):
            continue
        yield match.span()


def _is_issued(digits: str) -> bool:
    """Return whether an issuer of cards gives out numbers with this beginning and this length."""
    length, two, four = len(digits), int(digits[:2]), int(digits[:4])
    if digits[0] == "4":
        return length in {13, 16, 19}
    if 51 <= two <= 55 or 2221 <= four <= 2720 or 2200 <= four <= 2204 or two == 35:
        return length == 16
    if two in {34, 37}:
        return length == 15
    if two in {30, 36, 38, 39}:
        return length == 14
    return two in {50, 56, 57, 58, 60, 62, 63, 64, 65, 67, 68, 69, 81} and 16 <= length <= 19


def _passes_luhn(digits: str) -> bool:
    total = 0
    for at, digit in enumerate(map(int, reversed(digits))):
        doubled = digit * 2 if at % 2 else digit
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0 and len(set(digits)) > 1


def _mask_cards(text: str) -> Masked:
    return _replace_spans(text, list(_card_spans(text)), "card number")


# --- secrets in prose


def _mask_spoken(text: str) -> Masked:
    return _replace_spans(text, spoken_spans(text), "secret")


_STEPS: Final = (
    _mask_private,
    _mask_private_keys,
    _mask_tokens,
    _mask_url_passwords,
    _mask_assigned,
    _mask_cards,
    _mask_spoken,
)
