"""The notice, the decisions, the supersede reasons and the message lines of a memory, as one JSON text for its row."""

from __future__ import annotations

import json

from commonbook.markdown import front_matter
from commonbook.model.ids import format_time, parse_time
from commonbook.model.invalidation import Notice, SupersedeReason
from commonbook.model.stored_memory import StoredMemory


def dump(memory: StoredMemory) -> str | None:
    """Return these parts of a memory as JSON; None if it has none, as most do."""
    if memory.notice is None and not (memory.decisions or memory.supersede_reasons or memory.message_lines):
        return None
    notice = [*memory.notice[:3], format_time(memory.notice.at)] if memory.notice else None
    decisions = [front_matter.format_decision(decision) for decision in memory.decisions]
    return json.dumps([notice, decisions, memory.supersede_reasons, memory.message_lines], ensure_ascii=False)


def load(memory: StoredMemory, judged: str) -> StoredMemory:
    """Return a memory with what `dump` returned."""
    notice, decisions, reasons, lines = json.loads(judged)
    return memory._replace(
        notice=_notice(notice),
        decisions=tuple(front_matter.parse_decision(line) for line in decisions),
        supersede_reasons=tuple(SupersedeReason(*reason) for reason in reasons),
        message_lines=tuple(lines),
    )


def load_notice(judged: str) -> Notice | None:
    """Return only the notice of what `dump` returned."""
    notice, *_ = json.loads(judged)
    return _notice(notice)


def _notice(fields: list[str] | None) -> Notice | None:
    if not fields:
        return None
    dependent, invalidated, invalidating, at = fields
    return Notice(dependent, invalidated, invalidating, parse_time(at))
