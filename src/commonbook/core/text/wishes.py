"""Recognise standing wishes in English and German: `Never deploy on Fridays.`, `Ich trinke lieber Tee.`

A standing wish is a sentence of the author that tells how things are to be done from now on, or what is preferred. The
sentences are judged one by one, by the table `_PATTERNS`. Questions, reports of what others say, quotations and lines
of code are none, whatever their words.

Also recognises questions that ask for advice or help, in whose answers wishes count.
"""

from __future__ import annotations

import re
from typing import Final

MAX_WISH_CHARS: Final = 200
"""A longer sentence is cut around the words that make it a wish."""

# One pass without patterns: most sentences have none of these.
_HINT: Final = re.compile(
    r"always|never|\bever\b|prefer|rather|from now|from here|forward|henceforth|future|as of|starting|whenever|when i\b"
    r"|(?:every|each|any) ?time|rest of|\bstop\b|avoid|please|\bin (?:all|every|each)\b|i (?:don't|do not)\b"
    r"|immer|\bnie\b|niemals|stets|lieber|bevorzug|vorzieh|ziehe|\bab \w+\b|künftig|zukunft|fortan|von \w+ an\b"
    r"|wenn ich|kein|nur noch|jedes mal",
    re.I,
)
_NO_PROSE: Final = re.compile(
    r"^ *(?P<fence>```|~~~)[\s\S]*?(?:^ *(?P=fence)[^\n]*|\Z)"  # a block of code
    r"|^[ \t]*(?:>|#|//|/\*|\*/|--|<!--)[^\n]*"  # a quoted line, a heading, a comment
    r"|[\"“”„«»][^\"“”„«»\n]*[\"“”«»]|(?<!\w)'[^'\n]+'(?!\w)|`[^`\n]*`",
    re.M,
)
_SENTENCE: Final = re.compile(r"(?=\S)[^\n]+?(?:[.!?]+[)\"']*(?=\s)|(?=\n)|\Z)")
_BULLET: Final = re.compile(r"(?:[-*•+]|\d+[.)])\s+")
_REPORTED: Final = re.compile(
    r"(?<!\bI )(?<!\bich )\b(?:said|says|told|tells|asked|wrote|writes|claims?|argues?|insist(?:s|ed)|advises?"
    r"|sagt|sagte|meint|meinte|schrieb|schreibt|fragte|erzählte|riet|behauptet)\b",
    re.I,
)

_VERB: Final = (
    "(?:use|write|answer|reply|respond|format|include|add|give|show|call|address|cite|provide|explain|keep|make|send"
    "|put|list|start|end|begin|avoid|ask|check|confirm|speak|talk|translate|summari[sz]e|suggest|recommend|mention|say"
    "|skip|leave|omit|run|test|commit|deploy|push|name|treat|remind|tell|refer|stick|limit|assume|sign|spell|quote|mark"
    "|round|sort|switch|wait|book|order|buy|save|store|create|generate|convert|print|return|follow|do|be|draft|structure"
    "|highlight|share|schedule|offer|repeat|apologi[sz]e|refactor|merge|delete|edit|change)"
)
# After always or never: a bare verb, and none of the words that begin an exclamation or a report.
_BARE_VERB: Final = (
    r"(?!(?:mind|again|even|on|in|at|the|an?|my|so|too|more|less|been|ha[ds]|was|were|is|are|am|had|have (?:i|we|you)"
    r"|thought|knew|saw|heard|seen|felt|got|gone|went|met|understood|made|done|said|told|found|came|took|kept|left|lost"
    r"|happy|glad|good|nice|great|fun|late|there|here|better|best|enough|gonna|know|once|before|after|you|he|she|it"
    r"|they|we|i|this|that|one|not|quite|really|actually|fully|nearly|as|for|with|will|would|could|can|want|need|like|love|seem|feel|did|does|the)\b)"
    r"(?!\w+(?:(?<!e)(?<!b)ed|ing|[^sui]s)\b)[a-z][\w-]+\s"
)
_BEGIN: Final = (
    r"(?:^|[,;:–—]\s+|\s-\s|\bso\s+)(?:(?:please|also|just|ok(?:ay)?|hey|note|and|but|remember to|be sure to"
    r"|make sure (?:to|that you|you)|don't forget to)[,:]?\s+)*"
)
_FROM_NOW: Final = (
    r"(?:from (?:now|here|today|this point) on(?:wards?|ward| out)?|going forward|henceforth|in (?:the )?future"
    r"|as of (?:now|today)|starting (?:now|today))"
)
_ASKING: Final = "(?:ask|say|write|paste|mention|request|talk|send|share|give|type|post|want|need)"
_IMPERATIVE: Final = (
    "(?:antworte?|schreibe?|nenne?|verwende|benutze?|nutze?|nimm|gib|zeige?|mache?|lösche?|frage?|erkläre?|formatiere?"
    "|vermeide|lasse?|sage?|sprich|rede|erwähne?|zitiere?|füge?|setze?|stelle?|prüfe?|teste?|halte?|übersetze?|fasse?"
    "|deploye?|pushe?|schicke?|sende|sei|beginne?|ende|achte|denke?|erinnere?|bestätige?|buche?|bestelle?|liste?|runde"
    "|speichere?|empfiehl|schlage?|rechne|starte?|ändere?|bleibe?|behandle|duze?|sieze?)"
)
_STANDING: Final = "(?:immer|stets|nie(?:mals)?|jedes Mal|grundsätzlich)"
_AB_JETZT: Final = (
    "(?:ab (?:jetzt|sofort|heute|nun)|von (?:jetzt|nun|heute) an|künftig|zukünftig|in zukunft|fortan|in künftigen)"
)
# The last word in lower case: a verb at the end, and not a noun.
_INFINITIVE: Final = r"(?-i:\b[a-zäöüß]+(?:en|ern|eln|tun|sein))[.!]*$"

_PATTERNS: Final = tuple(
    (re.compile(pattern, re.I), may_ask)
    for pattern, may_ask in (
        # Whether it is a wish in a question too: "I prefer tea, which do you have?"
        (rf"{_BEGIN}(?:always|never)\s+{_BARE_VERB}", False),
        (rf"{_BEGIN}(?:don't|dont|do not) ever\s+{_BARE_VERB}", False),
        (rf"^please (?:don't|dont|do not) {_VERB}\b", False),
        (r"^(?:please )?(?:stop|avoid) (?:\w+ing|the words?)\b", False),
        (rf"\b(?:can|could|would) you (?:please )?(?:always|never|{_FROM_NOW}) {_VERB}\b", True),
        (r"\byou (?:should|must|need to|have to|are to|shall) (?:always|never)\b", False),
        (r"\bI (?:always|never) (?:want|need|expect)\b", False),
        (r"\bI (?:don't|do not) (?:ever )?want you to\b", False),
        (
            r"\bI(?:'d| would)? (?:want|like|need|expect) (?:you(?! to know)|your|all|every)\b[^.]*"
            rf"\b(?:always|never|whenever|{_FROM_NOW})\b",
            False,
        ),
        (
            r"(?<!\bif )(?<!whether )(?<!\bdo )(?<!\bdid )(?<!should )(?<!would )(?<!\bcan )(?<!might )"
            r"\bI(?:'d| would)?(?: (?:really|strongly|generally|usually|much|still|always|also|personally|definitely))?"
            r" prefer\b",
            True,
        ),
        (r"\b(?:I'd|I would)(?: much)? rather (?!not\b|die\b|have (?:been|gone|had|\w+ed)\b)", False),
        (r"\bmy (?:\w+ )?preference (?:is|would be|for)\b", False),
        (
            rf"^(?:and |so |ok(?:ay)?,? )?{_FROM_NOW}[,:]? (?:I (?:want|only|prefer)|I'd|I would|you|please|always|never"
            rf"|only|don't|do not|let's|no|{_VERB})\b",
            False,
        ),
        (rf"{_BEGIN}(?:(?:only|don't|do not) )?{_VERB}\b[^.]* {_FROM_NOW}\b", False),
        (
            rf"\b(?:whenever|when|(?:every|each|any) ?time) I {_ASKING}\b[^,]*,\s*(?:then )?(?:please )?"
            rf"(?:(?:always|never|only|don't|do not) )?{_VERB}\b",
            False,
        ),
        (rf"^for (?:the rest of|all (?:future|further|following))\b[^,]*,\s*(?:please )?{_VERB}\b", False),
        (rf"^(?:please )?{_VERB}\b[^.]* in (?:all|every|each) (?:of )?(?:your |future )*(?:answer|repl|response)", False),
        (rf"^(?:bitte |also |und )*(?:{_STANDING}|{_AB_JETZT})\b.*{_INFINITIVE}", False),
        (rf"^(?:(?:{_AB_JETZT}|und|also) )?bitte\b.*\b(?:{_STANDING}|{_AB_JETZT})\b", False),
        (rf"^{_AB_JETZT}\b.*\b(?:bitte|duzen|siezen)\b", False),
        (rf"(?:^|[,;:–—] )(?:bitte )?{_IMPERATIVE}\b.*\b(?:{_STANDING}|{_AB_JETZT})\b", False),
        (rf"^(?:bitte )?{_AB_JETZT},? {_IMPERATIVE}\b", False),
        (rf"^(?:kannst|könntest|würdest) du (?:bitte )?(?:{_STANDING}|{_AB_JETZT})\b", True),
        (r"\bdu (?:sollst|solltest|musst|darfst)\b.*\b(?:immer|stets|nie|niemals)\b", False),
        (
            r"\bich (?:möchte|will|brauche|wünsche mir|hätte gern\w*|mag)\b.*\b(?:immer|stets|nie|niemals|nur noch"
            r"|keine?n?\b.* mehr)\b",
            False,
        ),
        (r"\bich (?:bevorzuge\b|ziehe\b.*\bvor\b)", True),
        (r"\bich (?!war|wollte|ging)\w+ (?:\w+ ){0,3}lieber\b(?!.*\b\w*ge\w+(?:t|en)\W*$)", False),
        (r"\bmir (?:ist|sind|wäre|wären)\b.*\blieber\b(?!.*\bgewesen\b)", False),
        (rf"^wenn ich\b[^,]*, ?(?:dann )?(?:bitte )?{_IMPERATIVE}\b", False),
    )
)


def wishes_in(text: str) -> list[str]:
    """Return the sentences of a text that are standing wishes of its author, as they stand and in order."""
    if _HINT.search(text) is None:
        return []
    # The same number of characters, so that places in it are places in the text.
    prose = _NO_PROSE.sub(lambda found: re.sub(r"[^\n]", "·", found[0]), text.replace("’", "'"))
    wishes = []
    for sentence in _SENTENCE.finditer(prose):
        bullet = _BULLET.match(sentence[0])
        start = sentence.start() + (bullet.end() if bullet else 0)
        if place := _wish(prose[start : sentence.end()]):
            wishes.append(_around(text[start : sentence.end()].strip(), place))
    return wishes


def _wish(sentence: str) -> re.Match[str] | None:
    """Return where a sentence is a standing wish; None if it is none."""
    if _HINT.search(sentence) is None or _REPORTED.search(sentence):
        return None
    asks = sentence.rstrip().endswith("?")
    found = (pattern.search(sentence) for pattern, may_ask in _PATTERNS if may_ask or not asks)
    return next(filter(None, found), None)


def _around(sentence: str, place: re.Match[str]) -> str:
    """Return a sentence; a long one from its wish on, and cut."""
    if len(sentence) <= MAX_WISH_CHARS:
        return sentence
    rest = sentence[place.start() :].lstrip(" ,;:-–—")
    return rest if len(rest) <= MAX_WISH_CHARS else rest[: MAX_WISH_CHARS - 2].rstrip() + " …"


_ASKS_FOR_ADVICE: Final = re.compile(
    r"\bhow (?:should|do|can|could|would|might) (?:I|we|you)\b|\b(?:what|which|where|who)\b[^?]*\bshould (?:I|we)\b"
    r"|^should (?:I|we)\b|\b(?:can|could|would|will|do) you (?:\w+ )?(?:recommend|suggest|advise|think I should)\b"
    r"|^(?:please )?(?:recommend|suggest|write|draft|create|compose|design|plan|prepare|generate|show me|give me)\b"
    r"|\b(?:any|some|more|good|your) (?:recommendations?|suggestions?|advice|tips|ideas)\b|\bbest (?:way|practice)"
    r"|\b(?:can|could|would|will) you (?:please )?(?:help|show|write|give|explain|walk|draft|create|make|plan|prepare)\b"
    r"|\bhelp me\b|\b(?:good|different|better|other) ways? (?:to|of|I)\b|\bwhat are some (?:good|common|other|ways)\b"
    r"|\bwie (?:soll|sollte|kann|könnte|würdest|mache|schreibe|formatiere)\b|^empfiehl\b|\bempfehl|\bschlägst\b"
    r"|\b(?:kannst|könntest|würdest) du\b|\bhilf mir\b|\brätst\b|\b(?:vorschläge|tipps)\b|\bsoll(?:te)? ich\b"
    r"|^(?:bitte )?(?:schreibe?|erstelle?|plane|entwirf|zeige? mir|gib mir)\b",
    re.I,
)
_ASKS_FOR_PAST: Final = re.compile(
    r"\bsummar|\border in which\b|\b(?:our|these|my) (?:conversation|discussion|chat)s?\b|\b(?:did|have|has|had) (?:you|we|I)\b"
    r"|\bzusammenfass|\breihenfolge\b|\bunsere[nrm]? gespräch|\b(?:habe ich|hast du|haben wir)\b",
    re.I,
)


def asks_for_advice(question: str) -> bool:
    """Return whether a question asks for advice, for help or for something to be made, and not for what was said."""
    return _ASKS_FOR_ADVICE.search(question.strip()) is not None and _ASKS_FOR_PAST.search(question) is None
