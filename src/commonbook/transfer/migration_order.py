"""The order of a migration: refuses steps in a wrong order, before anything is changed, and names the next command.

All decisions are pure: callers pass what they have read about the old and the new book.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from commonbook.errors import BadInput, Conflict, KeyMissing, NoHome
from commonbook.ports.keys import Keys
from commonbook.tables import home

_HOME_NAMED: Final = "`commonbook --home FOLDER migrate TO`"
_KEYS_OUTSIDE: Final = (
    "choose a folder outside of the home: `export COMMONBOOK_KEYS=FOLDER`, then run `commonbook migrate` again: "
    "it copies the keys of the home there"
)


class TargetBook(NamedTuple):
    """The state of the new book: the facts about its home, and whether it has memories."""

    facts: Mapping[str, str]
    in_use: bool


# --- the places of both books


def require_home(folder: str, *, exists: bool) -> None:
    """Refuse to move a home that is not there."""
    if not exists:
        raise NoHome(f"there is no home at {folder}", fix=f"name the home to move: {_HOME_NAMED}")


def require_own_folder(folder: str, *, has_other_files: bool) -> None:
    """Refuse a new home in a folder with files that do not belong to a book."""
    if has_other_files:
        raise Conflict(
            f"{folder} has files of its own, which would become memories of the book",
            fix="name a new or empty folder",
        )


def require_other_server(old: str | None, new: str) -> None:
    """Refuse to move a book on a server to the place where it is; `old` is None for a home."""
    if old == new:
        raise Conflict(f"the book is in {new} already", fix=f"to move a home there, name it: {_HOME_NAMED}")


# --- the keys


def require_keys_outside(keys: str | None, home_folder: str) -> str:
    """Return the folder for the keys of a home that moves to a server: it must be named, and outlive the home."""
    if keys is None:
        raise KeyMissing("COMMONBOOK_KEYS does not say where the keys of the new book will be", fix=_KEYS_OUTSIDE)
    if os.path.commonpath([keys, home_folder]) == home_folder:
        raise BadInput(
            f"the folder {keys} of COMMONBOOK_KEYS is in the home, which will be removed some day", fix=_KEYS_OUTSIDE
        )
    return keys


def require_no_other_keys(
    folder: str, wanted: Mapping[str, bytes], existing: Mapping[str, bytes], *, to_server: bool
) -> None:
    """Refuse a folder for the keys that has those of another book; both are contents of files by their names."""
    if any(existing[name] != data for name, data in wanted.items() if name in existing):
        command = command_with_other_keys(to_server=to_server)
        raise Conflict(
            f"the folder {folder} has the keys of another book",
            fix=f"choose a folder that does not exist yet, which gets the keys of this book: {command}",
        )


def command_with_other_keys(*, to_server: bool) -> str:
    """Return the command that migrates with another folder for the keys."""
    return (
        "`commonbook migrate` again, after `export COMMONBOOK_KEYS=FOLDER`"
        if to_server
        else "`commonbook migrate FOLDER`"
    )


def require_same_keys(old: Keys, new: Keys) -> None:
    """Refuse a new book with keys of its own."""
    if old.key_id != new.key_id or old.keyed_hash("") != new.keyed_hash(""):
        raise Conflict(
            "the two books have different keys, so that the log could not be verified in the new one",
            fix="name a database or a home that nobody has used, which gets the keys of the old one",
        )


# --- the old and the new book


def has_moved(old: Mapping[str, str], new: Mapping[str, str], *, to: str) -> bool:
    """Tell whether an earlier try has closed the old book, and was interrupted before it opened the new one."""
    return old.get("moved_to") == to and new.get("moving_from") == old["id"]


def require_movable(old: Mapping[str, str], target: TargetBook, *, to: str) -> None:
    """Refuse a book that was moved already, and a new book that is in use; an earlier try may continue."""
    if not has_moved(old, target.facts, to=to):
        home.require_not_moved(old.items())
        require_unused(old, target, to=to)


def require_unused(old: Mapping[str, str], target: TargetBook, *, to: str) -> None:
    """Refuse a new book that has memories, unless they are those of an earlier try of this migration."""
    if target.facts.get("moving_from") == old["id"]:
        return
    is_server = "://" in to
    if target.facts.get("id") == old["id"]:
        raise Conflict(
            f"the new book is this book: it is in {to} already",
            fix=f"to move a home, name it: {_HOME_NAMED}" if is_server else "name a folder that does not exist yet",
        )
    if target.in_use:
        empty = "name an empty database (`createdb NAME` makes one)" if is_server else "name a folder that is not there"
        raise Conflict(
            f"there is a book with memories in {to} already",
            fix=f"{empty}; or bring the memories into that book: `commonbook export FOLDER` here, "
            "`commonbook import FOLDER` there",
        )
