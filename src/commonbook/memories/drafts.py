"""Drafts of new memories: validated as far as that needs no book, masked, and known again by a fingerprint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from commonbook.errors import BadText, BadTime
from commonbook.model.ids import format_time
from commonbook.model.memory import Draft
from commonbook.runtime.compressed_text import CACHED_TEXTS, compress
from commonbook.text import masking, space_names, titles, user_times, validation

if TYPE_CHECKING:
    from commonbook.write.context import WriteContext

_TIME_FIELDS: Final = ("occurred", "valid_from", "valid_until", "expires")


class MaskedDraft(NamedTuple):
    """A draft as it was sent, by which a repeat is recognised, and as it will be stored, without its secrets."""

    sent: Draft
    stored: Draft
    masked: int


def validate(draft: Draft) -> Draft:
    """Return the draft normalized, or refuse it, as far as that needs no data of the book."""
    text = validation.validate_text(draft.text)
    title = validation.validate_title(draft.title) if draft.title else ""
    if not title and not text.strip():
        raise BadText("there is nothing to remember", fix="give a text, or at least a title")
    return draft._replace(
        text=text,
        title=title or titles.derive_title(text),
        space=space_names.require_space_name(draft.space or space_names.PERSONAL),
        kind=validation.validate_kind(draft.kind),
        tags=validation.validate_tags(draft.tags),
        importance=validation.validate_importance(draft.importance),
        metadata=validation.validate_metadata(draft.metadata),
        links=tuple(
            (validation.validate_new_relation(relation), validation.validate_memory_id(target))
            for relation, target in draft.links
        ),
        replaces=validation.validate_memory_id(draft.replaces) if draft.replaces else None,
        key=validation.validate_key(draft.key) if draft.key is not None else None,
    )


def mask(sent: Draft) -> MaskedDraft:
    """Remove what must not be stored: secrets and private parts."""
    if not sent.mask:
        return MaskedDraft(sent, sent, 0)
    text, in_text = masking.mask(sent.text)
    title, in_title = sent.title or "", 0
    if title == titles.derive_title(sent.text):
        title = titles.derive_title(text)
    else:
        title, in_title = masking.mask_title(title)
    fields, in_fields = masking.mask_metadata(sent.metadata)
    tags, in_tags = masking.mask_tags(sent.tags)
    masked = in_text + in_title + in_fields + in_tags
    stored = sent._replace(text=text, title=title, metadata=fields, tags=tags) if masked else sent
    return MaskedDraft(sent, stored, masked)


def prepare(drafts: Sequence[MaskedDraft]) -> None:
    """Compress the texts of drafts before the lock of the writers is taken.

    The transaction finds the results in the cache of `compress`, as many as have room there.
    """
    for draft in drafts[:CACHED_TEXTS]:
        compress(draft.stored.text)


def fingerprint(ctx: WriteContext, draft: Draft) -> str:
    """Return a keyed hash of the draft: it recognizes a repeat, and the text cannot be guessed from it.

    Fields with their default value are left out, so that a field added in a later version changes no stored hash. The
    space is part of the idempotency key already, by its id, which a rename does not change.
    """
    times = {name: _normalize_time(ctx, name, getattr(draft, name)) for name in _TIME_FIELDS}
    title = None if draft.title == titles.derive_title(draft.text) else draft.title
    fields = {**draft._asdict(), "title": title, "metadata": dict(draft.metadata), **times}
    default = Draft("")._asdict()
    hashed = {name: fields[name] for name in fields if name not in ("key", "space") and fields[name] != default[name]}
    return ctx.engines.keys.keyed_hash(json.dumps(hashed, sort_keys=True))


def _normalize_time(ctx: WriteContext, name: str, value: datetime | str | None) -> str | None:
    """Return one spelling of a time; relative words such as `yesterday` stay, since a repeat comes later."""
    if value is None:
        return None
    try:
        return format_time(user_times.parse_user_time(value, zone=ctx.engines.zone, edge=user_times.field_edge(name)))
    except BadTime:
        return " ".join(str(value).lower().split())
