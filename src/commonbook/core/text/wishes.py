"""Recognise standing wishes in English and German: `Never deploy on Fridays.`, `Ich trinke lieber Tee.`

A standing wish is a sentence of the author that tells how things are to be done from now on, or what is preferred. Each
sentence is judged by itself, by a table of patterns. Questions, reports of what others say, quotations and lines of
code are none, whatever their words. Also recognises questions for advice or help, in whose answers wishes count.
"""

from __future__ import annotations

import re
from typing import Final

MAX_WISH_CHARS: Final = 200
_MAX_SENTENCE_CHARS: Final = 2_000
_MAX_TEXT_CHARS: Final = 4_000
"""Of a longer text, only the beginning is searched: a paste is no wish."""

# Each pattern has one of these words, and most sentences have none.
_WORDS: Final = frozenset(
    {
        "always", "never", "ever", "prefer", "preference", "rather", "now", "here", "today", "forward", "henceforth",
        "future", "when", "whenever", "time", "please", "want", "immer", "nie", "niemals", "stets", "lieber", "jetzt",
        "sofort", "heute", "nun", "künftig", "zukunft", "bevorzuge", "ziehe", "mehr", "wenn",
    }
)  # fmt: skip
# Blocks of code, quoted lines, headings, comments and quotations.
_NO_PROSE: Final = re.compile(
    r"(?m)^ *(?P<fence>```|~~~)[\s\S]*?(?:^ *(?P=fence)[^\n]*|\Z)|^[ \t]*(?:>|#|//|/\*|\*/|--|<!--)[^\n]*"
    r"|[\"“”„«»][^\"“”„«»\n]*[\"“”«»]|(?<!\w)'[^'\n]+'(?!\w)|`[^`\n]*`"
)
_SENTENCE: Final = re.compile(r"(?=\S)(?:[-*•+] |\d+[.)] )?(?P<words>[^\n]+?(?:[.!?]+[)\"']*(?=\s)|(?=\n)|\Z))")
_REPORTED: Final = re.compile(
    r"(?i)(?<!\bI )(?<!\bich )\b(?:said|says|told|tells|asked|wrote|writes|claims?|insist(?:s|ed)|advises?|sagt|sagte"
    r"|meint|meinte|schrieb|schreibt|fragte|erzählte)\b"
)

_VERB: Final = (
    "(?:use|write|answer|reply|respond|format|include|add|give|show|call|address|cite|provide|explain|keep|make|send"
    "|put|list|start|end|begin|avoid|ask|check|confirm|speak|talk|translate|summari[sz]e|suggest|recommend|mention|say"
    "|skip|leave|omit|run|test|commit|deploy|push|treat|remind|tell|refer|stick|limit|assume|sign|book|buy|store|do|be)"
)
# After always or never: a bare verb, and none of the words that begin an exclamation or a report.
_BARE_VERB: Final = (
    r"(?!(?:mind|again|even|on|in|at|the|an?|my|so|too|more|less|been|ha[ds]|was|were|is|are|am|had|have (?:i|we)|you"
    r"|thought|knew|saw|heard|seen|felt|got|gone|went|met|made|done|found|came|took|kept|left|lost|happy|glad|good|nice"
    r"|late|there|here|better|enough|know|once|before|after|he|she|it|they|we|i|this|that|one|not|quite|really|as|for"
    r"|with|will|would|could|can|want|need|like|love|feel|did)\b)(?!\w+(?:(?<!e)(?<!b)ed|ing|[^sui]s)\b)[a-z][\w-]+\s"
)
_BEGIN: Final = r"(?:^|[,;:–—]\s+|\bso\s+)(?:(?:please|also|just|and|but|remember to|make sure (?:to|you))[,:]?\s+)*"
_MAYBE_NOT: Final = "(?:(?:always|never|only|don't|do not) )?"
_FROM_NOW: Final = (
    r"(?:from (?:now|here|today) on(?:wards?|ward)?|going forward|henceforth|in (?:the )?future|starting (?:now|today))"
)
_BITTE: Final = (  # Imperatives.
    "(?:bitte )?(?:antworte?|schreibe?|nenne?|verwende|benutze?|nutze?|nimm|gib|zeige?|mache?|lösche?|frage?|erkläre?"
    "|formatiere?|vermeide|sage?|sprich|erwähne?|zitiere?|setze?|prüfe?|halte?|sei|übersetze?|fasse?|schicke?|achte)"
)
_IMMER: Final = "(?:immer|stets|nie(?:mals)?)"
_AB_JETZT: Final = "(?:ab (?:jetzt|sofort|heute|nun)|von (?:jetzt|nun|heute) an|künftig|in zukunft)"
_STANDING: Final = f"(?:{_IMMER}|{_AB_JETZT})"

_IN_QUESTIONS: Final = (
    r"(?<!if )(?<!whether )(?<!do )(?<!did )(?<!should )(?<!would )\bI(?:'d| would)?(?: \w+)? prefer\b",  # I prefer A.
    rf"\b(?:can|could|would) you (?:please )?(?:always|never|{_FROM_NOW}) {_VERB}\b",  # Could you always cite it?
    r"\bich (?:bevorzuge\b|ziehe\b.*\bvor\b)",  # Ich bevorzuge Tee.
    rf"^(?:kannst|könntest|würdest) du (?:bitte )?{_STANDING}\b",  # Kannst du bitte immer zitieren?
)
_IN_STATEMENTS: Final = (
    rf"{_BEGIN}(?:always|never|(?:don't|dont|do not) ever)\s+{_BARE_VERB}",  # Never deploy on Fridays.
    rf"^please (?:don't|dont|do not) {_VERB}\b",  # Please don't use semicolons.
    r"\byou (?:should|must|need to|have to|are to) (?:always|never)\b",  # You must never push to main.
    r"\bI (?:always|never) (?:want|need|expect)\b|\bI (?:don't|do not) want you to\b",  # I always want the source.
    rf"\bI(?:'d| would)? (?:want|like|need) (?:you(?! to know)|all|every)\b.*\b(?:always|never|{_FROM_NOW})\b",
    r"\bmy preference is\b|\b(?:I'd|I would) rather (?!not\b|die\b|have (?:been|gone|had|\w+ed)\b)",  # I'd rather stay.
    rf"^(?:(?:and|so|ok|okay),? )?{_FROM_NOW}[,:]? (?:I|you|please|always|never|only|don't|do not|no|{_VERB})\b",
    rf"{_BEGIN}{_MAYBE_NOT}{_VERB}\b.* {_FROM_NOW}\b",  # Answer in German from now on.
    rf"\bwhen(?:ever)? I (?:ask|say|write|paste|request|send|share)\b[^,]*,\s*(?:please )?{_MAYBE_NOT}{_VERB}\b",
    rf"^(?:bitte |also |und )*{_STANDING}\b.*(?-i:\b[a-zäöüß]+(?:en|ern|eln))[.!]*$",  # Nie am Freitag ausliefern.
    rf"^(?:bitte\b.*\b{_STANDING}|{_AB_JETZT}\b.*\b(?:bitte|duzen|siezen|{_BITTE}))\b",  # Ab sofort bitte kürzer.
    rf"(?:^|[,;:–—] ){_BITTE}\b.*\b{_STANDING}\b",  # Antworte ab jetzt auf Deutsch.
    rf"\bdu (?:sollst|solltest|musst|darfst)\b.*\b{_IMMER}\b",  # Du sollst immer fragen.
    rf"\bich (?:möchte|will|brauche|hätte gern\w*)\b.*\b(?:{_IMMER}|keine?n?\b.* mehr)\b",  # Ich will keine Mails mehr.
    r"\bich (?!war|wollte|ging)\w+ (?:\w+ ){0,3}lieber\b(?!.*\b\w*ge\w+(?:t|en)\W*$)",  # Ich trinke lieber Tee.
    r"\bmir (?:ist|sind|wäre|wären)\b.*\blieber\b(?!.*\bgewesen\b)",  # Mir ist Tee lieber.
    rf"^wenn ich\b[^,]*, ?(?:dann )?{_BITTE}\b",  # Wenn ich frage, gib mir die Quelle.
)
_ASKED: Final = re.compile("|".join(_IN_QUESTIONS), re.I)
_STATED: Final = re.compile("|".join((*_IN_QUESTIONS, *_IN_STATEMENTS)), re.I)


def wishes_in(text: str) -> list[str]:
    """Return the sentences of a text that are standing wishes of its author; a long one from its wish on, and cut."""
    if _WORDS.isdisjoint(re.findall(r"\w+", text.lower())):
        return []
    text = text[:_MAX_TEXT_CHARS]
    # The same number of characters, so that places in it are places in the text.
    prose = _NO_PROSE.sub(lambda found: re.sub(r"[^\n]", "·", found[0]), text.replace("’", "'"))
    wishes = []
    for sentence in _SENTENCE.finditer(prose):
        words = sentence["words"][:_MAX_SENTENCE_CHARS]
        wish = (_ASKED if words.rstrip().endswith("?") else _STATED).search(words)
        if wish and not _REPORTED.search(words):
            skipped = wish.start() if len(words) > MAX_WISH_CHARS else 0
            shown = text[sentence.start("words") + skipped : sentence.end()].strip(" ,;:-–—")
            wishes.append(shown if len(shown) <= MAX_WISH_CHARS else shown[: MAX_WISH_CHARS - 2] + " …")
    return wishes


_ASKS_FOR_ADVICE: Final = re.compile(
    r"(?i)\bhow (?:should|do|can|could|would|might) (?:I|we|you)\b|\b(?:what|which|where|who)\b[^?]*\bshould (?:I|we)\b"
    r"|^should (?:I|we)\b|\b(?:can|could|would|will|do) you (?:\w+ )?(?:recommend|suggest|advise|think I should)\b"
    r"|(?:\b(?:can|could|would|will) you |^)(?:please )?(?:help|show|write|give|explain|walk|draft|create|make|plan"
    r"|prepare|compose|design|recommend|suggest)\b|\b(?:good|best|different|better|other) ways? (?:to|of|I)\b"
    r"|\b(?:any|some|more|good|your) (?:recommendations?|suggestions?|advice|tips|ideas)\b|\bhelp me\b"
    r"|\bwhat are some (?:good|common|other|ways)\b|\bwie (?:soll|sollte|kann|könnte|würdest|mache|schreibe)\b"
    r"|\bempf(?:iehl|ehl)|\bschlägst\b|\b(?:kannst|könntest|würdest) du\b|\bhilf mir\b|\btipps\b|\bsoll(?:te)? ich\b"
    r"|^(?:bitte )?(?:schreibe?|erstelle?|plane|entwirf|zeige? mir|gib mir)\b"
)
_ASKS_FOR_PAST: Final = re.compile(
    r"(?i)\bsummar|\border in which\b|\b(?:our|these|my) (?:conversation|discussion|chat)s?\b|\bzusammenfass"
    r"|\b(?:did|have|has|had) (?:you|we|I)\b|\breihenfolge\b|\b(?:habe ich|hast du|haben wir)\b"
)


def asks_for_advice(question: str) -> bool:
    """Return whether a question asks for advice, for help or for something to be made, and not for what was said."""
    return _ASKS_FOR_ADVICE.search(question.strip()) is not None and _ASKS_FOR_PAST.search(question) is None
