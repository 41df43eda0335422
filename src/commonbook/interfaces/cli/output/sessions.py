"""Layout of sessions and their messages for people.

Only headings begin at the left edge, so that no text of a message can look like a heading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from commonbook.interfaces.cli.output import Output, counted, one_line

if TYPE_CHECKING:
    from commonbook.values.session import (
        AppendReceipt,
        Message,
        MessagePage,
        PromptUse,
        Session,
        SettleReport,
        WorkReport,
    )

_INDENT: Final = 2
_ROLE_STYLES: Final = {"user": "bold cyan", "assistant": "bold green"}
_OTHER_ROLE_STYLE: Final = "bold magenta"

_Phrase: TypeAlias = tuple[str, str]


def show_append_receipt(out: Output, receipt: AppendReceipt) -> None:
    """Show the receipt of an append; repeats, masked secrets and rewound messages become notes."""
    new = [message for message in receipt.messages if message.new]
    rows = [
        (receipt.session, str(message.seq), message.id, "new" if message.new else "repeat", receipt.space)
        for message in receipt.messages
    ]
    out.report(
        f"Appended {counted(len(new), 'message')} to {receipt.session} in {receipt.space}"
        f"{_numbers([message.seq for message in new])}",
        rows,
    )
    if repeats := len(receipt.messages) - len(new):
        out.note(f"note: {counted(repeats, 'message')} {_was(repeats)} sent before")
    if masked := sum(message.masked for message in receipt.messages):
        out.note(f"note: {counted(masked, 'secret')} {_was(masked)} masked")
    if rewound := [message.seq for message in receipt.messages if message.rewound]:
        count = counted(len(rewound), "message")
        out.note(f"note: {count} {_was(len(rewound))} rewound before, and not restored{_numbers(rewound)}")


def show_settle_report(out: Output, prefix: str, report: SettleReport) -> None:
    """Show the episodes that were made of a session, and how many messages are not settled."""
    count = counted(len(report.episodes), "episode")
    clause = f"settled {report.session} in {report.space} into {count}{_unsettled(report)}"
    sentence = f"{prefix} {clause}" if prefix else clause[:1].upper() + clause[1:]
    out.report(sentence, [(report.session, episode, report.space) for episode in report.episodes])


def show_work_report(out: Output, report: WorkReport) -> None:
    """Show the result of one job of the worker."""
    session, episodes = f"{report.settled.session} in {report.settled.space}", report.settled.episodes
    if report.error:
        out.line(f"{one_line(session)}: failed: {one_line(report.error)}", "red")
    elif episodes:
        names = ", ".join(out.name(episode) for episode in episodes)
        count = counted(len(episodes), "episode")
        out.line(f"{one_line(session)}: settled into {count} ({names}){_unsettled(report.settled)}")
    else:
        out.line(f"{one_line(session)}: nothing to settle yet{_unsettled(report.settled)}", "dim")


def show_rewind(out: Output, session: str, messages: Sequence[Message]) -> None:
    """Show the messages that a rewind removed from the session."""
    sentence = (
        f"Rewound {counted(len(messages), 'message')} of {session}{_numbers([message.seq for message in messages])}"
    )
    out.report(sentence, [(session, str(message.seq), message.id) for message in messages])


def show_moved(out: Output, session: Session) -> None:
    """Show where a session is now."""
    out.report(f"Moved {session.id} to {session.space.name}", [(session.id, session.space.name)])


def show_messages(out: Output, page: MessagePage, used: Sequence[PromptUse] = ()) -> None:
    """Show a session and a page of its messages, grouped by the episodes that hold them, each with what it used."""
    out.styled(_about(out, page.session))
    _passages(out, (use for use in used if use.seq == 0))
    episode: str | None = ""
    for message in page.items:
        if message.rewound_at is None and message.episode != episode:
            episode = message.episode
            out.line("")
            out.line(f"- episode {out.name(episode)}" if episode else "- not in an episode yet", "dim")
        out.line("")
        _message(out, message)
        _passages(out, (use for use in used if use.seq == message.seq))
    if page.next is not None:
        out.note(f"there are more: --after {page.next}")


def _about(out: Output, session: Session) -> Iterator[_Phrase]:
    yield one_line(session.id), "bold"
    yield f"  {session.space.name}  {counted(session.last, 'message')}", "dim"
    yield f", {session.unsettled} not settled" if session.unsettled else "", "dim"
    yield f"  started {out.moment(session.created)}", "dim"
    yield f", closed {out.moment(session.closed)}" if session.closed else "", "dim"
    yield f"  parent {_parent(session)}" if session.parent else "", "dim"
    yield "".join(f"  #{one_line(tag)}" for tag in session.tags), "dim"


def _message(out: Output, message: Message) -> None:
    rewound = message.rewound_at is not None
    out.styled(_heading(out, message))
    out.styled([(message.text.strip("\r\n"), "dim" if rewound else "")], indent=_INDENT)


def _passages(out: Output, used: Iterable[PromptUse]) -> None:
    names = [out.name(use.memory) if use.memory else f"message {out.name(use.id)}" for use in used]
    if names:
        out.line(f"- put into the prompt: {', '.join(dict.fromkeys(names))}", "dim")


def show_uses(out: Output, used: Sequence[PromptUse]) -> None:
    """Show the turns of sessions that a memory was put into."""
    rows = [
        (
            use.session,
            use.space,
            str(use.seq) if use.seq else "start",
            "" if use.revision is None else str(use.revision),
            out.moment(use.at),
            use.by,
        )
        for use in used
    ]
    out.table_or_note(("session", "space", "message", "revision", "time", "by"), rows, note="it was put into no prompt")


def _heading(out: Output, message: Message) -> Iterator[_Phrase]:
    style = _ROLE_STYLES.get(message.role, _OTHER_ROLE_STYLE)
    yield one_line(message.author), "dim" if message.rewound_at else style
    if message.role not in message.author.split(":"):
        yield f" ({message.role})", "dim"
    yield f"  {out.moment(message.time)}  {message.seq}", "dim"
    if message.rewound_at is not None:
        yield f"  rewound {out.moment(message.rewound_at)}", "yellow"


def show_sessions(out: Output, sessions: Sequence[Session]) -> None:
    """Show several sessions, newest first."""
    rows = [
        (
            session.id,
            session.space.name,
            out.moment(session.created),
            str(session.last),
            str(session.unsettled),
            "closed" if session.closed else "open",
            _parent(session),
            ", ".join(session.tags),
        )
        for session in sessions
    ]
    out.table_or_note(
        ("session", "space", "started", "messages", "unsettled", "state", "parent", "tags"), rows, note="no sessions"
    )


def _parent(session: Session) -> str:
    """Return the parent of a session, with its space if that is another one."""
    if session.parent is None:
        return ""
    elsewhere = f" in {session.parent_space}" if session.parent_space not in {None, session.space.name} else ""
    return f"{one_line(session.parent)}{elsewhere}"


def _unsettled(report: SettleReport) -> str:
    return f", {counted(report.unsettled, 'message')} not settled yet" if report.unsettled else ""


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _numbers(seqs: Sequence[int]) -> str:
    """Return the numbers of messages as a range; they are consecutive, apart from repeats."""
    if not seqs:
        return ""
    return f" (number {seqs[0]})" if len(seqs) == 1 else f" (numbers {seqs[0]} to {seqs[-1]})"
