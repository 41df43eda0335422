"""Labels of passages: texts by which the index filters exactly, beside the tags of a memory.

An index stores labels as it stores tags. Each begins with a control character, which no tag can have.
"""

from __future__ import annotations

from commonbook.model.memory import Memory
from commonbook.model.recall import RecallRequest
from commonbook.text import metadata


def labels_of_message(*, session: str, author: str) -> tuple[str, ...]:
    """Return the labels of a message in the log of a session."""
    return _session(session), _author(author)


def labels_of_passage(memory: Memory, *, author: str) -> tuple[str, ...]:
    """Return the labels of a passage of a memory; `author` is that of the message, if it is one.

    An episode belongs to a session of its own space. One that was moved away belongs to none.
    """
    of_session = memory.kind == "episode" and memory.session and memory.session_space is None
    by_session = (_session(memory.session or ""),) if of_session else ()
    return (*by_session, _author(author), *metadata.labels_of(memory.metadata))


def labels_of_request(request: RecallRequest) -> tuple[str, ...]:
    """Return the labels that a passage must have to be found."""
    by_session = () if request.session is None else (_session(request.session),)
    by_author = () if request.author is None else (_author(request.author),)
    return (*by_session, *by_author, *metadata.labels_of(request.metadata))


def _session(name: str) -> str:
    return f"\x01session {name}"


def _author(name: str) -> str:
    return f"\x01author {name}"
