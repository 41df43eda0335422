"""The table of word vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.engines.static_table import TABLE, StaticTable, quantise
from commonplace.errors import CommonplaceError


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


def test_a_bag_is_the_weighted_sum_of_its_words(table):
    house, dog = table.vectors(["house", "dog"])
    found = table.embed([{"house": 2.0, "dog": 0.5}, {}])
    assert np.allclose(found[0], 2 * house + 0.5 * dog, atol=1e-5)
    assert not found[1].any()


def test_near_terms_come_nearest_first_and_never_the_term_itself(table):
    found = table.near(["vehicl", "payment"], ["car", "truck", "banana", "vehicl", "bill"])
    assert next(pair.term for pair in found if pair.asked == "vehicl") in ("car", "truck")
    assert all(pair.cosine >= 0.4 and pair.asked != pair.term for pair in found)
    assert ("vehicl", "banana") not in {pair[:2] for pair in found}
    assert table.near([], ["car"]) == table.near(["car"], []) == []


@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=4), max_size=5))
def test_bytes_are_within_half_a_step_of_the_vector(rows):
    vectors = np.array(rows, np.float32).reshape(len(rows), 4)
    small, scales = quantise(vectors)
    assert small.dtype == np.int8
    assert (np.abs(small * scales[:, None] - vectors) <= scales[:, None] * 0.51).all()


def test_another_file_is_refused(tmp_path):
    other = tmp_path / "table"
    other.write_bytes(b"x" * 100)
    with pytest.raises(CommonplaceError, match="not a table"):
        StaticTable(other)
    other.write_bytes(TABLE.read_bytes()[:1000])
    with pytest.raises(CommonplaceError, match="cut short"):
        StaticTable(other)
    other.write_bytes(b"")
    with pytest.raises(CommonplaceError, match="not a table"):
        StaticTable(other)


def test_the_notice_of_the_model_is_beside_the_table():
    notice = (TABLE.parent / "NOTICE").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in notice
    assert "Apache License" in notice
