"""An offline move of a book into another database: lock, copy, verify, and only then switch.

1. The source records `moving_to`, and refuses writes from then on.
2. One transaction of the target copies all tables, compares their counts and hashes, and verifies the log. A move that
   is killed has copied nothing, and starts again from nothing.
3. The source records `moved_to`. This is the switch: until then the source is the book, and `unlock` opens it again.
4. The target, which refused writes by its fact `moving_from`, drops that fact and queues its Markdown files.

At no time do both books accept writes. A move that is killed between steps 3 and 4 is completed by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.core.files import journal
from commonbook.core.log import chain, verify
from commonbook.core.tables import home, memories, spaces
from commonbook.core.write.context import Pending, WriteContext
from commonbook.errors import Conflict, HomeDamaged
from commonbook.ports.database import Database, Reading, Row, Transaction
from commonbook.ports.engines import Engines
from commonbook.runtime import compress, decompress
from commonbook.values.ids import new_id
from commonbook.values.reports import MigrationReport, Progress
from commonbook.values.spaces import OWNER_ACTOR

_BATCH: Final = 500


class Table(NamedTuple):
    """A table of the book: the columns of its key, and the others. They are the same on both engines.

    `text` is a column of long texts, which one engine stores compressed.
    """

    name: str
    key: tuple[str, ...]
    rest: tuple[str, ...] = ()
    text: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, the key's columns first."""
        return self.key + self.rest


def _table(name: str, key: str, rest: str = "", *, text: str | None = None) -> Table:
    return Table(name, tuple(key.split()), tuple(rest.split()), text)


TABLES: Final = (
    _table("space", "id", "name created depth folder review"),
    _table("place", "id", "space"),
    Table("memory", memories.COLUMNS[:2], memories.COLUMNS[2:], "text"),
    _table("memory_tag", "space tag memory"),
    _table("mention", "space memory target", "name"),
    _table("memory_name", "space name memory"),
    _table("revision", "space memory revision", "title text author at how written_in", text="text"),
    _table("link", "space source relation target", "target_hash"),
    _table("idempotency", "space principal key", "content answer at"),
    _table("session", "space id", "parent_space parent tags created closed generation last"),
    _table(
        "message",
        "space session seq",
        "id role author text time client_id sent masked episode taken_back",
    ),
    _table("prompt_use", "space session seq item hash", "revision at principal"),
    _table("job", "id", "space kind subject state due attempts lease leased_until error created"),
    _table("change_count", "space", "last"),
    _table("change", "space subject", "number"),
    _table("log_entry", "space seq", "time actor action subjects payload previous hash signature key_id"),
    _table("log_head", "space", "seq hash signature key_id"),
    _table("kept_vector", "embedder hash", "vector"),
    _table("space_grant", "space principal", "role expires granted_by granted_at"),
    _table(
        "api_key",
        "id",
        "principal label limits created created_by expires revoked hash default_space"
        " login_code login_until login_hash login_nonce",
    ),
    _table("browser_session", "hash", "kind key_id expires"),
    _table("copy", "space root", "memory source mode"),
    _table("rule", "space id", "source maker kinds tags importance approval refresh created"),
    _table("rule_taken", "space rule root"),
    _table("rule_waiting", "space memory", "asked_by"),
    _table(
        "request",
        "space id",
        "memory root rule refresh name asked_by asked_at state decided_by decided_at note copy purpose",
    ),
    _table("rate_limit", "principal action", "per_minute set_by set_at"),
    _table("rate_count", "principal action", "counts"),
    _table("refusal_count", "space principal", "hour refused"),
)
"""All tables that are copied; tables of files, and tables of one engine alone, are not."""


def migrate(source: Engines, target: Engines, *, to: str, keys: str, progress: Progress) -> MigrationReport:
    """Move a book into another, which is empty or has the remains of an interrupted move of this book.

    `to` is the address of the new book, and `keys` the folder of its keys: the old one names both from then on.
    """
    counts: dict[str, int] = {}
    if require_movable(source.db, target.db, to=to):
        _require_same_keys(source, target)
        move = new_id()
        source.db.write(partial(_lock, move=move, to=to))
        try:
            with source.db.reading() as tx:
                counts = target.db.write(partial(_fill, source=tx, target=target, to=to, progress=progress))
            source.db.write(partial(_switch, move=move, to=to, keys=keys))
        except BaseException:
            # After the switch, this move holds no lock.
            unlock(source.db, move)
            raise
    files = target.db.write(partial(_open_target, target=target))
    journal.write_pending(target, progress=progress)
    key_id = target.keys.key_id
    return MigrationReport(to=to, rows=sum(counts.values()), tables=counts, files=files, keys=keys, key_id=key_id)


def require_movable(source: Database, target: Database, *, to: str) -> bool:
    """Refuse a book that was moved already, and a target in use; return whether there is anything left to copy."""
    with source.reading() as tx:
        old = home.facts(tx)
    with target.reading() as tx:
        if old.get("moved_to") == to and home.facts(tx).get("moving_from") == old["id"]:
            return False
        if moved := home.moved_error(old):
            raise moved
        _require_unused(tx, old, to=to)
    return True


def unlock(source: Database, move: str | None = None) -> bool:
    """Let a book that is being moved, by this move or by any, be written to again; return whether it was locked."""

    def delete_lock(tx: Transaction) -> bool:
        holder = home.facts(tx).get("move")
        if holder is None or (move is not None and holder != move):
            return False
        _delete_lock(tx)
        return True

    return source.write(delete_lock)


def _require_same_keys(source: Engines, target: Engines) -> None:
    if source.keys.key_id != target.keys.key_id or source.keys.keyed_hash("") != target.keys.keyed_hash(""):
        raise Conflict(
            "the two books have different keys, so that the log could not be verified in the new one",
            fix="name a database or a home that nobody has used, which gets the keys of the old one",
        )


def _require_unused(target: Reading, old: Mapping[str, str], *, to: str) -> None:
    """Refuse a target that has memories, unless they are the remains of an earlier move of this book."""
    new = home.facts(target)
    if new.get("moving_from") == old["id"]:
        return
    is_server = "://" in to
    if new.get("id") == old["id"]:
        raise Conflict(
            f"the new book is this book: it is in {to} already",
            fix="to move a home, name it: `commonbook --home FOLDER migrate TO`"
            if is_server
            else "name a folder that does not exist yet",
        )
    if target.row("SELECT 1 FROM space LIMIT 1"):
        empty = "name an empty database (`createdb NAME` makes one)" if is_server else "name a folder that is not there"
        raise Conflict(
            f"there is a book with memories in {to} already",
            fix=f"{empty}; or bring the memories into that book: `commonbook export FOLDER` here, "
            "`commonbook import FOLDER` there",
        )


# --- the source


def _lock(tx: Transaction, *, move: str, to: str) -> None:
    """Refuse writes from now on, after waiting for those under way."""
    spaces.lock(tx)
    chain.lock(tx, list(spaces.get_all(tx)))
    home.require_not_moved(tx)
    home.replace(tx, moving_to=to, move=move)


def _switch(tx: Transaction, *, move: str, to: str, keys: str) -> None:
    if home.facts(tx).get("move") != move:
        raise Conflict(
            "the book was unlocked during its move, which is given up", fix="run `commonbook migrate` again, once"
        )
    home.replace(tx, moved_to=to, moved_keys=keys)
    _delete_lock(tx)


def _delete_lock(tx: Transaction) -> None:
    home.delete_fact(tx, "moving_to")
    home.delete_fact(tx, "move")


# --- the target


def _fill(tx: Transaction, *, source: Reading, target: Engines, to: str, progress: Progress) -> dict[str, int]:
    """Copy everything into the target, and verify the copy; return the number of rows of each table."""
    # Another process may be moving the same book here.
    spaces.lock(tx)
    old = home.facts(source)
    _require_unused(tx, old, to=to)
    home.replace(tx, id=old["id"], created=old["created"], zone=old["zone"], moving_from=old["id"])
    home.replace(tx, **home.project_facts(old))
    for table in reversed(TABLES):
        tx.run(f"DELETE FROM {table.name}")
    counts = {table.name: _count(source, table) for table in TABLES}
    done, total = 0, sum(counts.values())
    for table in TABLES:
        for rows in _batches(source, table):
            _insert(tx, table, rows)
            done += len(rows)
            progress("copying", done, total)
    for number, table in enumerate(TABLES, start=1):
        if _hash(source, table) != _hash(tx, table) or _count(tx, table) != counts[table.name]:
            raise HomeDamaged(
                f"the table {table.name} is not the same in the new book",
                fix="run `commonbook doctor`; this book is left as it is, and can be written to",
            )
        progress("comparing", number, len(TABLES))
    report = verify.verify(tx, target.keys, list(spaces.get_all(tx)), progress)
    if not report.ok:
        raise HomeDamaged(
            f"the log does not verify in the new book: {report.findings[0].why}",
            fix="run `commonbook audit verify` in the old book, which is left as it is",
        )
    return counts


def _open_target(tx: Transaction, *, target: Engines) -> int:
    """Accept writes, and queue the Markdown files where the target keeps any; return the number of memories."""
    home.delete_fact(tx, "moving_from")
    files = 0
    if target.folder.keeps_files:
        all_spaces = spaces.get_all(tx)
        for space in all_spaces:
            after: str | None = ""
            while after is not None:
                # The journal keeps the files: their contents are not held here.
                ctx = WriteContext(
                    tx=tx, engines=target, actor=OWNER_ACTOR, permissions={}, spaces=all_spaces, pending=Pending()
                )
                batch = memories.in_space(tx, all_spaces, space, after=after, limit=_BATCH)
                live = [memory for memory in batch if memory.deleted is None]
                ctx.enqueue_files(live)
                files += len(live)
                after = batch[-1].id if len(batch) == _BATCH else None
    return files


# --- tables


def _count(tx: Reading, table: Table) -> int:
    (count,) = tx.row(f"SELECT count(*) FROM {table.name}") or (0,)
    return int(count)


def _batches(tx: Reading, table: Table) -> Iterator[list[Row]]:
    """Yield the rows in the order of their keys, their texts decompressed."""
    names = ", ".join(table.key)
    query = f"SELECT {', '.join(table.columns)} FROM {table.name}"
    where = f" WHERE ({names}) > ({', '.join(f':{name}' for name in table.key)})"
    after: dict[str, object] = {}
    while True:
        rows = tx.rows(f"{query}{where if after else ''} ORDER BY {names} LIMIT {_BATCH}", **after)
        if not rows:
            return
        plain = [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row) for row in rows]
        yield _with_texts(plain, table, decompress)
        *_, last = rows
        # The columns of the key come first.
        after = dict(zip(table.key, last, strict=False))


def _insert(tx: Transaction, table: Table, rows: Sequence[Row]) -> None:
    if tx.compresses_texts:
        rows = _with_texts(rows, table, compress)
    names, values = ", ".join(table.columns), ", ".join(":" + name for name in table.columns)
    tx.run_many(
        f"INSERT INTO {table.name} ({names}) VALUES ({values})",
        [dict(zip(table.columns, row, strict=True)) for row in rows],
    )
    # A result is awaited, so that no more than a batch is under way.
    tx.row("SELECT 1")


def _with_texts(rows: Sequence[Row], table: Table, convert: Callable[[str], str | bytes]) -> list[Row]:
    """Return the rows with their long texts converted."""
    if table.text is None:
        return list(rows)
    at = table.columns.index(table.text)
    return [(*row[:at], convert(row[at]), *row[at + 1 :]) for row in rows]


def _hash(tx: Reading, table: Table) -> str:
    """Return a hash of a table that is the same on both engines."""
    digest = sha256()
    for rows in _batches(tx, table):
        digest.update(repr(rows).encode())
    return digest.hexdigest()
