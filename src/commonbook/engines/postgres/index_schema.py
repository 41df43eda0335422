"""The tables of the index in PostgreSQL.

They are no part of the book and have no migrations: tables of an older format are dropped and filled anew. Spaces,
owners, threads and terms stand there as numbers, the hashes that the embedded index keeps too, so no word of a passage
does. All keys begin with the space; `recall_index` alone is one row for everything: the marker, and the lock of whoever
writes.
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = 4
"""Changes with every change of the tables, or of what stands in them."""

TABLES: Final = ("recall_index", "recall_space", "recall_passage", "recall_posting")
DROP_ROWS: Final = "DROP TABLE IF EXISTS recall_posting; DROP TABLE IF EXISTS recall_passage"
DROP: Final = "; ".join(f"DROP TABLE IF EXISTS {table}" for table in reversed(TABLES))

MARKER: Final = f"""
    CREATE TABLE recall_index (
      one        smallint PRIMARY KEY CHECK (one = 1),
      format     integer NOT NULL,
      generation bigint NOT NULL,
      home       text,      -- none while nothing is whole
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
      version    bigint NOT NULL,  -- another whenever a passage comes or goes
      number     bigint,    -- none for a space that the marker does not name
      seq        bigint,
      head       text
    )
"""

# What is added is soon known to be visible to all, so that searches need not look into the tables for it.
_VACUUM: Final = "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05"

CREATE: Final = f"""
    CREATE TABLE recall_passage (
      space       bigint NOT NULL,
      id          uuid NOT NULL,   -- in the order in which passages of one score are chosen
      owner       bigint NOT NULL,
      thread      bigint NOT NULL,
      position    bigint NOT NULL,
      kind        smallint NOT NULL,
      flags       smallint NOT NULL,
      time        bigint NOT NULL,
      valid_from  bigint NOT NULL,
      valid_until bigint NOT NULL,
      superseded  bigint NOT NULL,
      expires     bigint NOT NULL,
      terms       bigint[] NOT NULL,
      columns     bytea NOT NULL,  -- from here on what scoring reads, as the embedded index has it
      entries     bytea NOT NULL,
      name        bytea NOT NULL,
      speaker     bytea NOT NULL,
      vector      bytea,
      v           halfvec,         -- the same, as the database compares it, if an index has room for it
      w           halfvec          -- if it has not
    ) WITH ({_VACUUM});
    CREATE TABLE recall_posting (space bigint NOT NULL, term bigint NOT NULL, id uuid NOT NULL) WITH ({_VACUUM})
"""
# What must hold of a candidate, and where its neighbours are, stands in the index of ids: it is not looked up twice.
INDEX: Final = """
    ALTER TABLE recall_passage ADD PRIMARY KEY (space, id)
      INCLUDE (thread, position, kind, flags, time, valid_from, valid_until, superseded, expires);
    ALTER TABLE recall_posting ADD PRIMARY KEY (space, term, id);
    CREATE INDEX recall_owner ON recall_passage (owner);
    CREATE INDEX recall_newest ON recall_passage (space, time DESC, position DESC, id);
    CREATE INDEX recall_thread ON recall_passage (thread, position);
    CREATE INDEX recall_nearest ON recall_passage (space, id)
      INCLUDE (owner, kind, time, valid_from, valid_until, superseded, expires, v) WHERE v IS NOT NULL
"""
