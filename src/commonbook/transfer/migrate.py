"""The migration of a book to another database: copy, lock, compare, verify, and only then switch over.

While other processes go on writing, rows are copied table by table in the order of their keys. The last key in the new
table says how far the copy got, so an interrupted migration continues from there. Then the old book is locked: every
table is compared batch by batch, and rows that changed meanwhile are copied again. When all tables are equal and the
log verifies in the new book, the old book records `moved_to` and refuses writes from then on. Only then are the files
written and the new book opened: at no time do both books accept writes, and a migration that is interrupted here
continues too. `migration_order` decides which books may be moved, and to where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.errors import HomeDamaged
from commonbook.files import write_out
from commonbook.files.journal import mark_done
from commonbook.log import chain, verify
from commonbook.model.reports import MigrationReport, Progress
from commonbook.model.spaces import OWNER_ACTOR
from commonbook.ports.database import Database, Reading, Row, Transaction
from commonbook.ports.engines import Engines
from commonbook.ports.keys import Keys
from commonbook.runtime.compressed_text import compress, decompress
from commonbook.tables import home, memories, spaces
from commonbook.transfer import migration_order
from commonbook.transfer.migration_order import TargetBook
from commonbook.write.context import WriteContext
from commonbook.write.pending import Pending

_BATCH: Final = 500
_NO_LIMIT: Final = 1_000_000_000
_MAX_ROUNDS: Final = 4


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
        """All columns, those of the key first."""
        return self.key + self.rest


def _table(name: str, key: str, rest: str = "", *, text: str | None = None) -> Table:
    return Table(name, tuple(key.split()), tuple(rest.split()), text)


TABLES: Final = (
    _table("space", "id", "name created depth folder review"),
    _table("place", "id", "space"),
    Table("memory", memories.COLUMNS[:2], memories.COLUMNS[2:], "text"),
    _table("memory_tag", "space tag memory"),
    _table("memory_mark", "space mark memory"),
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
"""All tables that are copied; those of files and those of one engine alone are not."""


def migrate(engines: Engines, target: Engines, *, to: str, keys: str, progress: Progress) -> MigrationReport:
    """Move a book into another, which is empty or has an interrupted migration of this book.

    `to` is the address of the new book, and `keys` the folder of its keys: the old one names both from then on.
    """
    counts: dict[str, int] = {}
    require_movable(engines.db, target.db, to=to)
    if not _has_moved(engines, target, to=to):
        _prepare(engines, target, to=to)
        counts = _copy_all(engines.db, target.db, progress)
        engines.db.write(partial(_finish, target=target, to=to, keys=keys, progress=progress))
    files = _write_files(target, progress)
    target.db.write(lambda tx: home.delete_fact(tx, "moving_from"))
    key_id = target.keys.key_id
    return MigrationReport(to=to, rows=sum(counts.values()), tables=counts, files=files, keys=keys, key_id=key_id)


# --- preparation


def _has_moved(engines: Engines, target: Engines, *, to: str) -> bool:
    with engines.db.reading() as tx:
        old = home.facts(tx)
    with target.db.reading() as tx:
        new = home.facts(tx)
    return migration_order.has_moved(old, new, to=to)


def require_movable(source: Database, target: Database, *, to: str) -> None:
    """Refuse a book that was moved already, and a new book that is in use; nothing is changed."""
    with source.reading() as tx:
        old = home.facts(tx)
    with target.reading() as tx:
        migration_order.require_movable(old, _target_book(tx), to=to)


def _target_book(tx: Reading) -> TargetBook:
    return TargetBook(home.facts(tx), in_use=tx.row("SELECT 1 FROM space LIMIT 1") is not None)


def _prepare(engines: Engines, target: Engines, *, to: str) -> None:
    """Claim the new book for this migration: it has the same keys, and no memories but those of an earlier try."""
    migration_order.require_same_keys(engines.keys, target.keys)
    with engines.db.reading() as tx:
        old = home.facts(tx)
    target.db.write(lambda tx: _claim(tx, old, to=to))


def _claim(tx: Transaction, old: Mapping[str, str], *, to: str) -> None:
    migration_order.require_unused(old, _target_book(tx), to=to)
    home.replace(tx, id=old["id"], created=old["created"], zone=old["zone"], moving_from=old["id"])
    home.replace(tx, **home.project_facts(old))


# --- copying while others write


def _copy_all(source: Database, target: Database, progress: Progress) -> dict[str, int]:
    counts = {}
    with source.reading() as tx:
        total = sum(_count(tx, table) for table in TABLES)
    done = 0
    for table in TABLES:
        counts[table.name] = 0
        for rows in _uncopied(source, target, table):
            target.write(partial(_put, table=table, rows=rows))
            counts[table.name] += len(rows)
            done += len(rows)
            progress("copying", min(done, total), total)
    return counts


def _uncopied(source: Database, target: Database, table: Table) -> Iterator[list[Row]]:
    """Yield the rows after the last one that was copied, in batches."""
    with target.reading() as tx:
        after = _max_key(tx, table)
    while True:
        with source.reading() as tx:
            rows = _rows(tx, table, after=after)
        if not rows:
            return
        yield rows
        after = _last_key(rows, table)


def _max_key(tx: Reading, table: Table) -> Row | None:
    order = ", ".join(f"{name} DESC" for name in table.key)
    return tx.row(f"SELECT {', '.join(table.key)} FROM {table.name} ORDER BY {order} LIMIT 1")


def _last_key(rows: Sequence[Row], table: Table) -> Row:
    """Return the key of the last row; the columns of the key come first."""
    *_, last = rows
    return last[: len(table.key)]


def _count(tx: Reading, table: Table) -> int:
    (count,) = tx.row(f"SELECT count(*) FROM {table.name}") or (0,)
    return int(count)


def _rows(tx: Reading, table: Table, *, after: Row | None, upto: Row | None = None, limit: int = _BATCH) -> list[Row]:
    """Return rows in the order of their keys, after one key and up to another."""
    conditions, params = [], {}
    names = ", ".join(table.key)
    for bound, operator, prefix in ((after, ">", "after"), (upto, "<=", "upto")):
        if bound is not None:
            conditions.append(f"({names}) {operator} ({', '.join(f':{prefix}_{name}' for name in table.key)})")
            params.update({f"{prefix}_{name}": value for name, value in zip(table.key, bound, strict=True)})
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = tx.rows(
        f"SELECT {', '.join(table.columns)} FROM {table.name}{where} ORDER BY {names} LIMIT :limit",
        limit=limit,
        **params,
    )
    plain = [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row) for row in rows]
    return plain if table.text is None else _with_texts(plain, table, decompress)


def _put(tx: Transaction, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows as they are; the comparison finds those that conflict with another row."""
    if table.text is not None and tx.compresses_texts:
        rows = _with_texts(rows, table, compress)
    names, values = ", ".join(table.columns), ", ".join(":" + name for name in table.columns)
    tx.run_many(
        f"INSERT INTO {table.name} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING",
        [dict(zip(table.columns, row, strict=True)) for row in rows],
    )


def _with_texts(rows: Sequence[Row], table: Table, convert: Callable[[str], str | bytes]) -> list[Row]:
    """Return the rows with their long texts converted."""
    at = table.columns.index(table.text or "")
    return [(*row[:at], convert(row[at]), *row[at + 1 :]) for row in rows]


# --- under the lock


def _finish(tx: Transaction, target: Engines, *, to: str, keys: str, progress: Progress) -> None:
    """Lock the old book, make both books equal, verify the new one, and close the old one for writes."""
    spaces.lock(tx)
    all_spaces = spaces.get_all(tx)
    chain.lock(tx, list(all_spaces))
    # Another process may have migrated the book meanwhile: the new book, then in use, must not be overwritten.
    home.require_not_moved(home.facts(tx).items())
    for number, table in enumerate(TABLES):
        _make_equal(tx, target.db, table)
        progress("comparing", number + 1, len(TABLES))
    _verify(target.db, target.keys, list(all_spaces), progress)
    home.replace(tx, moved_to=to, moved_keys=keys)


def _make_equal(tx: Reading, target: Database, table: Table) -> None:
    """Copy differing rows of a table until none differ: a row may first conflict with one that is removed later."""
    for _ in range(_MAX_ROUNDS):
        if not _copy_differences(tx, target, table):
            return
    raise HomeDamaged(
        f"the table {table.name} cannot be made equal in the new book",
        fix="move into an empty database or home; the old book is left as it is",
    )


def _copy_differences(tx: Reading, target: Database, table: Table) -> bool:
    """Compare a table batch by batch, and copy the batches that differ; tell whether any did."""
    after: Row | None = None
    differed = False
    while True:
        rows = _rows(tx, table, after=after)
        upto = _last_key(rows, table) if len(rows) == _BATCH else None
        with target.reading() as target_tx:
            others = _rows(target_tx, table, after=after, upto=upto, limit=_NO_LIMIT)
        if _digest(rows) != _digest(others):
            differed = True
            target.write(partial(_replace_rows, table=table, rows=rows, others=others))
        if upto is None:
            return differed
        after = upto


def _replace_rows(tx: Transaction, table: Table, rows: Sequence[Row], others: Sequence[Row]) -> None:
    """Delete the rows that the old book does not have or has changed, and insert those that are missing."""
    wanted, known = set(rows), set(others)
    where = " AND ".join(f"{name} = :{name}" for name in table.key)
    for row in others:
        if row not in wanted:
            tx.run(f"DELETE FROM {table.name} WHERE {where}", **dict(zip(table.key, row, strict=False)))
    _put(tx, table, [row for row in rows if row not in known])


def _digest(rows: Sequence[Row]) -> str:
    """Return a hash of rows that is the same on both engines."""
    digest = sha256()
    for row in rows:
        digest.update(repr(tuple(float(value) if isinstance(value, float) else value for value in row)).encode())
    return digest.hexdigest()


def _verify(target: Database, keys: Keys, all_spaces: Sequence[str], progress: Progress) -> None:
    with target.reading() as tx:
        report = verify.verify(tx, keys, all_spaces, progress)
    if not report.ok:
        raise HomeDamaged(
            f"the log does not verify in the new book: {report.findings[0].why}",
            fix="run `commonbook audit verify` in the old book, which is left as it is",
        )


# --- the files


def _write_files(target: Engines, progress: Progress) -> int:
    """Write the Markdown of every memory, where the new book keeps files."""
    if not target.folder.keeps_files:
        return 0
    with target.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        total = sum(memories.counts(tx, all_spaces)[0].values())
    done = 0
    for space in all_spaces:
        after: str | None = ""
        while after is not None:
            after, wanted = target.db.write(partial(_enqueue_batch, target=target, space=space, after=after))
            # A file that cannot be written, or that a person saves meanwhile, is handled when the new book is opened.
            mark_done(target, write_out.write_out(target, wanted).done)
            # Space files come along, and are not counted.
            done += sum(id_ not in all_spaces for id_ in wanted)
            progress("writing files", done, total)
    return done


def _enqueue_batch(
    tx: Transaction, target: Engines, space: str, after: str
) -> tuple[str | None, dict[str, bytes | None]]:
    """Add journal entries for the files of a batch of memories; no memory changes, so nothing is logged."""
    ctx = WriteContext(
        tx=tx, engines=target, actor=OWNER_ACTOR, permissions={}, spaces=spaces.get_all(tx), pending=Pending()
    )
    batch = memories.in_space(tx, ctx.spaces, space, after=after, limit=_BATCH)
    ctx.enqueue_files([memory for memory in batch if memory.deleted is None])
    return (batch[-1].id if len(batch) == _BATCH else None), ctx.pending.files_to_write
