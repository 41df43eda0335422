"""The tables of the recall index in PostgreSQL.

They are not part of the book and have no migrations: tables of an older format are dropped and filled again. Spaces,
owners, threads and terms are stored as 64-bit hashes, the same as in the embedded index, so the tables contain no word
of a passage. All keys begin with the space. Only `recall_index` is a single row: the index state, which a writer locks.
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = 8
"""Changes with every change of the tables, or of the meaning of their contents."""

TABLES: Final = ("recall_index", "recall_space", "recall_passage", "recall_posting")
MISSING: Final = f"""
    SELECT count(*) FILTER (WHERE to_regclass(name) IS NULL), 2 - (
      SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('recall_passage') AND attname IN ('v', 'w'))
    FROM unnest(ARRAY{list(TABLES)}) name
"""
"""Counts missing tables and columns. A table that was created at this very moment may seem to lack its columns."""

LOCK_CREATION: Final = "SELECT pg_advisory_xact_lock(hashtext('commonbook recall_index'))"
"""Lets one process at a time create the tables, until the end of its transaction."""

DROP_ROWS: Final = "DROP TABLE IF EXISTS recall_posting; DROP TABLE IF EXISTS recall_passage"
DROP_ALL: Final = "; ".join(f"DROP TABLE IF EXISTS {table}" for table in reversed(TABLES))

CREATE_STATE: Final = f"""
    CREATE TABLE recall_index (
      one        smallint PRIMARY KEY CHECK (one = 1),
      format     integer NOT NULL,
      generation bigint NOT NULL,
      home       text,      -- NULL while the index is incomplete
      rules      text,
      embedder   text,
      dimensions integer
    );
    INSERT INTO recall_index (one, format, generation) VALUES (1, {FORMAT}, 0);
    CREATE TABLE recall_space (
      space      bigint PRIMARY KEY,
      name       text NOT NULL,
      passages   bigint NOT NULL,
      unembedded bigint NOT NULL,
      version    bigint NOT NULL,  -- changes whenever a passage is added or removed
      number     bigint,    -- NULL for a space without a recorded position
      seq        bigint,
      head       text,
      indexed    boolean NOT NULL DEFAULT false  -- whether a vector index of the space was made
    )
"""

# New rows are soon marked as visible to all, so that index-only scans need not read the tables for them.
_VACUUM: Final = "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05"

CREATE_ROWS: Final = f"""
    CREATE TABLE recall_passage (
      space       bigint NOT NULL,
      id          uuid NOT NULL,   -- orders passages of equal score
      owner       bigint NOT NULL,
      thread      bigint NOT NULL,
      position    bigint NOT NULL,
      kind        smallint NOT NULL,
      flags       smallint NOT NULL,
      wording     bigint NOT NULL,  -- the same for copies that say the same
      time        bigint NOT NULL,
      valid_from  bigint NOT NULL,
      valid_until bigint NOT NULL,
      superseded  bigint NOT NULL,
      superseded_until bigint NOT NULL,
      expires     bigint NOT NULL,
      terms       bigint[] NOT NULL,
      columns     bytea NOT NULL,  -- from here on the data for scoring, as in the embedded index
      entries     bytea NOT NULL,
      name        bytea NOT NULL,
      speaker     bytea NOT NULL,
      vector      bytea,
      v           halfvec,         -- the same as halfvec, if it fits into an index row
      w           halfvec          -- if it does not
    ) WITH ({_VACUUM});
    CREATE TABLE recall_posting (space bigint NOT NULL, term bigint NOT NULL, id uuid NOT NULL) WITH ({_VACUUM})
"""
# The filter columns and the position among neighbours are in the primary key's index: no second look-up is needed.
CREATE_INDEXES: Final = """
    ALTER TABLE recall_passage ADD PRIMARY KEY (space, id)
      INCLUDE (thread, position, kind, flags, wording, time, valid_from, valid_until, superseded, superseded_until,
        expires);
    ALTER TABLE recall_posting ADD PRIMARY KEY (space, term, id);
    CREATE INDEX recall_owner ON recall_passage (owner);
    CREATE INDEX recall_newest ON recall_passage (space, time DESC, position DESC, id);
    CREATE INDEX recall_thread ON recall_passage (thread, position);
    CREATE INDEX recall_nearest ON recall_passage (space, id)
      INCLUDE (owner, kind, time, valid_from, valid_until, superseded, superseded_until,
        expires, v) WHERE v IS NOT NULL
"""
