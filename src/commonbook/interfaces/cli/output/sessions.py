"""How sessions and their messages are laid out for people.

A heading begins at the left edge and nothing that was said does, so that no message can pass for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from commonbook.interfaces.cli.output.plain import Output, one_line
from commonbook.model.session import AppendReceipt, Message, MessagePage, Session, SettleReport, WorkReport

_INDENT: Final = 2
_VOICES: Final = {"user": "bold cyan", "assistant": "bold green"}
_OTHER_VOICE: Final = "bold magenta"

_Phrase: TypeAlias = tuple[str, str]


def captured(out: Output, said: AppendReceipt) -> None:
    """What became of the messages that were sent; whatever was not as expected goes beside it."""
    new = [one for one in said.messages if one.new]
    rows = [(said.session, str(one.seq), one.id, "new" if one.new else "repeat") for one in said.messages]
    out.report(f"Appended {_counted(len(new), 'message')} to {said.session}{_numbers([one.seq for one in new])}", rows)
    if repeats := len(said.messages) - len(new):
        out.note(f"note: {_counted(repeats, 'message')} had been sent before")
    if masked := sum(one.masked for one in said.messages):
        out.note(f"note: {_counted(masked, 'secret')} {'was' if masked == 1 else 'were'} masked")
    if gone := [one.seq for one in said.messages if one.rewound]:
        out.note(f"note: {_counted(len(gone), 'message')} had been taken back and stays so{_numbers(gone)}")


def settled(out: Output, did: str, said: SettleReport) -> None:
    """Which episodes were made of a session, and what is still open."""
    made = f"settled {said.session} into {_counted(len(said.episodes), 'episode')}{_open(said)}"
    sentence = f"{did} {made}" if did else made[:1].upper() + made[1:]
    out.report(sentence, [(said.session, one) for one in said.episodes])


def worked(out: Output, said: WorkReport) -> None:
    """What became of a piece of work."""
    session, made = said.settled.session, said.settled.episodes
    if said.error:
        out.line(f"{one_line(session)}: failed: {one_line(said.error)}", "red")
    elif made:
        names = ", ".join(out.name(one) for one in made)
        out.line(f"{one_line(session)}: settled into {_counted(len(made), 'episode')} ({names}){_open(said.settled)}")
    else:
        out.line(f"{one_line(session)}: nothing to settle yet{_open(said.settled)}", "dim")


def rewound(out: Output, session: str, taken: Sequence[Message]) -> None:
    """Which messages were taken back."""
    sentence = f"Took back {_counted(len(taken), 'message')} of {session}{_numbers([one.seq for one in taken])}"
    out.report(sentence, [(session, str(one.seq), one.id) for one in taken])


def messages(out: Output, said: MessagePage) -> None:
    """A session: what is known about it, and what was said, with the episodes in which it is kept."""
    out.styled(_about(out, said.session))
    kept: str | None = ""
    for one in said.items:
        if one.rewound_at is None and one.episode != kept:
            kept = one.episode
            out.line("")
            out.line(f"- episode {out.name(kept)}" if kept else "- not in an episode yet", "dim")
        out.line("")
        _message(out, one)
    if said.next is not None:
        out.note(f"there are more: --after {said.next}")


def _about(out: Output, said: Session) -> Iterator[_Phrase]:
    yield one_line(said.id), "bold"
    yield f"  {said.space.name}  {_counted(said.last, 'message')}", "dim"
    yield f", {said.unsettled} not settled" if said.unsettled else "", "dim"
    yield f"  begun {out.moment(said.created)}", "dim"
    yield f", closed {out.moment(said.closed)}" if said.closed else "", "dim"
    yield f"  goes on from {one_line(said.parent)}" if said.parent else "", "dim"
    yield "".join(f"  #{one_line(tag)}" for tag in said.tags), "dim"


def _message(out: Output, said: Message) -> None:
    gone = said.rewound_at is not None
    out.styled(_heading(out, said))
    out.styled([(said.text.strip("\r\n"), "dim" if gone else "")], indent=_INDENT)


def _heading(out: Output, said: Message) -> Iterator[_Phrase]:
    voice = _VOICES.get(said.role, _OTHER_VOICE)
    yield one_line(said.author), "dim" if said.rewound_at else voice
    if said.role not in said.author.split(":"):
        yield f" ({said.role})", "dim"
    yield f"  {out.moment(said.time)}  {said.seq}", "dim"
    if said.rewound_at is not None:
        yield f"  taken back {out.moment(said.rewound_at)}", "yellow"


def sessions(out: Output, said: Sequence[Session]) -> None:
    """Some sessions, newest first."""
    if not said:
        out.note("no sessions")
        return
    headers = ("session", "space", "begun", "messages", "unsettled", "state", "goes on from", "tags")
    out.table(
        headers,
        [
            (
                one.id,
                one.space.name,
                out.moment(one.created),
                str(one.last),
                str(one.unsettled),
                "closed" if one.closed else "open",
                one.parent or "",
                ", ".join(one.tags),
            )
            for one in said
        ],
    )


def _open(said: SettleReport) -> str:
    return f", {_counted(said.unsettled, 'message')} still open" if said.unsettled else ""


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _numbers(seqs: Sequence[int]) -> str:
    """Word the numbers of messages, which follow one another but for those that were there before."""
    if not seqs:
        return ""
    return f" (number {seqs[0]})" if len(seqs) == 1 else f" (numbers {seqs[0]} to {seqs[-1]})"
