"""JSON values: turn the values that the book returns into dicts for JSON output.

The keys are a stable interface for programs that read the output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from commonbook.errors import CommonbookError, TooMany
from commonbook.model.ids import format_optional_time, format_time
from commonbook.model.memory import MENTIONS

if TYPE_CHECKING:
    from commonbook.model.invalidation import Notice
    from commonbook.model.memory import CopyInfo, Deleted, Deletion, Link, Memory, Page, Receipt, Revision
    from commonbook.model.recall import Hit, RecallResult
    from commonbook.model.session import (
        AppendReceipt,
        Message,
        MessagePage,
        MessageReceipt,
        PromptUse,
        Session,
        SettleReport,
        WorkReport,
    )
    from commonbook.model.sharing import Ancestor, CopyNode, Lineage, ShareReceipt
    from commonbook.model.spaces import ApiKey, Grant, Identity, Space


def dumps(value: object, *, encoding: str | None) -> str:
    """Write one line of JSON that the encoding can represent and that is safe to show on a terminal."""
    if (encoding or "").lower().replace("-", "") != "utf8":
        return json.dumps(value)
    line = json.dumps(value, ensure_ascii=False)
    # JSON escapes the control characters below U+0020 itself; the others would reach a terminal as they are.
    return re.sub("[\x7f-\x9f\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", line)


def error_json(problem: CommonbookError) -> dict[str, Any]:
    """Return an error as it is written to standard error."""
    retry = {"retry_after": problem.retry_after} if isinstance(problem, TooMany) else {}
    return {"error": {"type": problem.type, "message": problem.message, "fix": problem.fix, **retry}}


def receipt_json(receipt: Receipt) -> dict[str, Any]:
    """Return the receipt of a write."""
    return {
        "id": receipt.id,
        "revision": receipt.revision,
        "version": receipt.version,
        "space": receipt.space,
        "path": receipt.path,
        "new": receipt.new,
        "durable": receipt.durable,
        "searchable": receipt.searchable,
        "duplicate_of": receipt.duplicate_of,
        "tags_in_text": list(receipt.tags_in_text),
        "copies": receipt.copies,
        "masked": receipt.masked,
        "proposed": receipt.proposed,
    }


def memory_json(memory: Memory) -> dict[str, Any]:
    """Return all fields of a memory, with its marks and freshness."""
    return {
        "id": memory.id,
        "space": memory.space,
        "kind": memory.kind,
        "title": memory.title,
        "text": memory.text,
        "tags": list(memory.tags),
        "author": memory.author,
        "created": format_time(memory.created),
        "updated": format_time(memory.updated),
        "importance": memory.importance,
        "metadata": dict(memory.metadata),
        "occurred": time_or_none(memory.occurred),
        "valid_from": time_or_none(memory.valid_from),
        "valid_until": time_or_none(memory.valid_until),
        "expires": time_or_none(memory.expires),
        "revision": memory.revision,
        "version": memory.version,
        "path": memory.path,
        "deleted": time_or_none(memory.deleted),
        "links": [{"relation": link.relation, "target": link.target} for link in memory.links],
        "marks": list(memory.marks),
        "superseded_by": memory.superseded_by,
        "freshness": memory.freshness,
        "successor": memory.successor,
        "shared": _shared(memory.shared),
        "invalidations": [{**cause._asdict(), "path": list(cause.path)} for cause in memory.invalidations],
        "decisions": [{**decision._asdict(), "at": format_time(decision.at)} for decision in memory.decisions],
        "notice": _notice(memory.notice),
    }


def _notice(notice: Notice | None) -> dict[str, Any] | None:
    """Return the fields of a notice under the names of its front matter; None if the memory is no notice."""
    if notice is None:
        return None
    return {
        "dependent_id": notice.dependent,
        "invalidated_id": notice.invalidated,
        "invalidating_id": notice.invalidating,
        "timestamp": format_time(notice.at),
    }


def _shared(copy: CopyInfo | None) -> dict[str, Any] | None:
    """Return who shared a copy, when and from where; None if the memory is no copy."""
    if copy is None:
        return None
    return {
        "source": copy.source,
        "root": copy.root,
        "by": copy.by,
        "at": format_time(copy.at),
        "refresh": copy.mode,
        "claimed": copy.claimed,
        "approved_by": copy.approved_by,
    }


def memory_with_links_json(memory: Memory, links: Iterable[Link]) -> dict[str, Any]:
    """Return a memory together with the memories that its text links to, and the links that point to it."""
    incoming = [link for link in links if link.target == memory.id]
    return {
        **memory_json(memory),
        "mentions": [link.target for link in links if link.source == memory.id and link.relation == MENTIONS],
        "linked_from": [{"relation": link.relation, "source": link.source} for link in incoming],
    }


def links_json(links: Iterable[Link]) -> dict[str, Any]:
    """Return links in both directions."""
    return {"links": [link._asdict() for link in links]}


def page_json(page: Page) -> dict[str, Any]:
    """Return a page of memories."""
    return {"items": [memory_json(memory) for memory in page.items], "next": page.next}


def recall_result_json(result: RecallResult, *, explain: bool) -> dict[str, Any]:
    """Return the hits of a recall; with `explain`, also the time of each step and the matched words."""
    data: dict[str, Any] = {"hits": [_hit(hit, explain=explain) for hit in result.hits], "took_ms": result.took_ms}
    data["left_out"] = result.left_out
    data["fence"] = result.fence
    data["nearest"] = None if result.nearest is None else _hit(result.nearest, explain=explain)
    if explain:
        data["steps"] = dict(result.steps)
    if explain or result.notes:
        data["notes"] = list(result.notes)
    return data


def _hit(hit: Hit, *, explain: bool) -> dict[str, Any]:
    data = {
        "type": hit.type,
        "id": hit.id,
        "passage_id": hit.passage_id,
        "memory": hit.memory,
        "session": hit.session,
        "seq": hit.seq,
        "kind": hit.kind,
        "space": hit.space,
        "title": hit.title,
        "text": hit.text,
        "passage": hit.passage,
        "before": hit.before,
        "after": hit.after,
        "author": hit.author,
        "score": hit.score,
        "confidence": hit.confidence,
        "parts": dict(hit.parts),
        "freshness": hit.freshness,
        "successor": hit.successor,
        "shared": _shared(hit.shared),
        "also_in": [{"space": place.space, "id": place.id} for place in hit.also_in],
        "suspect": hit.suspect,
        "superseded_by": hit.superseded_by,
        "marks": list(hit.marks),
        "path": hit.path,
        "revision": hit.revision,
        "tags": list(hit.tags),
        "occurred": time_or_none(hit.occurred),
        "created": format_time(hit.created),
    }
    return {**data, "matched": list(hit.matched)} if explain else data


def deletion_json(deletion: Deleted) -> dict[str, Any]:
    """Return the ids and titles that a delete removed, or would remove in a dry run."""
    return {"ids": list(deletion.ids), "titles": list(deletion.titles), "dry_run": deletion.dry_run}


def history_json(memory_id: str, revisions: Iterable[Revision], diffs: Iterable[str | None]) -> dict[str, Any]:
    """Return every revision of a memory, each with its diff to the one before."""
    items = [
        {
            "revision": revision.revision,
            "title": revision.title,
            "text": revision.text,
            "author": revision.author,
            "at": format_time(revision.at),
            "how": revision.how,
            "current": revision.current,
            "readable": revision.readable,
            "deletions": [_deletion(deletion) for deletion in revision.deletions],
            "diff": diff,
        }
        for revision, diff in zip(revisions, diffs, strict=True)
    ]
    return {"id": memory_id, "revisions": items}


def _deletion(deletion: Deletion) -> dict[str, Any]:
    times = {"at": format_time(deletion.at), "restored_at": format_optional_time(deletion.restored_at)}
    return {**deletion._asdict(), **times}


def append_receipt_json(receipt: AppendReceipt) -> dict[str, Any]:
    """Return the receipt of an append."""
    return {
        "session": receipt.session,
        "space": receipt.space,
        "messages": [_message_receipt(message) for message in receipt.messages],
        "durable": receipt.durable,
        "searchable": receipt.searchable,
        "settled": receipt.settled,
    }


def _message_receipt(receipt: MessageReceipt) -> dict[str, Any]:
    data: dict[str, Any] = {"id": receipt.id, "seq": receipt.seq, "new": receipt.new, "masked": receipt.masked}
    return {**data, "rewound": True} if receipt.rewound else data


def session_json(session: Session) -> dict[str, Any]:
    """Return one session."""
    return {
        "id": session.id,
        "space": session.space.name,
        "parent": session.parent,
        "parent_space": session.parent_space,
        "tags": list(session.tags),
        "created": format_time(session.created),
        "closed": time_or_none(session.closed),
        "generation": session.generation,
        "messages": session.last,
        "unsettled": session.unsettled,
    }


def sessions_json(sessions: Iterable[Session]) -> dict[str, Any]:
    """Return several sessions, newest first."""
    return {"sessions": [session_json(session) for session in sessions]}


def message_json(message: Message) -> dict[str, Any]:
    """Return one message of a session."""
    return {
        "id": message.id,
        "seq": message.seq,
        "role": message.role,
        "author": message.author,
        "text": message.text,
        "time": format_time(message.time),
        "client_id": message.client_id,
        "masked": message.masked,
        "episode": message.episode,
        "rewound_at": time_or_none(message.rewound_at),
    }


def message_page_json(page: MessagePage) -> dict[str, Any]:
    """Return a page of messages of a session, in order."""
    return {
        "session": session_json(page.session),
        "messages": [message_json(message) for message in page.items],
        "next": page.next,
    }


def uses_json(used: Iterable[PromptUse]) -> dict[str, Any]:
    """Return what was put into turns of sessions."""
    return {"uses": [{**use._asdict(), "at": format_time(use.at)} for use in used]}


def settle_report_json(report: SettleReport) -> dict[str, Any]:
    """Return the episodes that were made of a session, and how many messages are not settled."""
    return {
        "session": report.session,
        "space": report.space,
        "episodes": list(report.episodes),
        "unsettled": report.unsettled,
    }


def rewind_json(session_id: str, messages: Iterable[Message]) -> dict[str, Any]:
    """Return the messages that a rewind removed from the session."""
    return {"session": session_id, "rewound": [{"id": message.id, "seq": message.seq} for message in messages]}


def work_report_json(report: WorkReport) -> dict[str, Any]:
    """Return the result of one job of the worker; it has `error` only if it failed."""
    data = settle_report_json(report.settled)
    return {**data, "error": report.error} if report.error else data


def share_receipt_json(receipt: ShareReceipt) -> dict[str, Any]:
    """Return the receipt of sharing one memory; it has `error` only if it failed."""
    data = {
        "id": receipt.id or None,
        "source": receipt.source,
        "space": receipt.space,
        "new": receipt.new,
        "refresh": receipt.refresh,
        "revision": receipt.revision,
        "retied": receipt.retied,
        "freshness": receipt.freshness,
    }
    return {**data, "error": receipt.error} if receipt.error else data


def share_receipts_json(receipts: Iterable[ShareReceipt]) -> dict[str, Any]:
    """Return the receipts of sharing several memories."""
    return {"items": [share_receipt_json(receipt) for receipt in receipts]}


def lineage_json(lineage: Lineage) -> dict[str, Any]:
    """Return the ancestors of a memory, nearest first, and the tree of its copies."""
    return {
        **_in_lineage(lineage),
        "ancestors": [_ancestor(ancestor) for ancestor in lineage.ancestors],
        "copies": [{**_copy(node), "copies": _tree(node)} for node in lineage.copies],
        "truncated": lineage.truncated,
    }


def _tree(node: CopyNode) -> list[dict[str, Any]]:
    return [{**_copy(copy), "copies": _tree(copy)} for copy in node.copies]


def copies_json(memory_id: str, nodes: Iterable[CopyNode]) -> dict[str, Any]:
    """Return all copies of a memory, and their copies, as a flat list."""
    return {"id": memory_id, "copies": [_copy(node) for node in nodes]}


def _ancestor(ancestor: Ancestor) -> dict[str, Any]:
    return {**_in_lineage(ancestor), "readable": ancestor.readable, "claimed": ancestor.claimed}


def _in_lineage(member: Lineage | Ancestor) -> dict[str, Any]:
    """Return the fields that a memory and its ancestors have in common."""
    return {
        "id": member.id,
        "title": member.title,
        "space": member.space,
        "deleted": time_or_none(member.deleted),
        "refresh": member.refresh,
        "freshness": member.freshness,
    }


def _copy(node: CopyNode) -> dict[str, Any]:
    return {
        "id": node.id,
        "source": node.source,
        "depth": node.depth,
        "title": node.title,
        "space": node.space,
        "refresh": node.refresh,
        "freshness": node.freshness,
        "readable": node.readable,
    }


def grant_json(grant: Grant) -> dict[str, Any]:
    """Return one grant."""
    return {
        "principal": grant.principal,
        "space": grant.space.name,
        "role": grant.role,
        "granted_by": grant.granted_by,
        "granted_at": format_time(grant.granted_at),
        "expires": time_or_none(grant.expires),
    }


def grants_json(grants: Iterable[Grant]) -> dict[str, Any]:
    """Return several grants."""
    return {"grants": [grant_json(grant) for grant in grants]}


def key_json(key: ApiKey, names: Mapping[str, str]) -> dict[str, Any]:
    """Return an API key with the names of the spaces in its limits. The secret is not stored, so it is not here."""
    limits = None
    if key.limits is not None:
        limits = [{"space": names.get(space), "space_id": space, "role": role} for space, role in key.limits]
    return {
        "id": key.id,
        "principal": key.principal,
        "label": key.label,
        "limits": limits,
        "default_space": names.get(key.default_space or ""),
        "created": format_time(key.created),
        "created_by": key.created_by,
        "expires": time_or_none(key.expires),
        "revoked": time_or_none(key.revoked),
    }


def identity_json(identity: Identity) -> dict[str, Any]:
    """Return the identity of a caller."""
    return {
        **identity._asdict(),
        "spaces": [role._asdict() for role in identity.spaces],
        "limits": None if identity.limits is None else [role._asdict() for role in identity.limits],
        "expires": time_or_none(identity.expires),
    }


def space_json(space: Space) -> dict[str, Any]:
    """Return one space."""
    values = {name: getattr(space, name) for name in ("id", "name", "depth", "folder", "review")}
    return {**values, "created": format_time(space.created)}


def spaces_json(spaces: Iterable[Space]) -> dict[str, Any]:
    """Return several spaces."""
    return {"spaces": [space_json(space) for space in spaces]}


def time_or_none(value: datetime | None) -> str | None:
    """Return a time as text, or None if there is none."""
    return format_time(value) if value else None
