"""The table of word vectors."""

from __future__ import annotations

import numpy as np
import pytest

from commonbook.core.text import stopwords, terms
from commonbook.engines.embedders.static_table import MAX_NEAR_WORDS, MIN_NEAR_COSINE, NEAR_WORDS, TABLE, StaticTable
from commonbook.errors import CommonbookError
from commonbook.ports.embedding import EmbeddingInput

EVERYDAY = [
    "car",
    "vehicle",
    "payment",
    "billing",
    "doctor",
    "medicine",
    "house",
    "rent",
    "flight",
    "ticket",
    "present",
    "birthday",
    "database",
    "password",
    "wifi",
    "language",
    "dentist",
    "manager",
    "train",
    "test",
    "garage",
    "injury",
    "restaurant",
    "roof",
    "lawyer",
    "customer",
    "battery",
    "lesson",
    "dog",
    "thunder",
    "grocery",
    "bakery",
    "backup",
    "river",
    "baby",
    "watch",
    "music",
    "garden",
    "school",
    "winter",
    "holiday",
    "deploy",
    "release",
    "server",
    "meeting",
    "engineer",
    "bicycle",
    "coffee",
    "bread",
    "kitchen",
    "window",
]


@pytest.fixture(scope="module")
def table() -> StaticTable:
    return StaticTable()


def cosine(table: StaticTable, one: str, other: str) -> float:
    left, right = table.vectors([one, other])
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def test_words_of_like_meaning_are_near_and_others_are_not(table):
    assert cosine(table, "car", "vehicle") > 0.7
    assert cosine(table, "payments", "billing") > 0.5
    assert cosine(table, "car", "banana") < 0.3


def test_case_and_accents_do_not_matter(table):
    assert table.pieces("Café") == table.pieces("cafe")


def test_a_rare_word_is_cut_into_its_longest_pieces(table):
    assert len(table.pieces("house")) == 1
    assert len(table.pieces("snowballing")) > 1
    both = table.vectors(["snowballing"])[0]
    assert np.linalg.norm(both) > 0


def test_what_has_no_pieces_is_nowhere(table):
    assert not table.vectors(["\ue000", "house", ""])[[0, 2]].any()
    assert table.vectors([]).shape == (0, table.dimensions)


def test_a_text_is_the_weighted_sum_of_its_words(table):
    house, dog = table.vectors(["house", "dog"])
    found = table.embed(
        [
            EmbeddingInput("a house, a house, a dog", {"house": 2.0, "dog": 0.5}),
            EmbeddingInput("", {}),
            EmbeddingInput("?", {}),
        ]
    )
    assert found.shape == (3, table.dimensions)
    assert found.dtype == np.float32
    assert np.allclose(found[0], 2 * house + 0.5 * dog, atol=1e-5)
    assert not found[1:].any()
    assert table.embed([]).shape == (0, table.dimensions)


def test_a_text_has_the_same_vector_whatever_is_embedded_beside_it(table):
    texts = [EmbeddingInput(word, {word: 1.0, "house": 0.5}) for word in EVERYDAY]
    together = table.embed(texts)
    assert all((table.embed([text])[0] == row).all() for text, row in zip(texts, together, strict=True))


def test_the_table_names_itself(table):
    assert table.fingerprint == f"static-table-1/{table.dimensions}"


# --- near words


def test_near_words_come_nearest_first_and_never_the_word_itself(table):
    found = table.near("vehicle")
    assert "car" in [word for word, _ in found[:8]]
    assert "vehicle" not in dict(found)
    assert "banana" not in dict(found)
    cosines = [near for _, near in found]
    assert cosines == sorted(cosines, reverse=True)
    assert all(MIN_NEAR_COSINE <= near <= 1 for near in cosines)
    assert all(word.isalpha() and len(word) > 1 for word, _ in found)
    assert dict(found)["car"] == pytest.approx(cosine(table, "vehicle", "car"), abs=1e-4)


def test_of_words_with_one_stem_only_the_commonest_is_near_another(table):
    """An index has stems: that of `university` must not mean what `universal` means, nor that of `going` anything."""
    allowed = frozenset(commonest_of_stems(table))
    for word in ("painted", "Painted", "campus", "worldwide", "departing", "CAMPUS"):
        found = [other for other, _ in table.near(word)]
        assert found
        assert allowed.issuperset(found), word


def test_a_word_of_no_pieces_has_no_near_words(table):
    assert table.near("\ue000") == table.near("") == ()


def commonest_of_stems(table):
    """Return the words that may be near others: the commonest of each stem, none of a stop word's stem."""
    first = dict.fromkeys(terms.stems(sorted(stopwords.ENGLISH)), "")
    words = [other for other in table.vocabulary if other.isalpha() and len(other) > 1]
    for other, stem in zip(words, terms.stems(words), strict=True):
        first.setdefault(stem, other)
    return [other for other in first.values() if other]


def exact_near(table, word, *, least):
    vocabulary = commonest_of_stems(table)
    known = table.vectors(vocabulary).astype(np.float64)
    query = table.vectors([word])[0].astype(np.float64)
    cosines = known @ query / np.maximum(np.linalg.norm(known, axis=1), 1e-9) / np.linalg.norm(query)
    found = {vocabulary[at]: float(cosines[at]) for at in np.flatnonzero(cosines >= least) if vocabulary[at] != word}
    return dict(sorted(found.items(), key=lambda one: -one[1])[:MAX_NEAR_WORDS])


@pytest.mark.slow
def test_the_lists_of_near_words_are_those_that_the_vectors_give(table):
    """The file was made from this table: tools/distil/near.py."""
    for word in EVERYDAY:
        found, exact = dict(table.near(word)), exact_near(table, word, least=MIN_NEAR_COSINE)
        # At the end of a list two words may be as near as can be told apart.
        assert len(found.keys() ^ exact.keys()) <= 2, word
        assert len(found) == len(exact)
        assert all(found[other] == pytest.approx(exact[other], abs=2e-5) for other in found.keys() & exact.keys())


@pytest.mark.slow
def test_looking_at_signs_first_loses_hardly_a_near_word(table):
    """Words left out before the exact comparison are at the border, weigh little, and are hardly among the nearest.

    In capitals, a word is not in the vocabulary: it has no list, and is compared with all that have.
    """
    weight = lost = 0.0
    nearest: list[tuple[str, str]] = []
    missed: list[tuple[str, str]] = []
    for word in EVERYDAY:
        exact = exact_near(table, word.upper(), least=MIN_NEAR_COSINE + 1e-5)
        found = dict(table.near(word.upper()))
        away = exact.keys() - found.keys()
        assert max((exact[other] for other in away), default=0) < MIN_NEAR_COSINE + 0.2, word
        weight += sum(cosine - MIN_NEAR_COSINE for cosine in exact.values())
        lost += sum(exact[other] - MIN_NEAR_COSINE for other in away)
        eight = list(exact)[:8]
        nearest += [(word, other) for other in eight]
        missed += [(word, other) for other in eight if other in away]
    assert len(nearest) > 350
    assert len(missed) <= len(nearest) / 100, missed
    assert lost / weight < 0.02


def test_lists_of_near_words_of_another_table_are_refused(tmp_path):
    copied = tmp_path / "static-table.bin"
    copied.write_bytes(TABLE.read_bytes())
    for content, says in ((b"nothing", "not a table of words"), (NEAR_WORDS.read_bytes()[:-2], "cut short")):
        copied.with_name(NEAR_WORDS.name).write_bytes(content)
        with pytest.raises(CommonbookError, match=says):
            StaticTable(copied).near("vehicle")


# --- the file


def test_another_file_is_refused(tmp_path):
    other = tmp_path / "table"
    other.write_bytes(b"x" * 100)
    with pytest.raises(CommonbookError, match="not a table of words"):
        StaticTable(other)
    other.write_bytes(TABLE.read_bytes()[:1000])
    with pytest.raises(CommonbookError, match="cut short"):
        StaticTable(other)
    other.write_bytes(b"")
    with pytest.raises(CommonbookError, match="not a table of words"):
        StaticTable(other)


def test_the_notice_of_the_model_is_beside_the_table():
    notice = (TABLE.parent / "NOTICE").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in notice
    assert "Apache License" in notice
