"""Query expansion: near words of recent query words are kept, and not without end."""

from __future__ import annotations

from commonbook.engines.embedders.static_table import StaticTable
from commonbook.recall import index_query
from commonbook.recall.index_query import QueryExpansion


def test_the_near_stems_of_the_most_recent_words_are_kept_and_of_no_others(monkeypatch):
    monkeypatch.setattr(index_query, "_CACHED_WORDS", 2)
    table, lookups = StaticTable(), list[str]()
    near = table.near

    def counted(word: str) -> tuple[tuple[str, float], ...]:
        lookups.append(word)
        return near(word)

    monkeypatch.setattr(table, "near", counted)
    expansion = QueryExpansion(table)
    found = [expansion.expand([(word, word)], (word,)) for word in ("cat", "dog", "cat", "bird", "cat", "dog")]
    assert lookups == ["cat", "dog", "bird", "dog"]
    assert found[0][0]
    assert found[0] == found[2] == found[4]
    assert found[1] == found[5]
