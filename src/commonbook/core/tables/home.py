"""The table `home`: a row is a named fact about the book, such as its id, its time of creation and its time zone.

The fact `moving_to` marks a book that is being moved elsewhere (by the move `move`), and `moved_to` one that was moved;
`moved_keys` is the folder that has its keys there. `moving_from` marks a book that is being moved to this place.
A fact `project <space>` names the git repository to which a space belongs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from commonbook.errors import Moved
from commonbook.ports.database import Reading, Transaction

_PROJECT: Final = "project "


def facts(tx: Reading) -> dict[str, str]:
    """Return all facts about the home, by name."""
    return dict(tx.rows("SELECT name, value FROM home"))


def replace(tx: Transaction, **values: str) -> None:
    """Record facts, in place of earlier values."""
    for name, value in values.items():
        tx.run(
            "INSERT INTO home (name, value) VALUES (:name, :value)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            name=name,
            value=value,
        )


def project_spaces(tx: Reading) -> dict[str, str]:
    """Return the spaces of git repositories by name, each with the identity of the repository that has it."""
    # All facts are read, which are few: a statement with LIKE would be compiled again for every call.
    return {name.removeprefix(_PROJECT): value for name, value in project_facts(facts(tx)).items()}


def claim_project_space(tx: Transaction, space: str, identity: str, *, instead_of: str | None = None) -> None:
    """Record the repository that has a space, unless another one has it; `instead_of` is its earlier identity."""
    if instead_of is None:
        record(tx, **{_PROJECT + space: identity})
    else:
        tx.run(
            "UPDATE home SET value = :identity WHERE name = :name AND value = :before",
            name=_PROJECT + space,
            identity=identity,
            before=instead_of,
        )


def project_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """Return those of the facts that say which repository a space belongs to."""
    return {name: value for name, value in facts.items() if name.startswith(_PROJECT)}


def delete_fact(tx: Transaction, name: str) -> None:
    """Delete a fact."""
    tx.run("DELETE FROM home WHERE name = :name", name=name)


def moved_error(known: Mapping[str, str]) -> Moved | None:
    """Return the error that a write to this book gets, if the book was moved or is being moved."""
    if "moving_from" in known:
        return Moved("this book is being moved here", fix="wait for `commonbook migrate` to end, or run it again")
    if "moving_to" in known:
        return Moved(
            f"this book is being moved to {known['moving_to']}",
            fix="wait for `commonbook migrate` to end; if it was killed, run it again, or"
            " `commonbook migrate --unlock` here",
        )
    if "moved_to" not in known:
        return None
    place = known["moved_to"]
    keys = f" COMMONBOOK_KEYS={shlex.quote(known['moved_keys'])}" if "moved_keys" in known else ""
    to = shlex.quote(place)
    fix = f"export COMMONBOOK_DATABASE={to}{keys}" if "://" in place else f"--home {to}"
    return Moved(f"this book was moved to {place}", fix=f"use it there: {fix}")


def require_not_moved(tx: Reading) -> None:
    """Raise Moved if the book was moved elsewhere, or is being moved away or to this place."""
    facts = tx.rows("SELECT name, value FROM home WHERE name IN ('moved_to', 'moved_keys', 'moving_to', 'moving_from')")
    if moved := moved_error(dict(facts)):
        raise moved


def record(tx: Transaction, **values: str) -> None:
    """Record facts that are not recorded yet; recorded values stay."""
    for name, value in values.items():
        tx.run("INSERT INTO home (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING", name=name, value=value)
