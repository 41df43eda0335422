"""Cursors of pages as opaque texts: each holds the position (time of creation, id) of the last item of a page."""

from __future__ import annotations

import base64
import binascii
import re

from commonbook.errors import BadInput


def format_cursor(created: str, item_id: str) -> str:
    """Return the cursor after an item of a page."""
    return base64.urlsafe_b64encode(f"{created} {item_id}".encode()).decode().rstrip("=")


def parse_cursor(cursor: str) -> tuple[str, str]:
    """Return the position in a cursor that `format_cursor` made; BadInput if it is none."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    created, _, item_id = text.partition(" ")
    if not re.fullmatch(r"[0-9T:.Z-]{27}", created) or not item_id:
        raise BadInput(f"{cursor!r} is not a cursor", fix="pass on the `next` of the page before, as it is")
    return created, item_id
