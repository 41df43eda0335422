"""Every error of ours, in one tree. Each says what is wrong and how to mend it.

CommonbookError                 exit code 1
├── BadInput                     2   what was asked cannot be: nothing was changed
│   ├── BadSpaceName
│   ├── BadText
│   ├── TooLarge
│   ├── BadTime
│   └── BadFile                      a Markdown file that does not parse
├── NotFound                     3
├── NotAllowed                   4
├── Conflict                     5
│   ├── VersionConflict
│   ├── KeyConflict                  an idempotency key used again for other content
│   ├── SpaceExists
│   └── FileInTheWay                 a memory whose file is malformed, or a taken path
├── Busy                         1   somebody else holds the lock for too long
├── TooMany                      1   more in a minute than the actor may: says when to come back
├── EmbedderFailed               1   no vectors: a package, model or service is missing or misbehaves
├── TransportError               1   a server has not taken a client's messages, or nobody knows whether it has
│   ├── Unreachable                  nobody answered in time: says nothing about the messages, tried again for ever
│   │   └── ServerBusy               the server asks to come back later
│   ├── ServerFailed                 the server answered with an error of its own: tried again, not for ever
│   └── Refused                      the server will never take the messages that it names
└── HomeError                    1
    ├── HomeIsNewer
    ├── Moved                        the book is elsewhere now
    ├── HomeReadOnly
    ├── HomeDamaged
    ├── DiskFull
    ├── KeyMissing                   the signing key of an existing log
    ├── NetworkFileSystem
    └── DatabaseError
        ├── DatabaseUnreachable          no server there, or none that takes writes
        │   └── ServerLost                   it was there a moment ago
        ├── DatabaseRefused              a wrong password, no such user or database
        ├── DatabaseUnfit                too old, without pgvector, or not ours to use
        └── NotReplicated                a write that only one server has
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar


class CommonbookError(Exception):
    """The root of the tree: a message for people, and a fix."""

    exit_code: ClassVar[int] = 1
    item: int | None = None
    """Which of several things that were asked for at once is meant, counted from 0."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        """Say what is wrong, and how to mend it."""
        super().__init__(message)
        self.message = message
        self.fix = fix

    @property
    def type(self) -> str:
        """The name of the error for machines: `version_conflict`, `not_found`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()


class BadInput(CommonbookError):
    """What was asked cannot be done as it was asked."""

    exit_code = 2


class BadSpaceName(BadInput):
    """A name that no space can have."""


class BadText(BadInput):
    """Text that cannot be stored as given."""


class TooLarge(BadInput):
    """More than one memory, title or tag may hold."""


class BadTime(BadInput):
    """A time or date that cannot be read."""


class BadFile(BadInput):
    """A Markdown file that does not parse; if that is for one field alone, which one, and on which line."""

    def __init__(self, message: str, *, fix: str = "", field: str = "", line: int = 0) -> None:
        """Say what is wrong, and where."""
        super().__init__(message, fix=fix)
        self.field, self.line = field, line


class NotFound(CommonbookError):
    """No such thing, or none that the actor may see."""

    exit_code = 3


class NotAllowed(CommonbookError):
    """The actor lacks the right."""

    exit_code = 4


class Conflict(CommonbookError):
    """The book is not in the state that the caller believed."""

    exit_code = 5


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
    """A space of that name is there already."""


class FileInTheWay(Conflict):
    """A file stands in the way of the change and must be mended first."""


class Busy(CommonbookError):
    """Another process held the lock for longer than we wait."""

    one_thing: bool = False
    """Whether another held one thing that was needed, while all the rest may be free."""


class TooMany(CommonbookError):
    """The actor did this more often in a minute than it may; nothing was changed."""

    def __init__(self, message: str, *, retry_after: float, fix: str = "") -> None:
        """Say what, and after how many seconds it may be tried again."""
        super().__init__(message, fix=fix)
        self.retry_after = retry_after


class EmbedderFailed(CommonbookError):
    """The embedder cannot be had, or did not give the vectors that it was asked for."""


class TransportError(CommonbookError):
    """The server has not taken the messages, or nobody knows whether it has."""


class Unreachable(TransportError):
    """No answer in time: the server is down, or the way to it is (a gateway's 502, 503 and 504 too)."""


class ServerBusy(Unreachable):
    """The server asks to be left alone for some seconds."""

    def __init__(self, message: str, *, retry_after: float, fix: str = "") -> None:
        """Say why, and for how long."""
        super().__init__(message, fix=fix)
        self.retry_after = retry_after


class ServerFailed(TransportError):
    """The server answered, but with an error of its own, perhaps because of a message."""


class Refused(TransportError):
    """The server took nothing of the call, and will never take the messages with these client ids.

    Without ids nobody knows which of the messages it was: each is then sent by itself.
    """

    def __init__(self, message: str, *, client_ids: Iterable[str] = (), fix: str = "") -> None:
        """Say why, and which."""
        super().__init__(message, fix=fix)
        self.client_ids = tuple(client_ids)


class HomeError(CommonbookError):
    """The home itself cannot be used."""


class HomeIsNewer(HomeError):
    """The home was written by a newer program."""


class Moved(HomeError):
    """The book was moved: it is written to elsewhere now."""


class HomeReadOnly(HomeError):
    """The home cannot be written to."""


class HomeDamaged(HomeError):
    """The database is not one that we can read."""


class DiskFull(HomeError):
    """There is no room left."""


class KeyMissing(HomeError):
    """The log was signed with a key that is not there."""


class NetworkFileSystem(HomeError):
    """The home is on a file system whose locks cannot be trusted."""


class DatabaseError(HomeError):
    """The database server cannot be used."""


class DatabaseUnreachable(DatabaseError):
    """No server answers, or none that takes writes."""


class ServerLost(DatabaseUnreachable):
    """The server was lost in the middle of something."""


class DatabaseRefused(DatabaseError):
    """The server does not let us in."""


class DatabaseUnfit(DatabaseError):
    """The server or the database lacks what a book needs."""


class NotReplicated(DatabaseError):
    """A change was made on one server, and is not known to be on its standby: it does not count as acknowledged."""
