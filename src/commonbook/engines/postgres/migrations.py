"""The schema on PostgreSQL as a table of numbered migrations.

Until a release `SCHEMA_1` is changed in place. A released migration is never edited, only followed by another.
The tables are the same as in the SQLite schema, each with the same owner. Every key has the space, so that the tables
can be distributed by it, except for the few that map an id to its space or belong to no space. Text is compared byte by
byte, as in SQLite. The tables about files stay empty: here the rows are authoritative.
"""

from typing import Final

SCHEMA_1: Final = """
-- home
CREATE TABLE home (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);

-- the engine: marks of committed transactions, for the commit check after a lost answer
CREATE TABLE committed (mark TEXT NOT NULL PRIMARY KEY, at TEXT NOT NULL);
CREATE INDEX committed_by_time ON committed (at);

-- spaces: `folder` is that of the files, if it is not the default one; `review` says whose memories are proposed first
CREATE TABLE space (
  id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL UNIQUE, created TEXT NOT NULL, depth BIGINT, folder TEXT,
  review TEXT);

-- grants
CREATE TABLE space_grant (
  space TEXT NOT NULL, principal TEXT NOT NULL, role TEXT NOT NULL, expires TEXT, granted_by TEXT NOT NULL,
  granted_at TEXT NOT NULL, PRIMARY KEY (space, principal));
CREATE INDEX space_grant_by_principal ON space_grant (principal);

-- keys: secrets, login codes, the second secrets that they are exchanged for, and the nonces of the clients that have
-- exchanged them are stored as keyed hashes; `default_space` is the space of writes that name none
CREATE TABLE api_key (
  id TEXT NOT NULL PRIMARY KEY, principal TEXT NOT NULL, label TEXT NOT NULL, limits TEXT, created TEXT NOT NULL,
  created_by TEXT NOT NULL, expires TEXT, revoked TEXT, hash TEXT NOT NULL UNIQUE, default_space TEXT,
  login_code TEXT, login_until TEXT, login_hash TEXT, login_nonce TEXT);
CREATE UNIQUE INDEX api_key_by_login_code ON api_key (login_code) WHERE login_code IS NOT NULL;
CREATE UNIQUE INDEX api_key_by_login_hash ON api_key (login_hash) WHERE login_hash IS NOT NULL;

-- browser sessions: links that sign a browser in, and the sessions that they are exchanged for
CREATE TABLE browser_session (
  hash TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, key_id TEXT NOT NULL, expires TEXT NOT NULL);
CREATE INDEX browser_session_by_expiry ON browser_session (expires);

-- memories: `session_space` is the name of the space of an episode's session, if the episode is in another space
CREATE TABLE place (id TEXT NOT NULL PRIMARY KEY, space TEXT NOT NULL);
CREATE TABLE memory (
  space TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL,
  tags TEXT NOT NULL, links TEXT NOT NULL, author TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
  importance DOUBLE PRECISION, occurred TEXT, valid_from TEXT, valid_until TEXT, expires TEXT,
  revision BIGINT NOT NULL, version BIGINT NOT NULL,
  revised_by TEXT NOT NULL, revised_at TEXT NOT NULL, revised_how TEXT NOT NULL,
  path TEXT NOT NULL, layout TEXT NOT NULL, digest TEXT NOT NULL, deleted TEXT,
  session TEXT, shared TEXT, judged TEXT, session_space TEXT, content_hash TEXT NOT NULL, copy_hash TEXT,
  metadata TEXT, PRIMARY KEY (space, id));
CREATE INDEX memory_by_time ON memory (space, created, id);
CREATE UNIQUE INDEX memory_by_path ON memory (path, space) WHERE deleted IS NULL;
CREATE INDEX memory_by_digest ON memory (space, digest, created, id) WHERE deleted IS NULL;
CREATE INDEX memory_by_session_space ON memory (session_space) WHERE session_space IS NOT NULL;
CREATE TABLE memory_tag (
  space TEXT NOT NULL, tag TEXT NOT NULL, memory TEXT NOT NULL, PRIMARY KEY (space, tag, memory));
CREATE INDEX memory_tag_by_memory ON memory_tag (space, memory);

-- revisions: `written_in` is the space that the memory was in when it had the text last
CREATE TABLE revision (
  space TEXT NOT NULL, memory TEXT NOT NULL, revision BIGINT NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL,
  author TEXT NOT NULL, at TEXT NOT NULL, how TEXT NOT NULL, written_in TEXT, PRIMARY KEY (space, memory, revision));

-- links, links in texts, and the names by which these find memories
CREATE TABLE link (
  space TEXT NOT NULL, source TEXT NOT NULL, relation TEXT NOT NULL, target TEXT NOT NULL, target_hash TEXT,
  PRIMARY KEY (space, source, relation, target));
CREATE INDEX link_by_target ON link (target, relation);
CREATE TABLE mention (
  space TEXT NOT NULL, memory TEXT NOT NULL, target TEXT NOT NULL, name TEXT NOT NULL,
  PRIMARY KEY (space, memory, target));
CREATE INDEX mention_by_name ON mention (space, name);
CREATE TABLE memory_name (
  space TEXT NOT NULL, memory TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (space, memory, name));
CREATE INDEX memory_name_by_name ON memory_name (space, name);

-- copies
CREATE TABLE copy (
  space TEXT NOT NULL, root TEXT NOT NULL, memory TEXT NOT NULL, source TEXT NOT NULL, mode TEXT NOT NULL,
  PRIMARY KEY (space, root));
CREATE INDEX copy_by_memory ON copy (space, memory);
CREATE INDEX copy_by_source ON copy (source, memory);
CREATE INDEX copy_by_root ON copy (root, memory);

-- rules
CREATE TABLE rule (
  space TEXT NOT NULL, id TEXT NOT NULL, source TEXT NOT NULL, maker TEXT NOT NULL, kinds TEXT NOT NULL,
  tags TEXT NOT NULL, importance DOUBLE PRECISION, approval BIGINT NOT NULL, refresh TEXT NOT NULL,
  created TEXT NOT NULL, PRIMARY KEY (space, id));
CREATE INDEX rule_by_source ON rule (source);
CREATE INDEX rule_by_id ON rule (id);
CREATE TABLE rule_taken (
  space TEXT NOT NULL, rule TEXT NOT NULL, root TEXT NOT NULL, PRIMARY KEY (space, rule, root));
CREATE TABLE rule_waiting (
  space TEXT NOT NULL, memory TEXT NOT NULL, asked_by TEXT NOT NULL, PRIMARY KEY (space, memory));

-- requests: share requests, and decided proposals
CREATE TABLE request (
  space TEXT NOT NULL, id TEXT NOT NULL, memory TEXT NOT NULL, root TEXT NOT NULL, rule TEXT, refresh TEXT NOT NULL,
  name TEXT NOT NULL, asked_by TEXT NOT NULL, asked_at TEXT NOT NULL, state TEXT NOT NULL, decided_by TEXT,
  decided_at TEXT, note TEXT NOT NULL, copy TEXT, purpose TEXT NOT NULL, PRIMARY KEY (space, id));
CREATE INDEX request_by_id ON request (id);
CREATE INDEX request_by_state ON request (space, state, id);
CREATE INDEX request_by_asker ON request (asked_by, id);
CREATE UNIQUE INDEX request_waiting ON request (space, root, name) WHERE state = 'waiting';

-- limits
CREATE TABLE rate_limit (
  principal TEXT NOT NULL, action TEXT NOT NULL, per_minute BIGINT NOT NULL, set_by TEXT NOT NULL,
  set_at TEXT NOT NULL, PRIMARY KEY (principal, action));
CREATE TABLE rate_count (
  principal TEXT NOT NULL, action TEXT NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (principal, action));
CREATE TABLE refusal_count (
  space TEXT NOT NULL, principal TEXT NOT NULL, hour TEXT NOT NULL, refused BIGINT NOT NULL,
  PRIMARY KEY (space, principal));

-- idempotency: whole requests have no space, and are removed by their age
CREATE TABLE idempotency (
  space TEXT NOT NULL, principal TEXT NOT NULL, key TEXT NOT NULL, content TEXT NOT NULL, answer TEXT NOT NULL,
  at TEXT NOT NULL, PRIMARY KEY (space, principal, key));
CREATE INDEX idempotency_by_time ON idempotency (at) WHERE space = '';

-- sessions: a session belongs to its space, and the same name in two spaces is two sessions
CREATE TABLE session (
  space TEXT NOT NULL, id TEXT NOT NULL, parent_space TEXT, parent TEXT, tags TEXT NOT NULL, created TEXT NOT NULL,
  closed TEXT, generation BIGINT NOT NULL, last BIGINT NOT NULL, PRIMARY KEY (space, id));
CREATE INDEX session_by_time ON session (space, created, id);
CREATE INDEX session_by_parent ON session (parent_space, parent) WHERE parent IS NOT NULL;
CREATE INDEX session_by_id ON session (id);
CREATE TABLE message (
  space TEXT NOT NULL, session TEXT NOT NULL, seq BIGINT NOT NULL, id TEXT NOT NULL, role TEXT NOT NULL,
  author TEXT NOT NULL, text TEXT NOT NULL, time TEXT NOT NULL, client_id TEXT, sent TEXT, masked BIGINT NOT NULL,
  episode TEXT, taken_back TEXT, PRIMARY KEY (space, session, seq));
CREATE UNIQUE INDEX message_by_id ON message (id, space);
CREATE UNIQUE INDEX message_by_client ON message (space, session, client_id) WHERE client_id IS NOT NULL;
CREATE INDEX message_unsettled ON message (space, session, seq) WHERE episode IS NULL AND taken_back IS NULL;
CREATE INDEX message_by_episode ON message (episode) WHERE episode IS NOT NULL;

-- prompt uses: the passages of memories and messages that were put into turns of sessions
CREATE TABLE prompt_use (
  space TEXT NOT NULL, session TEXT NOT NULL, seq BIGINT NOT NULL, item TEXT NOT NULL, hash TEXT NOT NULL,
  revision BIGINT, at TEXT NOT NULL, principal TEXT NOT NULL,
  PRIMARY KEY (space, session, seq, item, hash));
CREATE INDEX prompt_use_by_item ON prompt_use (space, item);

-- jobs
CREATE TABLE job (
  id TEXT NOT NULL, space TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL, state TEXT NOT NULL,
  due TEXT NOT NULL, attempts BIGINT NOT NULL, lease TEXT, leased_until TEXT, error TEXT NOT NULL,
  created TEXT NOT NULL, PRIMARY KEY (id, space));
CREATE UNIQUE INDEX job_by_subject ON job (space, kind, subject) WHERE state = 'waiting';
CREATE INDEX job_by_due ON job (state, due);

-- changes
CREATE TABLE change_count (space TEXT NOT NULL PRIMARY KEY, last BIGINT NOT NULL);
CREATE TABLE change (
  space TEXT NOT NULL, subject TEXT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (space, subject));
CREATE UNIQUE INDEX change_by_number ON change (space, number);

-- log: the last index has the deletions of a memory, and its ways back
CREATE TABLE log_entry (
  space TEXT NOT NULL, seq BIGINT NOT NULL, time TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
  subjects TEXT NOT NULL, payload TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL,
  signature TEXT NOT NULL, key_id TEXT NOT NULL, PRIMARY KEY (space, seq));
CREATE TABLE log_head (
  space TEXT NOT NULL PRIMARY KEY, seq BIGINT NOT NULL, hash TEXT NOT NULL, signature TEXT NOT NULL,
  key_id TEXT NOT NULL);
CREATE INDEX log_entry_by_deletion ON log_entry (subjects) WHERE action IN ('delete', 'restore', 'undelete');

-- files
CREATE TABLE file (
  path TEXT NOT NULL PRIMARY KEY, memory TEXT, size BIGINT NOT NULL, mtime_ns BIGINT NOT NULL,
  young BIGINT NOT NULL, hash TEXT NOT NULL, version BIGINT NOT NULL, trouble TEXT);
CREATE INDEX file_by_memory ON file (memory);
CREATE TABLE file_journal (
  memory TEXT NOT NULL PRIMARY KEY, version BIGINT NOT NULL, path TEXT, hash TEXT, issued TEXT NOT NULL,
  is_write_back BIGINT NOT NULL);
CREATE TABLE file_left (path TEXT NOT NULL PRIMARY KEY, memory TEXT NOT NULL, at TEXT NOT NULL, space TEXT NOT NULL);
CREATE TABLE file_reverted (memory TEXT NOT NULL PRIMARY KEY, revision BIGINT NOT NULL);

-- vectors
CREATE TABLE kept_vector (
  embedder TEXT NOT NULL, hash TEXT NOT NULL, vector BYTEA NOT NULL, PRIMARY KEY (embedder, hash));
"""

MIGRATIONS: Final = tuple(version.replace(" TEXT", ' TEXT COLLATE "C"') for version in (SCHEMA_1,))
"""Migration n takes a database from version n to version n + 1."""
