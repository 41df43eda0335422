"""Data sets of the laboratory in one shape: spaces with talks or notes, and questions with the turns that answer them.

The split is fixed: weights are tuned on one part of the questions, and figures are reported on the other. Only the
notes and the unrelated questions are part of this project; the talks are read from files that are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from commonbook import BadInput

DATA: Final = Path(__file__).parent / "data"
_TURN: Final = re.compile(r"D:?(\d+):(\d+)")
_TUNED_CHATS: Final = 5
_TUNED_TALKS: Final = 7


class Turn(NamedTuple):
    """A message of a talk."""

    id: str
    speaker: str
    role: str
    text: str


class Talk(NamedTuple):
    """A session: its turns follow each other."""

    id: str
    space: str
    time: datetime
    turns: Sequence[Turn]


class Note(NamedTuple):
    """A memory with a title, tags, aliases and links."""

    title: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    text: str


class Question(NamedTuple):
    """A question to a space, and the ids that answer it: turns, or titles of notes; none if nothing does."""

    text: str
    space: str
    evidence: frozenset[str]
    kind: str
    is_reported: bool
    sessions: frozenset[str] = frozenset()


class DataSet(NamedTuple):
    """Everything that is stored in one home, and asked of it."""

    name: str
    questions: Sequence[Question]
    talks: Sequence[Talk] = ()
    notes: Sequence[Note] = ()

    def reported(self) -> list[Question]:
        """Return the answerable questions whose figures are reported."""
        return [question for question in self.questions if question.is_reported and question.evidence]


def read(file: str | Path) -> DataSet:
    """Read a file of talks; its content tells which of the three shapes it has."""
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
        reader = _reader_of(content)
        return reader(Path(file).stem, content)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}", fix="give the path of a data set") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise BadInput(f"{file} holds no talks with questions", fix="see benchmarks/quality/README.md") from error


def _reader_of(content: Any) -> Callable[[str, Any], DataSet]:  # noqa: ANN401 - any JSON
    if isinstance(content, Mapping):
        return _many_talks
    return _chats if "conversation" in content[0] else _long_talks


def _with_sessions(questions: Sequence[Question], talks: Sequence[Talk]) -> list[Question]:
    """Return questions with the talks that their evidence is in."""
    talk_of = {turn.id: talk.id for talk in talks for turn in talk.turns}
    return [one._replace(sessions=frozenset(talk_of[turn] for turn in one.evidence)) for one in questions]


# --- chats between two people (LoCoMo)


def _chats(name: str, samples: Sequence[Mapping[str, Any]]) -> DataSet:
    talks, questions = list[Talk](), list[Question]()
    for number, sample in enumerate(samples, 1):
        space = f"chats/{number}"
        own = list(_chat_talks(space, number, sample["conversation"]))
        talks += own
        known = {turn.id for talk in own for turn in talk.turns}
        for question in sample["qa"]:
            named = _TURN.findall(" ".join(question.get("evidence", ())))
            evidence = frozenset(f"c{number}-D{int(day)}:{int(turn)}" for day, turn in named) & known
            kind, is_reported = str(question["category"]), number > _TUNED_CHATS
            # Questions of category 5 have no answer, although they name turns.
            questions.append(
                Question(str(question["question"]), space, evidence if kind != "5" else frozenset(), kind, is_reported)
            )
    return DataSet(name, _with_sessions([one for one in questions if one.evidence or one.kind == "5"], talks), talks)


def _chat_talks(space: str, number: int, conversation: Mapping[str, Any]) -> Iterator[Talk]:
    session = 0
    while f"session_{(session := session + 1)}_date_time" in conversation:
        at = datetime.strptime(conversation[f"session_{session}_date_time"], "%I:%M %p on %d %B, %Y")  # noqa: DTZ007 - it has none
        turns = [
            Turn(f"c{number}-{turn['dia_id']}", turn["speaker"], "user", turn["text"])
            for turn in conversation.get(f"session_{session}", ())
        ]
        if turns:
            yield Talk(f"c{number}-{session}", space, at.replace(tzinfo=UTC), turns)


# --- long talks with an assistant, each a space


def _long_talks(name: str, samples: Sequence[Mapping[str, Any]]) -> DataSet:
    talks, questions = list[Talk](), list[Question]()
    for number, sample in enumerate(samples, 1):
        space = f"talks/{number}"
        by_session: dict[int, list[Mapping[str, Any]]] = {}
        for turn in sample["turns"]:
            by_session.setdefault(turn["session"], []).append(turn)
        talks += [
            Talk(
                f"t{number}-{session}",
                space,
                _day(turns[0].get("date"), session),
                [Turn(f"t{number}-{turn['id']}", turn["speaker"], turn["speaker"], turn["text"]) for turn in turns],
            )
            for session, turns in by_session.items()
        ]
        questions += [
            Question(
                question["question"],
                space,
                frozenset(f"t{number}-{turn}" for turn in question["evidence"]),
                question["category"],
                number > _TUNED_TALKS,
            )
            for question in sample["questions"]
        ]
    return DataSet(name, _with_sessions([one for one in questions if one.evidence], talks), talks)


def _day(text: str | None, session: int) -> datetime:
    """Return the day of a session; one without a date follows the others by its number."""
    try:
        return datetime.strptime(text or "", "%B-%d-%Y").replace(tzinfo=UTC)
    except ValueError:
        return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=session)


# --- many talks with an assistant in one space


def _many_talks(name: str, content: Mapping[str, Any]) -> DataSet:
    talks, answers = list[Talk](), dict[str, set[str]]()
    for talk in content["talks"]:
        at = datetime.strptime(talk["date"], "%Y/%m/%d (%a) %H:%M").replace(tzinfo=UTC)
        turns = [
            Turn(f"{talk['id']}-{number}", turn["role"], turn["role"], turn["text"])
            for number, turn in enumerate(talk["turns"])
        ]
        answers[talk["id"]] = {
            turn.id for turn, source in zip(turns, talk["turns"], strict=True) if source.get("has_answer")
        }
        talks.append(Talk(talk["id"], "all", at, turns))
    questions = []
    for question in content["questions"]:
        has_answer = not question["id"].endswith("_abs")
        sessions = frozenset(question["sessions"]) if has_answer else frozenset[str]()
        evidence = frozenset(turn for session in sessions for turn in answers[session])
        kind = question["type"] if has_answer else "abstain"
        is_reported = not question["id"][0].isdigit()
        questions.append(Question(question["question"], "all", evidence, kind, is_reported, sessions))
    return DataSet(name, questions, talks)


# --- notes of this project


def notes() -> DataSet:
    """Return the notes of this project, and the questions about them."""
    parsed = [_note(block) for block in (DATA / "notes.txt").read_text(encoding="utf-8").split("== ")[1:]]
    questions = []
    for line in (DATA / "notes_questions.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            text, titles, kind = (field.strip() for field in line.split("|"))
            evidence = frozenset(title.strip() for title in titles.split(";"))
            questions.append(Question(text, "notes", evidence, kind, is_reported=True))
    return DataSet("notes", questions, notes=parsed)


def _note(block: str) -> Note:
    title, *lines = block.strip().splitlines()
    fields = {"tags": "", "aliases": ""}
    while lines and lines[0].partition(":")[0] in fields:
        name, _, value = lines.pop(0).partition(":")
        fields[name] = value
    tags, aliases = (tuple(part.strip() for part in value.split(",") if part.strip()) for value in fields.values())
    return Note(title, tags, aliases, "\n".join(lines))


def unrelated() -> list[str]:
    """Return questions that nothing in any of the data sets answers."""
    return (DATA / "unrelated_questions.txt").read_text(encoding="utf-8").splitlines()
