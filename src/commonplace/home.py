"""What the home knows of itself: its id, when it was made, the time zone of its dates."""

from __future__ import annotations

from commonplace.ports import Reading, Transaction


def facts(tx: Reading) -> dict[str, str]:
    """Return everything recorded about the home."""
    return dict(tx.rows("SELECT name, value FROM home"))


def record(tx: Transaction, **values: str) -> None:
    """Record facts that are not recorded yet; what is there stays."""
    for name, value in values.items():
        tx.run("INSERT INTO home (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING", name=name, value=value)
