"""The tree of errors. Each has a message that says what is wrong, and a fix; an interface maps each branch once.

CommonbookError
├── BadInput                         an invalid request: nothing was changed
│   ├── BadSpaceName
│   ├── BadText
│   ├── TooLarge
│   ├── BadTime
│   ├── Ambiguous                    a name that means several things: name the space too
│   └── BadFile                      a Markdown file that does not parse
├── NotFound
├── NotAllowed
├── Conflict
│   ├── VersionConflict
│   ├── KeyConflict                  an idempotency key used again for other content
│   ├── SpaceExists
│   ├── AddressTaken                 a port that another program listens on
│   └── FileInTheWay                 a memory whose file is malformed, or a path that is taken
├── Busy                             another process held a lock for too long
├── TooMany                          above a rate limit: has the seconds until the next try
├── EmbedderFailed                   no vectors: a package, model or service is missing or fails
├── UnsupportedSystem                an operating system without the locks and files that a book needs
├── TransportError                   a server has not stored a client's messages, or it is not known whether it has
│   ├── Unreachable                  no answer in time: tells nothing about the messages, retried without end
│   │   ├── UntrustedServer          its certificate is not trusted: a call is not retried
│   │   └── ServerBusy               the server asks to retry later
│   ├── ServerFailed                 the server answered with an internal error: retried a limited number of times
│   └── Refused                      the server will never store the messages that it names
└── HomeError
    ├── NoHome                       no book there: nothing was made
    ├── ForeignHome                  a folder brings the keys and the database of another machine
    ├── HomeOfAnotherBuild
    ├── Moved                        the book was moved to another place
    ├── HomeReadOnly
    ├── HomeDamaged
    ├── DiskFull
    ├── KeyMissing                   no keys of an existing book, or those of another one
    ├── NetworkFileSystem
    └── DatabaseError
        ├── DatabaseUnreachable          no server there, or none that takes writes
        │   └── ServerLost                   the connection broke
        ├── DatabaseRefused              a wrong password, no such user or database
        ├── DatabaseUnfit                too old, without pgvector, or without the needed permissions
        └── NotReplicated                a write that is not known to be on the standby server
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class CommonbookError(Exception):
    """The root of the tree: a message for people, and a fix."""

    item: int | None = None
    """The index of the item of a batch that the error is about, counted from 0."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        """Describe what is wrong, and how to correct it."""
        super().__init__(message)
        self.message = message
        self.fix = fix
        if fix:
            # A traceback shows it below the message.
            self.add_note(f"fix: {fix}")

    @property
    def type(self) -> str:
        """The name of the error for programs: `version_conflict`, `not_found`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()


class BadInput(CommonbookError):
    """The request is invalid; nothing was changed."""


class BadSpaceName(BadInput):
    """A name that no space can have."""


class BadText(BadInput):
    """Text that cannot be stored as given."""


class TooLarge(BadInput):
    """A text, title or tag is larger than its limit."""


class BadTime(BadInput):
    """A time or date that does not parse."""


class Ambiguous(BadInput):
    """A name that several things have, such as sessions in several spaces."""


class BadFile(BadInput):
    """A Markdown file that does not parse."""


class NotFound(CommonbookError):
    """It does not exist, or the actor may not see it."""


class NotAllowed(CommonbookError):
    """The actor lacks the permission."""

    aimed_at: tuple[str, ...] = ()
    """The memories of other spaces that the attempt would have changed: for the log, and for no answer."""


class Conflict(CommonbookError):
    """The book is not in the state that the caller assumed."""


class VersionConflict(Conflict):
    """The memory has changed since the caller read it."""

    def __init__(self, *, memory: str, expected: int, found: int) -> None:
        """Name the memory and both versions."""
        super().__init__(
            f"memory {memory} is at version {found}, not {expected}",
            fix="read the memory again and repeat the change on its present version",
        )
        self.memory, self.expected, self.found = memory, expected, found


class KeyConflict(Conflict):
    """An idempotency key that was used before, for other content."""


class SpaceExists(Conflict):
    """A space of that name exists already."""


class AddressTaken(Conflict):
    """A server cannot listen on an address, because another program does or this user may not."""


class FileInTheWay(Conflict):
    """A file prevents the change, and must be corrected or moved first."""


class Busy(CommonbookError):
    """Another process or thread held a lock for longer than we wait."""

    single_lock: bool = False
    """Whether a single lock could not be had, while all others may be free."""


class TooMany(CommonbookError):
    """The actor exceeded its rate limit per minute; nothing was changed."""

    def __init__(self, message: str, *, retry_after: float, fix: str = "") -> None:
        """Describe the limit, and give the seconds until the next try."""
        super().__init__(message, fix=fix)
        self.retry_after = retry_after


class EmbedderFailed(CommonbookError):
    """The embedder is not available, or did not return the requested vectors."""


class UnsupportedSystem(CommonbookError):
    """The operating system lacks what a book needs of locks and files."""


class TransportError(CommonbookError):
    """The server has not stored the messages, or it is not known whether it has."""


class Unreachable(TransportError):
    """No answer in time: the server or the network is down (also a gateway's 502, 503 and 504)."""


class UntrustedServer(Unreachable):
    """The certificate of the server is not trusted, so that nothing was sent; it is not tried again."""


class ServerBusy(Unreachable):
    """The server asks to retry after some seconds."""

    def __init__(self, message: str, *, retry_after: float, fix: str = "") -> None:
        """Describe why, and give the seconds until the next try."""
        super().__init__(message, fix=fix)
        self.retry_after = retry_after


class ServerFailed(TransportError):
    """The server answered with an internal error, perhaps because of a message."""


class Refused(TransportError):
    """The server stored nothing of the call, and will never store the messages with these client ids.

    Without ids it is not known which message was the cause: each is then sent in a call of its own.
    """

    def __init__(self, message: str, *, client_ids: Iterable[str] = (), fix: str = "") -> None:
        """Describe why, and name the messages."""
        super().__init__(message, fix=fix)
        self.client_ids = tuple(client_ids)


class HomeError(CommonbookError):
    """The home itself cannot be used."""


class NoHome(HomeError):
    """There is no book at the place that was named, and none was made."""


class ForeignHome(HomeError):
    """A folder brings a `.commonbook/` that was not made on this machine."""


class HomeOfAnotherBuild(HomeError):
    """The home was written by another build of the program, with another schema."""


class Moved(HomeError):
    """The book was moved to another place, and is written to there."""


class HomeReadOnly(HomeError):
    """The home cannot be written to."""


class HomeDamaged(HomeError):
    """The database is damaged or cannot be read."""


class DiskFull(HomeError):
    """The disk has no free space left."""


class KeyMissing(HomeError):
    """The keys of the book are missing, or others are in their place."""


class NetworkFileSystem(HomeError):
    """The home is on a file system whose locks cannot be trusted."""


class DatabaseError(HomeError):
    """The database server cannot be used."""


class DatabaseUnreachable(DatabaseError):
    """No server answers, or none that takes writes."""


class ServerLost(DatabaseUnreachable):
    """The connection to the server broke during an operation."""


class DatabaseRefused(DatabaseError):
    """The server refuses the connection."""


class DatabaseUnfit(DatabaseError):
    """The server or the database lacks a feature that a book needs."""


class NotReplicated(DatabaseError):
    """A change was committed on one server, but is not known to be on its standby: it is not acknowledged."""
