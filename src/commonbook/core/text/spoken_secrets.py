"""Finds secrets that prose tells in English or German: "my password is hunter2", "die PIN lautet 4821".

A name of a secret is looked for first. Then the words around it are read one by one, at most a dozen: after a joint
("is", "lautet") or right beside the name, a value may stand. A value is a secret if it looks like one: it has digits
among letters, or signs. A plain word is one only if it ends its clause ("my password is swordfish.") and is not a word
that says what a password is like ("required").

Each name costs a bounded number of steps, so the time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum
from functools import cache
from itertools import islice
from typing import Final, NamedTuple, TypeAlias


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- names of secrets


class Kind(Enum):
    """Kinds of secrets: a password may be any word, a code is mostly a number, a key is made by a machine."""

    PASSWORD = 1
    CODE = 2
    KEY = 3


# A bare "code" is too common: a code's name says what it opens. Of two that begin alike the longer one comes first.
NAMES: Final = {
    Kind.PASSWORD: r"pass ?phrases?|pass[ -]?words?|passcodes?|passwd|pwd|pw|pass(?![a-zäöü-])"
    r"|(?:seed|recovery|backup|secret|mnemonic|wallet) phrase",
    Kind.CODE: r"pin(?:-?code| (?:code|number|no\.?)|s)?|cvv2?|cvc2?|otp|security code|combination"
    r"|(?:verification|confirmation|one-?time|authentication|auth|login|2fa|mfa|sms|backup|recovery|unlock|entry|access"
    r"|door|gate|alarm|garage|keypad|lock|entrance) (?:code|pin)|one-?time pass(?:word|code)",
    Kind.KEY: r"(?:api|access|auth|secret|private|signing|encryption|account|master|client|licen[sc]e|webhook|service"
    r"|product|activation|recovery|wpa2?|network|security)[ -]?key"
    r"|(?:api|access|auth|bearer|refresh|session|bot|personal access|client) ?(?:token|secret)|token|secret",
}
GERMAN_NAMES: Final = {
    Kind.PASSWORD: r"passwort(?:e?s)?|passwörtern?|kennwort(?:e?s)?|kennwörtern?|losungswort|passphrase",
    Kind.CODE: r"pin-?nummer|geheimzahl|geheimnummer|prüfziffer|kartenprüfnummer"
    r"|(?:zugangs|sicherheits|bestätigungs|tür|alarm|zutritts|entsperr|verifizierungs|freischalt|einmal)-?code",
    Kind.KEY: r"(?:api|wlan|zugriffs|zugangs|geheim|lizenz|netzwerk|sicherheits)-?schlüssel"
    r"|(?:zugriffs|zugangs|api)-?token",
}

PARTS_OF_NAMES: Final = {
    "pass": (Kind.PASSWORD,), "pwd": (Kind.PASSWORD,), "pw": (Kind.PASSWORD,), "phrase": (Kind.PASSWORD,),
    "kennw": (Kind.PASSWORD,), "losungswort": (Kind.PASSWORD,), "pin": (Kind.CODE,), "cvv": (Kind.CODE,),
    "cvc": (Kind.CODE,), "otp": (Kind.CODE,), "code": (Kind.CODE,), "combination": (Kind.CODE,),
    "one-time pass": (Kind.CODE,), "one time pass": (Kind.CODE,), "geheim": (Kind.CODE,), "prüf": (Kind.CODE,),
    "key": (Kind.KEY,), "token": (Kind.KEY,), "secret": (Kind.KEY,), "schlüssel": (Kind.KEY,),
}  # fmt: skip
"""A part of each name, with the kinds whose names contain it: a search for a part is fast."""

# --- words around a name

JOINTS: Final = _words("""
    is are was were be equals becomes became reads remains 's be: is: are: was: is= it's that's been
    ist war sind lautet lauten heißt heisst wäre wird ist: lautet: heißt: bleibt sei
""")
"""Words between a name and its value, or between a value and its name: *is*."""

WEAK_JOINTS: Final = _words("to as with into auf in als mit zu")
"""Words that join a name only to a value that looks like a secret by itself: *to*, in *changed it to*."""

FILLERS: Final = _words("""
    now currently still actually just simply probably literally always set to changed updated reset be called likely
    again the word following this really only basically following: one so something like either
    jetzt nun aktuell derzeit einfach immer noch momentan seit heute das wort wie folgt also übrigens weiterhin
""")
"""Words that may stand between a joint and the value: *now*."""

OWNERS: Final = _words("""
    my the our your his her their its a an new old current wifi wi-fi email account login root admin database server
    router guest master vpn laptop phone default temporary for as of
    mein das unser dein ihr sein euer neues aktuelles als die meine unsere deine der wlan
""")
"""Words between a joint and the name behind a value: *is my wifi password*."""

# --- words that are no secrets


_NO_SECRET_ENGLISH: Final = _words("""
    a about above absent absolutely accepted active added after again all allowed almost already also alright always
    an and another any anything applied as at available awful bad based basically because been before being below
    better between blank both broken but by called cached case checked cheap clear common complex complicated
    correct crucial dead deprecated default different difficult disabled down due during each easy either else
    embarrassing empty encoded enough enabled essential every everything everywhere exactly expired explicit false
    fine first fixed for forever forgotten from full further generic given global going gone good great guessable
    half handled hard hashed here hidden horrible how identical ignored important impossible in inactive incorrect
    inside insecure internal invalid it its just kept known last later leaked left less like local locked logged
    long lost mandatory masked maybe mine missing more most much my necessary needed never new nearly no nobody none
    not nothing now null obvious off ok okay old older on once one only optional or other ours out outdated over
    part per perfect personal plain pending permanent predictable present private probably protected public quite
    random rather ready really recommended redacted refused rejected replaced required reset right rotated safe
    salted same saved secret secure sensitive sent separate set shared short shown similar simple slightly so some
    somebody someone something somewhere soon still stolen stored strange strong stronger supposed swapped sure
    taken temporary terrible than that the their them there these they this those through tied to together too tough
    treated tricky true trivial two typically unavailable unchanged undefined unique unknown unnecessary unprotected
    unsafe unset until up upper-case uppercase lowercase useless usually valid very visible vulnerable wanted was
    weak weaker were what when where which while whoever why wide with within without working worse worth written
    wrong yes your yours nil n/a tbd todo string text number integer boolean example placeholder password passwort
    token key value username user login email admin-only printed displayed asked typed entered mentioned attached
    below: above: follows above. here: there: somewhere: everyone bytes str int bool float object char varchar dict
    array be changed must should cannot can't used see ask use least minimum maximum contact chapter page section
    step check refer please changeme void expire continue
""")
_NO_SECRET_GERMAN: Final = _words("""
    der die das ein eine im zu sehr mehr gleich dasselbe immer nie nicht nur falsch richtig korrekt ungültig
    gültig erforderlich notwendig nötig pflicht unsicher sicher schwach stark kurz lang neu alt geheim privat
    öffentlich leicht schwer einfach schwierig abgelaufen leer verschieden einzigartig wichtig meins gut schlecht
    hier dort temporär vergessen verloren bekannt unbekannt geändert gespeichert verschlüsselt gesetzt gesperrt
    komplex persönlich dem den des eines einer einem einen am beim vom zum zur auf bei mit ohne von vor nach aus
    für über unter bis seit und oder aber auch noch schon wieder ganz ziemlich etwas wirklich leider bereits bald
    gerade wohl vielleicht derzeit jetzt mein dein sein ihr unser euer meine deine seine ihre unsere selbe
    derselbe dieselbe dieses diese dieser jenes wurde worden werden wird war wäre ist muss soll sollte darf kann
    nirgends irgendwo überall niemandem jedem allen aktuell zurückgesetzt abgelehnt akzeptiert aktiv inaktiv
    deaktiviert aktiviert gehasht zufällig eindeutig anders uralt kompliziert gestohlen gelöscht besser stärker
    länger kürzer sicherer nein ja geheimsache vertraulich
""")
NO_SECRETS: Final = _NO_SECRET_ENGLISH | _NO_SECRET_GERMAN

PREDICATE_ENDING: Final = r"(?:ed|ing|ly|able|ible|less|ful|ous|ive|ant|ent|ary|ory|ical|onal|ier|iest|ized|ised)$"
GERMAN_PREDICATE_ENDING: Final = r"(?:lich|ig|bar|sam|los|haft|t|en|isch|voll|lang|end|er|es|e)$"
"""Endings of words that say what a password is like, not what it is."""

COMPOUNDS: Final = _words("""
    manager managers policy policies reset resets field fields hash hashes hashing generator generators protection
    protected prompt prompts strength length requirement requirements rule rules change changes dialog page screen
    input form box recovery rotation expiry expiration file files store stores vault vaults database list lists hint
    hints authentication auth login checker cracking attack attacks sharing spraying stuffing storage safe book
    entry column parameter variable option setting settings mode type count limit limits budget ring manager,
    managers, managers. manager. managers: usage economy bucket stream embedding embeddings refresh validation
    verification header headers
""")
"""Words after a name by which it is the name of something else: *password manager*."""

UNITS: Final = _words("""
    characters character chars char digits digit letters letter bits bit bytes byte symbols words word days day
    hours hour minutes minute times time years year users user attempts attempt tries rounds iterations months month
    weeks week percent zeichen stellen ziffern buchstaben wörter tage stunden minuten mal jahre versuche stellig
""")
"""Words after a number by which it counts something."""

TECHNICAL: Final = (
    r"(?i)^(?:v?\d+(?:\.\d+)+[a-z]?|\d{1,4}(?:st|nd|rd|th|s|x|k|m|h|d|ms|gb|mb|kb|bit|bits|chars?|days?|min|er|e)?|md[45]"
    r"|sha-?\d+|sha\d-\d+|hmac.*|bcrypt\d*|argon2\w*|scrypt|pbkdf2\w*|oauth2?|oauth2\.\d|oidc|saml2?|utf-?\d+\w*|base\d+"
    r"|2fa|mfa|u2f|fido2|ipv[46]|http[2s]?|tls\d.*|ssl\d.*|wpa\d\w*|x\.?509|pkcs\d+|ntlmv?\d|aes-?\d*|rsa-?\d*|ed25519"
    r"|k8s|s3|ec2|r2|h2|b2b|i18n|l10n|a11y|es\d+|python\d.*|php\d|java\d+|html5|css3|mp[34]|office ?365|[mo]365|win\d+"
    r"|windows\d*|1password\w*|keepass\w*|lastpass|bitwarden|wi-?fi|windows1[01]|ios\d+|android\d+|iphone\d*|ps[45]|q[1-4]"
    r"|rfc-?\d+|iso-?\d+.*|cve-.*|h264|covid-?19|g7|g20|c3po|r2d2|\d{4}-\d{1,2}(?:-\d{1,2})?|\d{1,2}[:.]\d{2}(?:[:.]\d{2})?"
    r"|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d+[-–]\d+|\d+%|[$€£]\d.*|gpt-?\d.*|claude-?\d.*|ubuntu\d*|debian\d*|db\d+|v\d+)$"
)
"""Values with digits among letters that name a technology, a version, a date or a quantity."""


Span: TypeAlias = tuple[int, int]

_WINDOW_CHARS: Final = 160
_BEFORE_CHARS: Final = 80
_MAX_WORDS: Final = 12
_MAX_WORDS_BEFORE: Final = 5
_MAX_VALUE_CHARS: Final = 128
_MAX_LEAD_CHARS: Final = 24
_DIGIT: Final = re.compile(r"\d|[^\W\d_]-[^\W\d_]{1,20}-[^\W\d_]")
"""A code or a key has digits, or three words joined by hyphens."""
_REVERSE_JOINTS: Final = frozenset({"as", "als"})
_SENTENCE_END: Final = ".!;"
"""A question may be followed by its answer: "My password? It's hunter2."."""
_AMBIGUOUS: Final = "pass"
"""A name that also means other things: a value follows it only after a sign, and is never a plain word."""
_EDGES: Final = ".,;:!?)]}>\"'”’»…"
_OPENING: Final = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "„": "“", "»": "«", "‚": "‘"}
_REFERENCE: Final = re.compile(
    r"^(?:\$|%[({]|\{|<|\*{3}|\.{2,}|~/|\.{0,2}/\w|https?:|www\.|\[|-)|[x*•.…_-]{3,}$|^[\w.+-]+@[\w-]+\.[\w.]+$"
    r"|^[\w-]+(?:/[\w.-]+)+$|^[A-Z]+(?:_[A-Z0-9]+)+$|^[a-z]+(?:_[a-z]+)+$|^[\w-]+\.(?:md|py|txt|json|ya?ml|env|toml|com|org|net)$"
    r"|^[A-Za-z_][\w.]*\(|[=(\[{]|^[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)+$"
)
_NUMBER: Final = re.compile(r"\d[\d]*(?:-\d+)*[#*]?")
_LINK: Final = re.compile(r"\s{0,2}(?:\*\*|__|[\"'”’)\]»])?\s{0,2}(?:[:=]|=>|->|→|—|–|-(?=\s))(?:\*\*|__)?\s{0,3}")
_WORD: Final = re.compile(r"\S+")
_TECHNICAL: Final = re.compile(TECHNICAL)
_AND: Final = re.compile(r"[\"'”’»“]?(?:,? (?:and|or|und|oder) |, )")
_PHRASE: Final = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+){2,23}(?=[.,;!?\"'”]|$)")
_HYPHENATED: Final = re.compile(r"[a-zäöüß]+(?:-[a-zäöüß]+)+$")
_MIN_HYPHENATED_CHARS: Final = 15
_HYPHENATED_PREDICATE: Final = re.compile(
    rf"{PREDICATE_ENDING}|(?:^|-)(?:of|the|by|date|in|only|wide|specific|side|free|time|term|text|level|safe|proof|style)(?:-|$)"
    r"|(?:lich|ig|bar|sam|los|haft|iert|isch)$"
)
_SETTING: Final = re.compile(r"\b(?:set|changed|updated|setze|habe)\b[^.!?\n]*$", re.IGNORECASE)
_MAX_COMMON_WORDS: Final = 0.25
_WORDS_WITH_NUMBER: Final = re.compile(r"(?=[^\n]{0,60}\d)[\w$!#]+(?: [\w$!#]+){2,5}(?=[.!]?\s*(?:\n|$))")
_CLAUSE_END: Final = re.compile(
    r"[\"'”’»“`*]*(?:\s*$|\s*\n|[.,;!?)]|\s(?:and|but|so|for|on|und|aber|yesterday|today)\b)"
)


class _Level(IntEnum):
    """How closely a value is joined to the name: right beside it, by a word such as *to*, or by one such as *is*."""

    ADJACENT = 1
    WEAK = 2
    JOINED = 3


class _Name(NamedTuple):
    """A name of a secret in a text."""

    kind: Kind
    is_german: bool
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


@cache
def _pattern(kind: Kind, *, is_german: bool) -> re.Pattern[str]:
    return re.compile((GERMAN_NAMES if is_german else NAMES)[kind])


def _names(lowered: str) -> Iterator[_Name]:
    """Yield the names of secrets in a text: those around a part that every such name contains."""
    for part, kinds in PARTS_OF_NAMES.items():
        at = lowered.find(part)
        while at >= 0:
            end = at + len(part)
            # Without a digit or joined words nearby, nothing more is looked at.
            near = _DIGIT.search(lowered, max(0, at - _BEFORE_CHARS), end + _WINDOW_CHARS) is not None
            names = [
                _name_around(lowered, at, end, kind, is_german=is_german)
                for kind in kinds
                if near or kind is Kind.PASSWORD
                for is_german in (False, True)
            ]
            longest = max((name for name in names if name), key=lambda name: name.end - name.start, default=None)
            if longest:
                yield longest
            at = lowered.find(part, max(end, longest.end if longest else 0))


def _name_around(lowered: str, at: int, end: int, kind: Kind, *, is_german: bool) -> _Name | None:
    """Return the name of a secret that covers a part of a text, if there is one; it may begin before the part."""
    for match in _pattern(kind, is_german=is_german).finditer(
        lowered, max(0, at - _MAX_LEAD_CHARS), end + _MAX_LEAD_CHARS
    ):
        if match.start() > at:
            return None
        if match.end() >= end and _stands_alone(lowered, *match.span(), is_german=is_german):
            return _Name(kind, is_german, *match.span(), match[0])
    return None


def _stands_alone(lowered: str, start: int, end: int, *, is_german: bool) -> bool:
    """Return whether a name is a word of its own; in German it may be the end of a longer one."""
    before, after = lowered[start - 1 : start], lowered[end : end + 1]
    if after.isalnum() or after in {"_", "("}:
        return False
    return is_german or not (before.isalnum() or before in {"_", "-"})


# --- values


def _values_of(text: str, name: _Name) -> list[Span]:
    window = text[name.end : name.end + _WINDOW_CHARS].partition("\n")[0]
    words = list(islice(_WORD.finditer(window), _MAX_WORDS))
    if words and words[0].start() and _plain(words[0][0]) in COMPOUNDS:
        return []
    if name.word == _AMBIGUOUS and not _LINK.match(window):
        return []
    found = _value_after(text, name, window, words) or _value_before(text, name)
    return [*found, *_further_values(text, name, found)]


def _plain(word: str) -> str:
    """Return a word in lower case without the signs around it."""
    return word.lower().strip(_EDGES + "([{<«„“‘‚*_`").replace("’", "'")


def _value_after(text: str, name: _Name, window: str, words: list[re.Match[str]]) -> list[Span]:
    link = _LINK.match(window)
    if link and (span := _judged(text, name, name.end + link.end(), _Level.JOINED)):
        return [span]
    level: _Level | None = _Level.ADJACENT
    other_field = False
    if words and not words[0].start() and words[0][0] not in {"'s", "’s", ","}:
        # Something sticks to the name, such as the quote around it.
        level = None
    for word in words:
        if level is not None and (span := _judged(text, name, name.end + word.start(), level)):
            return [span]
        raw, plain = word[0].lower().replace("’", "'"), _plain(word[0])
        level = _next_level(raw, plain, level)
        if level is not None and plain in {"to", "auf"} and _SETTING.search(text, max(0, name.start - 40), name.start):
            level = _Level.JOINED
        if raw[-1] in ":=" and level is None and not other_field:
            level = _Level.JOINED
        other_field = other_field or raw[-1] in ",/|" or raw[0] in "\"'`"
        if (raw[-1] in _SENTENCE_END and level is None) or "[masked:" in raw:
            break
    return []


def _next_level(raw: str, plain: str, level: _Level | None) -> _Level | None:
    """Return how closely the next word is joined to the name."""
    if plain in JOINTS or raw in JOINTS or raw in {"->", "=>", "→"}:
        return _Level.JOINED
    if raw == "," or (level is not None and plain in FILLERS):
        return level
    return _Level.WEAK if plain in WEAK_JOINTS else None


def _value_before(text: str, name: _Name) -> list[Span]:
    """Return a value that stands before its name: "hunter2 is my password"."""
    start = max(0, name.start - _BEFORE_CHARS)
    before = re.split(r"\n|[.!?]\s", text[start : name.start])[-1]
    offset = name.start - len(before)
    joined = False
    for word in list(_WORD.finditer(before))[: -_MAX_WORDS_BEFORE - 1 : -1]:
        plain, raw = _plain(word[0]), word[0].lower()
        if plain in JOINTS or raw in JOINTS or plain in _REVERSE_JOINTS:
            joined = True
        elif plain not in OWNERS:
            span = _judged(text, name, offset + word.start(), _Level.ADJACENT) if joined else None
            return [span] if span and span[1] <= name.start else []
    return []


def _further_values(text: str, name: _Name, found: list[Span]) -> list[Span]:
    """Return a second value that is joined to the first: "the passwords are hunter2 and letmein9"."""
    more = _AND.match(text, found[0][1]) if found else None
    span = _judged(text, name, more.end(), _Level.ADJACENT) if more else None
    return [span] if span else []


# --- judging a value


def _judged(text: str, name: _Name, at: int, level: _Level) -> Span | None:
    """Return where the secret is that begins here, or None if what stands here is none."""
    if span := _quoted(text, name, at, level) or _phrase(text, name, at, level):
        return span
    word = _WORD.match(text, at, at + _MAX_VALUE_CHARS)
    if word is None or (level < _Level.JOINED and word[0].isalpha() and word[0] == word[0].lower()):
        return None
    token = word[0]
    start = at + len(token) - len(token.lstrip("\"'`“‘«„‚(*_"))
    core = text[start : word.end()].rstrip("*`").rstrip(_EDGES.replace("!", "").replace("?", "").replace(">", ""))
    if core.rstrip("!?").isalpha():
        core = core.rstrip("!?")
    core = core.removesuffix("**").removesuffix("`")
    end = start + len(core)
    following = _WORD.match(text[word.end() : word.end() + 40].lstrip(" "))
    ends_clause = _CLAUSE_END.match(text[end : end + 24]) is not None
    if _is_secret(core, name, level, ends_clause=ends_clause, following=_plain(following[0]) if following else ""):
        return start, end
    return None


def _phrase(text: str, name: _Name, at: int, level: _Level) -> Span | None:
    """Return a secret of several words: of a passphrase, or after a colon with a number among the words."""
    if level < _Level.JOINED or name.kind is not Kind.PASSWORD:
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
    if closing is None or (level < _Level.JOINED and name.kind is not Kind.PASSWORD):
        return None
    end = text.find(closing, at + 1, at + 1 + _MAX_VALUE_CHARS)
    content = text[at + 1 : end] if end > 0 else ""
    words = content.split()
    if not 3 <= len(content) <= 64 or content != content.strip() or "\n" in content or len(words) > 8:
        return None
    if (
        2 * sum(_plain(word) in NO_SECRETS for word in words) > len(words)
        or _REFERENCE.search(content)
        or _TECHNICAL.match(content)
    ):
        return None
    if (name.kind is Kind.KEY or name.word == _AMBIGUOUS) and not _is_mixed(content):
        return None
    if level < _Level.JOINED and len(words) > 1:
        return None
    return at + 1, end


def _is_secret(core: str, name: _Name, level: _Level, *, ends_clause: bool, following: str) -> bool:
    if not core or core.lower() in NO_SECRETS or _REFERENCE.search(core):
        return False
    if _NUMBER.fullmatch(core):
        return _is_secret_number(core.rstrip("#*"), name, level) and following not in UNITS
    if (name.kind is Kind.CODE and level < _Level.JOINED) or _TECHNICAL.match(core):
        return False
    if name.kind is not Kind.CODE and _HYPHENATED.match(core):
        return _is_hyphenated_secret(core, name, level)
    if _is_mixed(core):
        shortest = 7 if name.kind is Kind.KEY else 6 if level is _Level.ADJACENT else 4
        return len(core) >= shortest and (name.kind is not Kind.KEY or _has_letter_and_digit(core))
    if name.kind is not Kind.PASSWORD or name.word == _AMBIGUOUS or level < _Level.JOINED:
        return False
    return core.isalpha() and len(core) >= 4 and ends_clause and _is_unlike_a_predicate(core, name)


def _is_hyphenated_secret(core: str, name: _Name, level: _Level) -> bool:
    """Return whether words joined by hyphens are a secret: not *case-sensitive*; a key has three words or more."""
    count = core.count("-") + 1
    if name.kind is Kind.PASSWORD and count > 2 and len(core) >= _MIN_HYPHENATED_CHARS:
        return _share_of_common_words(core) <= _MAX_COMMON_WORDS
    shortest = 2 if name.kind is Kind.PASSWORD else 3
    return (
        level is _Level.JOINED
        and count >= shortest
        and not _share_of_common_words(core)
        and not _HYPHENATED_PREDICATE.search(core)
    )


def _is_secret_number(digits: str, name: _Name, level: _Level) -> bool:
    count = sum(char.isdecimal() for char in digits)
    if name.kind is Kind.KEY:
        return False
    if name.kind is Kind.PASSWORD:
        looks_like_date_or_range = re.fullmatch(r"\d{4}-\d\d?-\d\d?|\d{1,3}-\d{1,3}", digits) is not None
        return not looks_like_date_or_range and count >= (4 if level is _Level.JOINED else 6)
    if name.word.startswith(("cv", "security", "sicherheits", "prüf", "karten")):
        return 3 <= count <= 8
    if level is _Level.ADJACENT and name.word == "pin":
        return 4 <= count <= 8 and digits.isdecimal()
    return 4 <= count <= 10


def _is_mixed(core: str) -> bool:
    """Return whether a value has digits among letters, signs inside, or capitals inside, as words do not."""
    if _has_letter_and_digit(core):
        return True
    if re.search(r"[^\W\d_]", core) and re.search(r"\w[!@#$%^&*?+~]\w|\w[@#$%^&*]+!?$", core):
        return True
    return re.search(r"[a-z][A-Z]", core) is not None and core.isascii() and core.isalnum()


def _has_letter_and_digit(core: str) -> bool:
    return any(map(str.isalpha, core)) and any(map(str.isdecimal, core))


def _is_unlike_a_predicate(core: str, name: _Name) -> bool:
    """Return whether a plain word can be a secret: it does not say what a secret is like, or is a German noun."""
    if name.is_german:
        return core[0].isupper() or not re.search(GERMAN_PREDICATE_ENDING, core)
    return not re.search(PREDICATE_ENDING, core.lower())
