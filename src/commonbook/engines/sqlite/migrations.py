"""The SQLite schema as a list of migrations: a released migration is never edited, only followed by another.

Each table has one owner, the module named above it; no other module writes to it.
"""

from typing import Final

VERSION_1: Final = """
-- home
CREATE TABLE home (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);

-- spaces
CREATE TABLE space (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL UNIQUE, created TEXT NOT NULL);

-- memories
CREATE TABLE place (id TEXT NOT NULL PRIMARY KEY, space TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE memory (
  space TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL,
  tags TEXT NOT NULL, links TEXT NOT NULL, author TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
  importance REAL,
  occurred TEXT, valid_from TEXT, valid_until TEXT, expires TEXT, revision INTEGER NOT NULL, version INTEGER NOT NULL,
  revised_by TEXT NOT NULL, revised_at TEXT NOT NULL, revised_how TEXT NOT NULL,
  path TEXT NOT NULL, layout TEXT NOT NULL, digest TEXT NOT NULL, deleted TEXT,
  session TEXT, PRIMARY KEY (space, id));
CREATE INDEX memory_by_time ON memory (space, created, id);
CREATE INDEX memory_by_path ON memory (path);
CREATE INDEX memory_by_digest ON memory (space, digest, created, id) WHERE deleted IS NULL;
CREATE TABLE memory_tag (
  space TEXT NOT NULL, tag TEXT NOT NULL, memory TEXT NOT NULL, PRIMARY KEY (space, tag, memory)) WITHOUT ROWID;
CREATE INDEX memory_tag_by_memory ON memory_tag (space, memory);

CREATE TABLE memory_mark (
  space TEXT NOT NULL, mark INTEGER NOT NULL, memory TEXT NOT NULL, PRIMARY KEY (space, mark, memory)) WITHOUT ROWID;
CREATE INDEX memory_mark_by_memory ON memory_mark (space, memory);

-- revisions
CREATE TABLE revision (
  space TEXT NOT NULL, memory TEXT NOT NULL, revision INTEGER NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL,
  author TEXT NOT NULL, at TEXT NOT NULL, how TEXT NOT NULL, PRIMARY KEY (space, memory, revision));

-- links
CREATE TABLE link (
  space TEXT NOT NULL, source TEXT NOT NULL, relation TEXT NOT NULL, target TEXT NOT NULL, revision INTEGER,
  PRIMARY KEY (space, source, relation, target)) WITHOUT ROWID;
CREATE INDEX link_by_target ON link (target, relation);

-- idempotency
CREATE TABLE idempotency (
  space TEXT NOT NULL, principal TEXT NOT NULL, key TEXT NOT NULL, content TEXT NOT NULL, answer TEXT NOT NULL,
  at TEXT NOT NULL, PRIMARY KEY (space, principal, key)) WITHOUT ROWID;

-- sessions
CREATE TABLE session (
  space TEXT NOT NULL, id TEXT NOT NULL, parent TEXT, tags TEXT NOT NULL, created TEXT NOT NULL, closed TEXT,
  generation INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (space, id)) WITHOUT ROWID;
CREATE TABLE session_place (id TEXT NOT NULL PRIMARY KEY, space TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX session_by_time ON session (space, created, id);
CREATE TABLE message (
  space TEXT NOT NULL, session TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, role TEXT NOT NULL,
  author TEXT NOT NULL, text TEXT NOT NULL, time TEXT NOT NULL, client_id TEXT, sent TEXT, masked INTEGER NOT NULL,
  episode TEXT, taken_back TEXT, PRIMARY KEY (space, session, seq));
CREATE UNIQUE INDEX message_by_id ON message (id);
CREATE UNIQUE INDEX message_by_client ON message (space, session, client_id) WHERE client_id IS NOT NULL;
CREATE INDEX message_unsettled ON message (space, session, seq) WHERE episode IS NULL AND taken_back IS NULL;
CREATE INDEX message_by_episode ON message (episode) WHERE episode IS NOT NULL;

-- jobs
CREATE TABLE job (
  id TEXT NOT NULL PRIMARY KEY, space TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL, state TEXT NOT NULL,
  due TEXT NOT NULL, attempts INTEGER NOT NULL, lease TEXT, leased_until TEXT, error TEXT NOT NULL,
  created TEXT NOT NULL);
CREATE UNIQUE INDEX job_by_subject ON job (kind, subject) WHERE state = 'waiting';
CREATE INDEX job_by_due ON job (state, due);

-- changes
CREATE TABLE change_count (space TEXT NOT NULL PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE change (
  space TEXT NOT NULL, subject TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (space, subject)) WITHOUT ROWID;
CREATE UNIQUE INDEX change_by_number ON change (space, number);

-- audit
CREATE TABLE log_entry (
  space TEXT NOT NULL, seq INTEGER NOT NULL, time TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
  subjects TEXT NOT NULL, payload TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL,
  signature TEXT NOT NULL, key_id TEXT NOT NULL, PRIMARY KEY (space, seq));
CREATE TABLE log_head (
  space TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL, signature TEXT NOT NULL,
  key_id TEXT NOT NULL) WITHOUT ROWID;

-- files
CREATE TABLE file (
  path TEXT NOT NULL PRIMARY KEY, memory TEXT, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  young INTEGER NOT NULL, hash TEXT NOT NULL, version INTEGER NOT NULL, trouble TEXT) WITHOUT ROWID;
CREATE INDEX file_by_memory ON file (memory);
CREATE TABLE file_journal (
  memory TEXT NOT NULL PRIMARY KEY, version INTEGER NOT NULL, path TEXT, hash TEXT, issued TEXT NOT NULL,
  seen INTEGER) WITHOUT ROWID;
CREATE TABLE file_left (path TEXT NOT NULL PRIMARY KEY, memory TEXT NOT NULL, at TEXT NOT NULL);

-- vectors
CREATE TABLE vector (
  embedder TEXT NOT NULL, hash TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (embedder, hash));
"""

VERSION_2: Final = """
-- jobs
DROP INDEX job_by_subject;
CREATE UNIQUE INDEX job_by_subject ON job (space, kind, subject) WHERE state = 'waiting';

-- sessions
CREATE INDEX session_by_parent ON session (parent) WHERE parent IS NOT NULL;

-- vectors
ALTER TABLE vector RENAME TO kept_vector;

-- grants
CREATE TABLE space_grant (
  space TEXT NOT NULL, principal TEXT NOT NULL, role TEXT NOT NULL, expires TEXT, granted_by TEXT NOT NULL,
  granted_at TEXT NOT NULL, PRIMARY KEY (space, principal)) WITHOUT ROWID;
CREATE INDEX space_grant_by_principal ON space_grant (principal);

-- keys
CREATE TABLE api_key (
  id TEXT NOT NULL PRIMARY KEY, principal TEXT NOT NULL, label TEXT NOT NULL, limits TEXT, created TEXT NOT NULL,
  created_by TEXT NOT NULL, expires TEXT, revoked TEXT, hash TEXT NOT NULL UNIQUE);

-- memories
ALTER TABLE memory ADD COLUMN shared TEXT;

-- copies
CREATE TABLE copy (
  space TEXT NOT NULL, root TEXT NOT NULL, memory TEXT NOT NULL, source TEXT NOT NULL, mode TEXT NOT NULL,
  PRIMARY KEY (space, root)) WITHOUT ROWID;
CREATE INDEX copy_by_memory ON copy (space, memory);
CREATE INDEX copy_by_source ON copy (source, memory);

-- rules
CREATE TABLE rule (
  space TEXT NOT NULL, id TEXT NOT NULL, source TEXT NOT NULL, maker TEXT NOT NULL, kinds TEXT NOT NULL,
  tags TEXT NOT NULL, importance REAL, approval INTEGER NOT NULL, refresh TEXT NOT NULL,
  created TEXT NOT NULL, PRIMARY KEY (space, id)) WITHOUT ROWID;
CREATE INDEX rule_by_source ON rule (source);
CREATE INDEX rule_by_id ON rule (id);
CREATE TABLE rule_taken (
  space TEXT NOT NULL, rule TEXT NOT NULL, root TEXT NOT NULL, PRIMARY KEY (space, rule, root)) WITHOUT ROWID;
CREATE TABLE rule_waiting (
  space TEXT NOT NULL, memory TEXT NOT NULL, asked_by TEXT NOT NULL, PRIMARY KEY (space, memory)) WITHOUT ROWID;

-- requests
CREATE TABLE request (
  space TEXT NOT NULL, id TEXT NOT NULL, memory TEXT NOT NULL, root TEXT NOT NULL, rule TEXT, refresh TEXT NOT NULL,
  name TEXT NOT NULL, asked_by TEXT NOT NULL, asked_at TEXT NOT NULL, state TEXT NOT NULL, decided_by TEXT,
  decided_at TEXT, note TEXT NOT NULL, copy TEXT, PRIMARY KEY (space, id)) WITHOUT ROWID;
CREATE INDEX request_by_id ON request (id);
CREATE INDEX request_by_state ON request (space, state, id);
CREATE INDEX request_by_asker ON request (asked_by, id);
CREATE UNIQUE INDEX request_waiting ON request (space, root, name) WHERE state = 'waiting';

-- limits
CREATE TABLE rate_limit (
  principal TEXT NOT NULL, action TEXT NOT NULL, per_minute INTEGER NOT NULL, set_by TEXT NOT NULL,
  set_at TEXT NOT NULL, PRIMARY KEY (principal, action)) WITHOUT ROWID;
CREATE TABLE rate_count (
  principal TEXT NOT NULL, action TEXT NOT NULL, counts TEXT NOT NULL, PRIMARY KEY (principal, action)) WITHOUT ROWID;
"""

VERSION_3: Final = """
-- spaces
ALTER TABLE space ADD COLUMN depth INTEGER;

-- memories
ALTER TABLE memory ADD COLUMN judged TEXT;

-- jobs: notify the dependents of memories that were superseded or deleted before there were notices
INSERT INTO job (id, space, kind, subject, state, due, attempts, error, created)
  SELECT 'notify ' || min(space) || ' ' || target, min(space), 'notify', target, 'waiting',
    '2026-01-01T00:00:00.000000Z', 0, '', '2026-01-01T00:00:00.000000Z'
  FROM link WHERE relation = 'supersedes' GROUP BY target;
INSERT INTO job (id, space, kind, subject, state, due, attempts, error, created)
  SELECT 'notify ' || space || ' ' || id || ' deleted', space, 'notify', id, 'waiting',
    '2026-01-01T00:00:00.000000Z', 0, '', '2026-01-01T00:00:00.000000Z'
  FROM memory WHERE deleted IS NOT NULL
    AND EXISTS (SELECT 1 FROM link WHERE target = memory.id AND relation IN ('reflects_on', 'derived_from'))
  ON CONFLICT DO NOTHING;
"""

VERSION_4: Final = """
-- copies
CREATE INDEX copy_by_root ON copy (root, memory);

-- revisions: the space that a memory was in when it had the text last. Of older ones the log knows: it has the revision
-- that a memory had when it was moved out of a space.
ALTER TABLE revision ADD COLUMN written_in TEXT;
CREATE TABLE former_place AS
  SELECT space, subjects, json_extract(payload, '$.revision') AS revision, time
  FROM log_entry WHERE action = 'move.out';
CREATE INDEX former_place_by_subjects ON former_place (subjects, revision);
UPDATE revision SET written_in = coalesce(
  (SELECT former_place.space FROM former_place
    WHERE former_place.subjects = '["' || revision.memory || '"]' AND former_place.revision > revision.revision
    ORDER BY former_place.revision, former_place.time LIMIT 1),
  revision.space);
DROP TABLE former_place;

-- limits
CREATE TABLE refusal_count (
  space TEXT NOT NULL, principal TEXT NOT NULL, hour TEXT NOT NULL, refused INTEGER NOT NULL,
  PRIMARY KEY (space, principal)) WITHOUT ROWID;

-- sessions: a session belongs to its space, and the same name in two spaces is two sessions
ALTER TABLE session ADD COLUMN parent_space TEXT;
UPDATE session SET parent_space = coalesce(
  (SELECT session_place.space FROM session_place WHERE session_place.id = session.parent), session.space)
  WHERE parent IS NOT NULL;
DROP INDEX session_by_parent;
CREATE INDEX session_by_parent ON session (parent_space, parent) WHERE parent IS NOT NULL;
CREATE INDEX session_by_id ON session (id);

-- memories: the name of the space of an episode's session, if the episode is in another space
ALTER TABLE memory ADD COLUMN session_space TEXT;
UPDATE memory SET session_space = (
  SELECT space.name FROM session_place JOIN space ON space.id = session_place.space
  WHERE session_place.id = memory.session AND session_place.space <> memory.space)
  WHERE session IS NOT NULL;
CREATE INDEX memory_by_session_space ON memory (session_space) WHERE session_space IS NOT NULL;
DROP TABLE session_place;

-- jobs: notify the memories whose successors have expired or were deleted, or will expire
INSERT INTO job (id, space, kind, subject, state, due, attempts, error, created)
  SELECT 'ending ' || space || ' ' || id, space, 'ending', id, 'waiting',
    '2026-01-01T00:00:00.000000Z', 0, '', '2026-01-01T00:00:00.000000Z'
  FROM memory WHERE (deleted IS NOT NULL OR expires IS NOT NULL)
    AND EXISTS (
      SELECT 1 FROM link WHERE link.space = memory.space AND source = memory.id AND relation = 'supersedes')
  ON CONFLICT DO NOTHING;

-- memories: the hashes of rows that exist already are filled in when the book is opened, since they need its key
ALTER TABLE memory ADD COLUMN content_hash TEXT NOT NULL DEFAULT '';
ALTER TABLE memory ADD COLUMN copy_hash TEXT;

-- links
ALTER TABLE link DROP COLUMN revision;
ALTER TABLE link ADD COLUMN target_hash TEXT;

-- files: those that an older program could not parse are read again
UPDATE file SET young = 1 WHERE trouble IS NOT NULL;
"""

VERSION_5: Final = """
-- links in texts, and the names by which they find memories
CREATE TABLE mention (
  space TEXT NOT NULL, memory TEXT NOT NULL, target TEXT NOT NULL, name TEXT NOT NULL,
  PRIMARY KEY (space, memory, target)) WITHOUT ROWID;
CREATE INDEX mention_by_name ON mention (space, name);
CREATE TABLE memory_name (
  space TEXT NOT NULL, memory TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (space, memory, name)) WITHOUT ROWID;
CREATE INDEX memory_name_by_name ON memory_name (space, name);

-- duplicates: the rows of a memory follow from its text
DROP INDEX memory_mark_by_memory;

-- idempotency: the hashes in the records of imports are cut to 16 digits in keys, and to 32 of contents
UPDATE idempotency SET key = substr(key, 1, 57), content = substr(content, 1, 32)
  WHERE substr(key, 1, 7) = 'import:' AND length(key) = 105;

-- memories: fields of the user's own, as JSON
ALTER TABLE memory ADD COLUMN metadata TEXT;

-- log: the deletions of a memory, and its ways back
CREATE INDEX log_entry_by_deletion ON log_entry (subjects) WHERE action IN ('delete', 'restore', 'undelete');

-- files: the saves that brought older words back, until somebody has looked
CREATE TABLE file_reverted (memory TEXT NOT NULL PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;

-- spaces: the folder of the files of a space, if it is not the default one
ALTER TABLE space ADD COLUMN folder TEXT;

-- files: the space that a memory was in when its file left a path
ALTER TABLE file_left ADD COLUMN space TEXT;

-- keys: the space of writes that name none
ALTER TABLE api_key ADD COLUMN default_space TEXT;
"""

VERSION_6: Final = """
-- keys: a login code that is exchanged once for a second secret, both stored as keyed hashes
ALTER TABLE api_key ADD COLUMN login_code TEXT;
ALTER TABLE api_key ADD COLUMN login_until TEXT;
ALTER TABLE api_key ADD COLUMN login_hash TEXT;
CREATE UNIQUE INDEX api_key_by_login_code ON api_key (login_code) WHERE login_code IS NOT NULL;
CREATE UNIQUE INDEX api_key_by_login_hash ON api_key (login_hash) WHERE login_hash IS NOT NULL;

-- memories: long texts are compressed. The rows are written anew, so that they lie close together
CREATE TABLE memory_packed (
  space TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL,
  tags TEXT NOT NULL, links TEXT NOT NULL, author TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
  importance REAL,
  occurred TEXT, valid_from TEXT, valid_until TEXT, expires TEXT, revision INTEGER NOT NULL, version INTEGER NOT NULL,
  revised_by TEXT NOT NULL, revised_at TEXT NOT NULL, revised_how TEXT NOT NULL,
  path TEXT NOT NULL, layout TEXT NOT NULL, digest TEXT NOT NULL, deleted TEXT,
  session TEXT, shared TEXT, judged TEXT, session_space TEXT, content_hash TEXT NOT NULL DEFAULT '', copy_hash TEXT,
  metadata TEXT, PRIMARY KEY (space, id));
INSERT INTO memory_packed
  SELECT space, id, kind, title, compressed(text), tags, links, author, created, updated, importance, occurred,
    valid_from, valid_until, expires, revision, version, revised_by, revised_at, revised_how, path, layout, digest,
    deleted, session, shared, judged, session_space, content_hash, copy_hash, metadata
  FROM memory ORDER BY rowid;
DROP TABLE memory;
ALTER TABLE memory_packed RENAME TO memory;
CREATE INDEX memory_by_time ON memory (space, created, id);
CREATE INDEX memory_by_path ON memory (path);
CREATE INDEX memory_by_session_space ON memory (session_space) WHERE session_space IS NOT NULL;

-- memories: few have one text, so the index needs neither their spaces nor their order
CREATE INDEX memory_by_digest ON memory (digest) WHERE deleted IS NULL;

-- revisions: long texts are compressed
UPDATE revision SET text = compressed(text) WHERE length(text) >= 64;

-- links: the names of a memory follow from the memory, so there is one index of them, by name
CREATE TABLE name_packed (
  space TEXT NOT NULL, name TEXT NOT NULL, memory TEXT NOT NULL, PRIMARY KEY (space, name, memory)) WITHOUT ROWID;
INSERT INTO name_packed SELECT space, name, memory FROM memory_name ORDER BY space, name, memory;
DROP TABLE memory_name;
ALTER TABLE name_packed RENAME TO memory_name;

-- duplicates: memories by the 16 bytes of their ids
CREATE TABLE mark_packed (
  space TEXT NOT NULL, mark INTEGER NOT NULL, memory BLOB NOT NULL, PRIMARY KEY (space, mark, memory)) WITHOUT ROWID;
INSERT INTO mark_packed SELECT space, mark, id_bytes(memory) FROM memory_mark ORDER BY space, mark, memory;
DROP TABLE memory_mark;
ALTER TABLE mark_packed RENAME TO memory_mark;

-- idempotency: whole requests have no space, and are removed by their age
CREATE INDEX idempotency_by_time ON idempotency (at) WHERE space = '';

-- keys: the nonce of the client that has exchanged the login code, as a keyed hash
ALTER TABLE api_key ADD COLUMN login_nonce TEXT;

-- browser sessions: links that sign a browser in, and the sessions that they are exchanged for
CREATE TABLE browser_session (
  hash TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, key_id TEXT NOT NULL, expires TEXT NOT NULL);
CREATE INDEX browser_session_by_expiry ON browser_session (expires);

-- prompt uses: the passages of memories and messages that were put into turns of sessions
CREATE TABLE prompt_use (
  space TEXT NOT NULL, session TEXT NOT NULL, seq INTEGER NOT NULL, item TEXT NOT NULL, hash TEXT NOT NULL,
  revision INTEGER, at TEXT NOT NULL, principal TEXT NOT NULL,
  PRIMARY KEY (space, session, seq, item, hash)) WITHOUT ROWID;
CREATE INDEX prompt_use_by_item ON prompt_use (space, item);
"""

VERSION_7: Final = """
-- spaces: whose memories are proposed first
ALTER TABLE space ADD COLUMN review TEXT;

-- requests: decided proposals are kept with the share requests
ALTER TABLE request ADD COLUMN purpose TEXT NOT NULL DEFAULT 'share';
"""

VERSION_8: Final = """
-- files: hardly any has a trouble, and every recall asks for those of its hits
CREATE INDEX file_by_trouble ON file (memory) WHERE trouble IS NOT NULL;
"""

MIGRATIONS: Final = (VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6, VERSION_7, VERSION_8)
"""Migration n takes a database from version n to version n + 1."""
