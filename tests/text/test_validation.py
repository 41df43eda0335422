"""Lines that callers give: ordinary writing of all scripts is accepted, control characters are not."""

from __future__ import annotations

import pytest

from commonbook.core.text import validation
from commonbook.errors import BadInput, CommonbookError
from commonbook.values.memory import Filter
from tests.support.lost_databases import lose_database

ORDINARY = {
    "Persian with ZWNJ": "نمی\u200cبینم",
    "Sinhala with ZWJ": "ශ්\u200dරී",
    "joined emoji": "👩\u200d👩\u200d👧 ❤\ufe0f",
    "a flag of tags": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "soft hyphen": "Donau\u00addampf\u00adschiff",
    "word joiner": "km\u2060/h",
    "marks of direction": "\u200fבקר\u200e (ok) \u061c",
    "private use": "\ue000",
    "newer than our tables": "\U0001fae8 \U0001faef",
}
REFUSED = ["\x07", "a\x1bb", "\x7f", "\x85b\x9b", "\u202eabc", "\u2066a", "\ufeffa", "a\uffff", "a\x00", "\ud800"]


@pytest.mark.parametrize("line", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_writing_is_kept_in_reasons_notes_titles_tags_and_labels(book, line):
    old, new = book.remember("one").id, book.remember("two").id
    thought = book.remember("a thought", title=line, tags=[line], links=[("reflects_on", old)]).id
    book.supersede(old, new, reason=line)
    book.triage(thought, "keep", note=line)
    memory = book.get(thought)
    assert (memory.title, memory.tags) == (line, (line,))
    assert [decision.note for decision in memory.decisions] == [line]
    assert [reason.why for reason in book.get(new).supersede_reasons] == [line]
    assert book.create_key("user:alice", label=line).key.label == line
    assert [one.id for one in book.list(Filter(tags=(line,))).items] == [thought]


@pytest.mark.parametrize("line", REFUSED)
def test_control_characters_and_marks_that_reorder_are_refused(book, line):
    old, new = book.remember("one").id, book.remember("two").id
    with pytest.raises(CommonbookError):
        book.supersede(old, new, reason=f"be{line}cause")
    assert book.get(old).superseded_by is None


def test_files_round_trip_ordinary_writing(home, book, open_book):
    old, new = book.remember("one").id, book.remember("two").id
    line = " | ".join(ORDINARY.values())
    thought = book.remember("a thought", title=line, tags=list(ORDINARY.values()), links=[("reflects_on", old)]).id
    book.supersede(old, new, reason=line)
    book.triage(thought, "keep", note=line)
    before = book.get(thought)
    book.close()
    lose_database(home)
    book = open_book()
    book.sync()
    after = book.get(thought)
    assert (after.title, after.tags) == (before.title, before.tags) == (line, tuple(ORDINARY.values()))
    assert [decision.note for decision in after.decisions] == [line]
    assert [reason.why for reason in book.get(new).supersede_reasons] == [line]


def test_a_file_name_with_joiners_is_a_title(home, book, tmp_path):
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / "نمی\u200cبینم.md").write_text("some text", encoding="utf-8")
    book.import_folder(folder)
    assert [memory.title for memory in book.list().items] == ["نمی\u200cبینم"]


def test_a_line_that_is_too_long_is_refused():
    with pytest.raises(BadInput):
        validation.validate_line("x" * 1001, "note")
