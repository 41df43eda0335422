"""Values of the book as JSON. The keys are a promise to every program that reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from commonbook.errors import CommonbookError, TooMany
from commonbook.model.ids import format_time
from commonbook.model.invalidation import Notice
from commonbook.model.memory import CopyInfo, Deleted, Link, Memory, Page, Receipt, Revision
from commonbook.model.recall import Hit, RecallResult
from commonbook.model.reports import Finding, LogEntry, LogReport, MigrationReport, Status, SyncReport, TransferReport
from commonbook.model.session import (
    AppendReceipt,
    Message,
    MessagePage,
    MessageReceipt,
    Session,
    SettleReport,
    WorkReport,
)
from commonbook.model.sharing import Ancestor, CopyNode, Lineage, ShareReceipt
from commonbook.model.spaces import ApiKey, Grant, Space


def dumps(value: object, *, encoding: str | None) -> str:
    """Write one line of JSON that the encoding can hold and a terminal can be shown."""
    if (encoding or "").lower().replace("-", "") != "utf8":
        return json.dumps(value)
    line = json.dumps(value, ensure_ascii=False)
    # JSON escapes the control characters below U+0020 itself; the others would reach a terminal as they are.
    return re.sub("[\x7f-\x9f\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", line)


def error(problem: CommonbookError) -> dict[str, Any]:
    """An error as it goes to standard error."""
    later = {"retry_after": problem.retry_after} if isinstance(problem, TooMany) else {}
    return {"error": {"type": problem.type, "message": problem.message, "fix": problem.fix, **later}}


def receipt(said: Receipt) -> dict[str, Any]:
    """What a write returned."""
    return {
        "id": said.id,
        "revision": said.revision,
        "version": said.version,
        "space": said.space,
        "path": said.path,
        "new": said.new,
        "durable": said.durable,
        "searchable": said.searchable,
        "duplicate_of": said.duplicate_of,
        "near": list(said.near),
        "copies": said.copies,
    }


def memory(said: Memory) -> dict[str, Any]:
    """All that a memory says, and what is to be said of it."""
    return {
        "id": said.id,
        "space": said.space.name,
        "kind": said.kind,
        "title": said.title,
        "text": said.text,
        "tags": list(said.tags),
        "author": said.author,
        "created": format_time(said.created),
        "updated": format_time(said.updated),
        "importance": said.importance,
        "occurred": time_or_none(said.occurred),
        "valid_from": time_or_none(said.valid_from),
        "valid_until": time_or_none(said.valid_until),
        "expires": time_or_none(said.expires),
        "revision": said.revision,
        "version": said.version,
        "revised_by": said.revised_by,
        "revised_at": format_time(said.revised_at),
        "revised_how": said.revised_how,
        "path": said.path,
        "deleted": time_or_none(said.deleted),
        "links": [{"relation": one.relation, "target": one.target, "revision": one.revision} for one in said.links],
        "marks": list(said.marks),
        "superseded_by": said.superseded_by,
        "freshness": said.freshness,
        "successor": said.successor,
        "shared": _shared(said.shared, said.source),
        "invalidations": [{**one._asdict(), "path": list(one.path)} for one in said.invalidations],
        "decisions": [{**one._asdict(), "at": format_time(one.at)} for one in said.decisions],
        "notice": _notice(said.notice),
    }


def _notice(said: Notice | None) -> dict[str, Any] | None:
    """Say what makes a memory a notice, in the words of its front matter; None for what is none."""
    if said is None:
        return None
    return {
        "dependent_id": said.dependent,
        "invalidated_id": said.invalidated,
        "invalidating_id": said.invalidating,
        "timestamp": format_time(said.at),
    }


def _shared(said: CopyInfo | None, source: Link | None) -> dict[str, Any] | None:
    """Say what makes a memory a copy; None for what is none."""
    if said is None or source is None:
        return None
    return {
        "source": source.target,
        "source_revision": source.revision,
        "root": said.root,
        "by": said.by,
        "at": format_time(said.at),
        "refresh": said.mode,
        "claimed": said.claimed,
    }


def shown(said: Memory, incoming: Iterable[Link]) -> dict[str, Any]:
    """A memory with the links that lead to it."""
    leading_here = [{"relation": one.relation, "source": one.source, "revision": one.revision} for one in incoming]
    return {**memory(said), "linked_from": leading_here}


def page(said: Page) -> dict[str, Any]:
    """A page of a list."""
    return {"items": [memory(one) for one in said.items], "next": said.next}


def recalled(said: RecallResult, *, explain: bool) -> dict[str, Any]:
    """The answer to a question, with its reasons if they were asked for."""
    told: dict[str, Any] = {"hits": [_hit(one, explain=explain) for one in said.hits], "took_ms": said.took_ms}
    if explain:
        told["steps"] = dict(said.steps)
    if explain or said.notes:
        told["notes"] = list(said.notes)
    return told


def _hit(said: Hit, *, explain: bool) -> dict[str, Any]:
    told = {
        "type": said.type,
        "id": said.id,
        "passage_id": said.passage_id,
        "memory": said.memory,
        "session": said.session,
        "seq": said.seq,
        "kind": said.kind,
        "space": said.space,
        "title": said.title,
        "text": said.text,
        "passage": said.passage,
        "before": said.before,
        "after": said.after,
        "author": said.author,
        "score": said.score,
        "parts": dict(said.parts),
        "freshness": said.freshness,
        "successor": said.successor,
        "shared": _shared(said.shared, said.shared_from),
        "suspect": said.suspect,
        "superseded_by": said.superseded_by,
        "marks": list(said.marks),
        "source": dict(said.source),
        "tags": list(said.tags),
        "occurred": time_or_none(said.occurred),
        "created": format_time(said.created),
    }
    return {**told, "matched": list(said.matched)} if explain else told


def deleted(said: Deleted) -> dict[str, Any]:
    """Which memories a delete removed, or would remove."""
    return {"ids": list(said.ids), "dry_run": said.dry_run}


def history(memory_id: str, revisions: Iterable[Revision], diffs: Iterable[str | None]) -> dict[str, Any]:
    """Every revision of a memory, with what it changed."""
    told = [
        {
            "revision": one.revision,
            "title": one.title,
            "text": one.text,
            "author": one.author,
            "at": format_time(one.at),
            "how": one.how,
            "current": one.current,
            "diff": diff,
        }
        for one, diff in zip(revisions, diffs, strict=True)
    ]
    return {"id": memory_id, "revisions": told}


def captured(said: AppendReceipt) -> dict[str, Any]:
    """What an append returned."""
    return {
        "session": said.session,
        "messages": [_appended(one) for one in said.messages],
        "durable": said.durable,
        "searchable": said.searchable,
        "settled": said.settled,
    }


def _appended(said: MessageReceipt) -> dict[str, Any]:
    told: dict[str, Any] = {"id": said.id, "seq": said.seq, "new": said.new, "masked": said.masked}
    return {**told, "rewound": True} if said.rewound else told


def session(said: Session) -> dict[str, Any]:
    """One session."""
    return {
        "id": said.id,
        "space": said.space.name,
        "parent": said.parent,
        "tags": list(said.tags),
        "created": format_time(said.created),
        "closed": time_or_none(said.closed),
        "generation": said.generation,
        "messages": said.last,
        "unsettled": said.unsettled,
    }


def sessions(said: Iterable[Session]) -> dict[str, Any]:
    """Some sessions, newest first."""
    return {"sessions": [session(one) for one in said]}


def message(said: Message) -> dict[str, Any]:
    """One message of a session."""
    return {
        "id": said.id,
        "seq": said.seq,
        "role": said.role,
        "author": said.author,
        "text": said.text,
        "time": format_time(said.time),
        "client_id": said.client_id,
        "masked": said.masked,
        "episode": said.episode,
        "rewound_at": time_or_none(said.rewound_at),
    }


def messages(said: MessagePage) -> dict[str, Any]:
    """Some messages of a session, in order."""
    return {"session": session(said.session), "messages": [message(one) for one in said.items], "next": said.next}


def settled(said: SettleReport) -> dict[str, Any]:
    """What was settled in a session."""
    return {"session": said.session, "episodes": list(said.episodes), "unsettled": said.unsettled}


def rewound(session_id: str, taken: Iterable[Message]) -> dict[str, Any]:
    """Which messages were taken back."""
    return {"session": session_id, "rewound": [{"id": one.id, "seq": one.seq} for one in taken]}


def worked(said: WorkReport) -> dict[str, Any]:
    """What became of a piece of work; `error` only where it failed."""
    told = settled(said.settled)
    return {**told, "error": said.error} if said.error else told


def sharing(said: ShareReceipt) -> dict[str, Any]:
    """What became of sharing a memory; `error` only where it failed."""
    told = {
        "id": said.id or None,
        "source": said.source,
        "space": said.space,
        "new": said.new,
        "refresh": said.refresh,
        "revision": said.revision,
    }
    return {**told, "error": said.error} if said.error else told


def sharings(said: Iterable[ShareReceipt]) -> dict[str, Any]:
    """What became of each of several memories."""
    return {"items": [sharing(one) for one in said]}


def lineage(said: Lineage) -> dict[str, Any]:
    """Where a memory came from, nearest first, and the tree of what was copied from it."""
    return {
        **_in_lineage(said),
        "ancestors": [_ancestor(one) for one in said.ancestors],
        "copies": [{**_copy(one), "copies": _tree(one)} for one in said.copies],
        "cut": said.cut,
    }


def _tree(said: CopyNode) -> list[dict[str, Any]]:
    return [{**_copy(one), "copies": _tree(one)} for one in said.copies]


def copies(memory_id: str, said: Iterable[CopyNode]) -> dict[str, Any]:
    """Every copy of a memory, and theirs, one after the other."""
    return {"id": memory_id, "copies": [_copy(one) for one in said]}


def _ancestor(said: Ancestor) -> dict[str, Any]:
    return {**_in_lineage(said), "readable": said.readable, "claimed": said.claimed}


def _in_lineage(member: Lineage | Ancestor) -> dict[str, Any]:
    """The fields that a memory and its ancestors have in common."""
    return {
        "id": member.id,
        "title": member.title,
        "space": member.space,
        "deleted": time_or_none(member.deleted),
        "refresh": member.refresh,
        "freshness": member.freshness,
    }


def _copy(said: CopyNode) -> dict[str, Any]:
    return {
        "id": said.id,
        "source": said.source,
        "depth": said.depth,
        "title": said.title,
        "space": said.space,
        "refresh": said.refresh,
        "freshness": said.freshness,
        "readable": said.readable,
    }


def grant(said: Grant) -> dict[str, Any]:
    """One grant."""
    return {
        "principal": said.principal,
        "space": said.space.name,
        "role": said.role,
        "granted_by": said.granted_by,
        "granted_at": format_time(said.granted_at),
        "expires": time_or_none(said.expires),
    }


def grants(said: Iterable[Grant]) -> dict[str, Any]:
    """Some grants."""
    return {"grants": [grant(one) for one in said]}


def key(said: ApiKey, names: Mapping[str, str]) -> dict[str, Any]:
    """What is known of a key, with the names of the spaces in its limits; its secret is not."""
    limits = None
    if said.limits is not None:
        limits = [{"space": names.get(space), "space_id": space, "role": role} for space, role in said.limits]
    return {
        "id": said.id,
        "principal": said.principal,
        "label": said.label,
        "limits": limits,
        "created": format_time(said.created),
        "created_by": said.created_by,
        "expires": time_or_none(said.expires),
        "revoked": time_or_none(said.revoked),
    }


def space(said: Space) -> dict[str, Any]:
    """One space."""
    return {"id": said.id, "name": said.name, "created": format_time(said.created), "depth": said.depth}


def spaces(said: Iterable[Space]) -> dict[str, Any]:
    """The spaces."""
    return {"spaces": [space(one) for one in said]}


def status(said: Status) -> dict[str, Any]:
    """How the home is."""
    return {
        "home": said.home,
        "versions": {"program": said.program, "schema": said.schema},
        "counts": {
            "spaces": said.spaces,
            "memories": said.memories,
            "kinds": dict(said.kinds),
            "deleted": said.deleted,
            "links": said.links,
            "copies": said.copies,
            "log_entries": said.log_entries,
            "sessions": said.sessions,
            "messages": said.messages,
        },
        "sizes": {"database_bytes": said.database_bytes, "markdown_bytes": said.markdown_bytes},
        "pending": {
            "files": said.pending_files,
            "deletions": said.pending_deletions,
            "messages": said.unsettled,
            "jobs": said.waiting_jobs,
            "failed_jobs": said.failed_jobs,
            "unsent": said.unsent,
            "refused": said.refused,
        },
        "wrong": findings(said.wrong),
    }


def findings(said: Iterable[Finding]) -> list[dict[str, str]]:
    """What is wrong, where, why, and what to do about it."""
    return [{"what": one.what, "where": one.where, "why": one.why, "fix": one.fix} for one in said]


def doctor(said: tuple[Finding, ...], accepted: int | None) -> dict[str, Any]:
    """What a look at everything found; `accepted` only where deletions were to be accepted."""
    told = {"ok": not said, "findings": findings(said)}
    return told if accepted is None else {**told, "accepted": accepted}


def log_report(said: LogReport) -> dict[str, Any]:
    """What a walk over the log found."""
    return {"ok": said.ok, "spaces": said.spaces, "entries": said.entries, "findings": findings(said.findings)}


def log(space_name: str, entries: Iterable[LogEntry]) -> dict[str, Any]:
    """Entries of a log, each field exactly as it was hashed and signed."""
    names = tuple(LogEntry._fields)
    return {"space": space_name, "entries": [{name: getattr(one, name) for name in names} for one in entries]}


def transfer(said: TransferReport) -> dict[str, Any]:
    """What an import or export did."""
    return {
        "done": said.done,
        "unchanged": said.unchanged,
        "updated": said.updated,
        "links": said.links,
        "skipped": findings(said.skipped),
        "ids": list(said.ids),
    }


def sync(said: SyncReport) -> dict[str, Any]:
    """What a look at the folder took in."""
    return {name: getattr(said, name) for name in SyncReport._fields}


def moved(said: MigrationReport) -> dict[str, Any]:
    """Return what a move of the book took along."""
    return {"to": said.to, "rows": said.rows, "files": said.files, "tables": dict(said.tables)}


def time_or_none(value: datetime | None) -> str | None:
    """A time, or null where there is none."""
    return format_time(value) if value else None
