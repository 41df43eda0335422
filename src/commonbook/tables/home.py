"""What the home knows of itself: its id, when it was made, the time zone of its dates."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from commonbook.errors import Moved
from commonbook.ports.database import Reading, Row, Transaction


def facts(tx: Reading) -> dict[str, str]:
    """Return everything recorded about the home."""
    return dict(tx.rows("SELECT name, value FROM home"))


def replace(tx: Transaction, **values: str) -> None:
    """Record facts, over what is there."""
    for name, value in values.items():
        tx.run(
            "INSERT INTO home (name, value) VALUES (:name, :value)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            name=name,
            value=value,
        )


def forget(tx: Transaction, name: str) -> None:
    """Take a fact away."""
    tx.run("DELETE FROM home WHERE name = :name", name=name)


def moved_deferred(tx: Transaction) -> Callable[[], list[Row]]:
    """Ask whether the book is here, for `require_here`, and return what waits for the answer."""
    return tx.defer("SELECT name, value FROM home WHERE name IN ('moved_to', 'moving_from')")


def require_not_moved(facts: Iterable[Row]) -> None:
    """Refuse to change a book that was moved elsewhere, or is still being moved to this place."""
    for name, value in facts:
        if name == "moved_to":
            how = "COMMONBOOK_DATABASE=" if "://" in value else "--home "
            raise Moved(f"this book was moved to {value}", fix=f"use it there: {how}{value}")
        if name == "moving_from":
            raise Moved("this book is being moved here", fix="wait for `commonbook migrate` to end, or run it again")


def record(tx: Transaction, **values: str) -> None:
    """Record facts that are not recorded yet; what is there stays."""
    for name, value in values.items():
        tx.run("INSERT INTO home (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING", name=name, value=value)
