"""The SQL condition of the filters of an index query: kinds, tags, times, validity, supersession."""

from __future__ import annotations

from typing import Any

from commonbook.engines.index.segments import tag_term
from commonbook.engines.postgres.passage_rows import array_literal, signed_hash
from commonbook.model.memory import KINDS
from commonbook.ports.index import FOREVER, IndexQuery


def filter_condition(query: IndexQuery, params: dict[str, Any]) -> tuple[str, bool]:
    """Return the filter condition of a query, and whether it excludes more than a few passages."""
    allowed = [
        index
        for index, kind in enumerate(KINDS)
        if (not query.kinds or kind in query.kinds) and kind not in query.excluded_kinds
    ]
    conditions, selective = [], bool(query.kinds or query.tags or query.required_terms)
    if len(allowed) < len(KINDS):
        conditions.append("p.kind = ANY(%(kinds)s::smallint[])")
        params["kinds"] = array_literal(allowed)
    required = (*map(tag_term, query.tags), *query.required_terms)
    conditions += [has_term(term, f"required{index}", params) for index, term in enumerate(required)]
    bounds = (
        ("time", ">=", "since", query.since, query.since > -FOREVER),
        ("time", "<=", "until", query.until, query.until < FOREVER),
        ("valid_from", "<=", "as_of", query.as_of, query.as_of is not None),
        ("valid_until", ">", "as_of", query.as_of, query.as_of is not None),
    )
    for column, operator, name, value, applies in bounds:
        if applies:
            conditions.append(f"p.{column} {operator} %({name})s::bigint")
            params[name], selective = value, True
    if query.alive_at > -FOREVER:
        conditions.append("p.expires > %(alive_at)s::bigint")
        params["alive_at"] = query.alive_at
    if not query.superseded:
        conditions.append("(p.superseded > %(superseded)s::bigint OR p.superseded_until <= %(now)s::bigint)")
        params["superseded"] = FOREVER - 1 if query.as_of is None else query.as_of
        params["now"] = query.now
    return " AND ".join(conditions) or "true", selective


def has_term(term: str, name: str, params: dict[str, Any]) -> str:
    """Return the condition that a passage has a term, which becomes the parameter of this name."""
    params[name] = signed_hash(term)
    return (
        f"EXISTS (SELECT FROM recall_posting t WHERE t.space = p.space AND t.id = p.id AND t.term = %({name})s::bigint)"
    )
