"""Entity tags: the version of a memory as `ETag`, and the headers `If-Match` and `If-None-Match`.

The tag of a memory is its version, `"3"`. The book derives some fields when a memory is read, such as its marks and its
freshness. Where they say something, a hash of them follows the version, `"3.1f0c…"`. So two answers with one tag say
the same, except for the name and the folder of the space, which change without a new version. `If-Match` takes either
form, and compares the version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from commonbook.errors import BadInput
from commonbook.model.memory import Memory
from commonbook.wire.encoding import dumps

_DERIVED: Final = ("marks", "superseded_by", "freshness", "successor", "invalidations")
_TAG: Final = re.compile(r'"(\d{1,15})(?:\.[0-9a-f]+)?"')


def entity_tag(result: Any) -> str:  # noqa: ANN401 - a value with a version
    """Return the tag of a memory, or of the receipt of one."""
    if not isinstance(result, Memory):
        return f'"{result.version}"'
    derived = tuple(getattr(result, name) for name in _DERIVED)
    if not any(derived):
        return f'"{result.version}"'
    return f'"{result.version}.{blake2b(dumps(derived), digest_size=8).hexdigest()}"'


def expected_version(header: str | None, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the argument `expected_version` that the header `If-Match` stands for; none for `*` and no header."""
    if header is None or header.strip() == "*":
        return {}
    tag = _TAG.fullmatch(header.strip())
    if tag is None:
        raise BadInput("the header If-Match has no version", fix='send the ETag of the memory, such as `If-Match: "3"`')
    version = int(tag[1])
    if arguments.get("expected_version") not in (None, version):
        raise BadInput("If-Match and expected_version are different versions", fix="send one of them")
    return {"expected_version": version}


def is_unchanged(header: str | None, tag: str) -> bool:
    """Tell whether the header `If-None-Match` has the tag, so that the caller has the answer already."""
    if header is None:
        return False
    tags = [candidate.strip().removeprefix("W/") for candidate in header.split(",")]
    return tag in tags or tags == ["*"]
