"""Markdown files: what they say, and that not a byte of theirs is lost."""

from __future__ import annotations

import contextlib
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from commonbook.core.markdown.file_format import Dialect, parse, render, require_read, with_absent_fields
from commonbook.core.markdown.front_matter import (
    FIELDS,
    FILE_NAMES,
    NOTICE_FIELDS,
    Document,
    clean_tags,
    clean_title,
    read_metadata,
)
from commonbook.core.text.validation import is_plain_line
from commonbook.engines.disk.yaml_fields import PyYaml
from commonbook.errors import BadFile, BadTime, TooLarge
from commonbook.ports.files import YamlField
from commonbook.values.invalidation import DELETED, VERDICTS, Decision, SupersedeReason
from commonbook.values.memory import (
    DETACHED,
    KINDS,
    MAX_FRONT_BYTES,
    MAX_TAG,
    MAX_TAGS,
    MAX_TEXT_BYTES,
    MAX_TITLE,
    MODES,
    RELATIONS,
    Metadata,
)
from commonbook.values.stored_memory import StoredCopyInfo

pytestmark = pytest.mark.promise("files.bytes")

GUIDE = (Path(__file__).parents[2] / "docs" / "FRONT-MATTER.md").read_text(encoding="utf-8")
ID = "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"
OTHER = "0191b7c0-11aa-7c3e-8d21-0f5e6a7b8c9d"
RARE = (
    "session_id",
    "session_space",
    "shared",
    *NOTICE_FIELDS,
    "superseded_because",
    "invalidations_triaged",
    "messages",
)
MAY = datetime(2026, 5, 1, tzinfo=UTC)


def read_time(field: str, value: str) -> datetime:
    """Read ISO times, those without a zone as UTC."""
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise BadTime(f"{field} is out of range") from error


class NoYaml:
    """Stands for a parser that must not be asked."""

    def fields(self, text: str) -> list[YamlField]:
        raise AssertionError(f"YAML was asked about {text!r}")


DIALECT = Dialect(PyYaml(), read_time)
OURS_ONLY = Dialect(NoYaml(), read_time)

EMPTY = Document(
    id=None, title=None, kind=None, tags=(), created=None, updated=None, occurred=None, valid_from=None,
    valid_until=None, expires=None, importance=None, author=None, links=(), text="", layout="", has_front=True,
)  # fmt: skip
FULL = EMPTY._replace(
    id=ID, title="Alice owns billing", kind="fact", tags=("billing", "people"), created=MAY,
    occurred=MAY, valid_from=MAY, valid_until=MAY, expires=MAY, importance=0.8, author="user:alice",
    links=(("supersedes", OTHER, "0123456789abcdef"), ("related_to", OTHER, None)), text="Ask her.",
)  # fmt: skip

FOREIGN = f"""---
# mine
title:   'Alice owns billing'   # the title
aliases: [Billing, "who pays"]
occurred: 2026-05-01

id: {ID}
tags:
- people
- '#billing'
mood: |
  quite good

  really
# the end
---
# Billing

Ask her.
"""


def values_of(document: Document) -> Document:
    """Return what a document says, without how it stands in the file."""
    return document._replace(layout="", unread=(), updated=None)


def front(fields: str, text: str = "text") -> bytes:
    return f"---\n{fields}---\n\n{text}\n".encode()


def refused(data: bytes) -> BadFile:
    with pytest.raises(BadFile) as caught:
        parse(data, DIALECT)
    assert re.match(r"line \d+: ", caught.value.message)
    assert caught.value.fix
    return caught.value


# The canonical form


def test_the_canonical_file_is_as_the_guide_shows_it():
    shown = re.search(r"```markdown\n(.*?)```", GUIDE, re.DOTALL)
    assert shown
    document = parse(shown[1].encode(), OURS_ONLY)
    assert document.layout == ""
    assert all(getattr(document, name) for name in FIELDS if name not in RARE)
    assert render(document, OURS_ONLY) == shown[1].encode()


def test_every_known_field_is_in_the_guide():
    rows = [line.split("|")[1].strip() for line in GUIDE.splitlines() if line.startswith("| `")]
    assert rows == [f"`{FILE_NAMES[name]}`" for name in FIELDS if name != "metadata"]


def test_the_guide_names_every_kind_and_relation():
    assert all(f"`{word}`" in GUIDE for word in (*KINDS, *RELATIONS))


def test_a_document_is_written_in_canonical_order():
    assert render(FULL, OURS_ONLY).decode() == (
        f"---\nid: {ID}\ntitle: Alice owns billing\ntype: fact\ntags: [billing, people]\n"
        "created: 2026-05-01T00:00:00.000000Z\noccurred: 2026-05-01T00:00:00.000000Z\n"
        "valid_from: 2026-05-01T00:00:00.000000Z\nvalid_until: 2026-05-01T00:00:00.000000Z\n"
        "expires: 2026-05-01T00:00:00.000000Z\nimportance: 0.8\nauthor: user:alice\n"
        f"links:\n  - supersedes {OTHER}@0123456789abcdef\n  - related_to {OTHER}\n---\n\nAsk her.\n"
    )


@pytest.mark.parametrize(
    "fields",
    [
        "updated: 2024-01-01\nversion: 2\n",
        f"id: {ID}\nversion: 1.0\n",
        f"id: {ID}\nrevision: draft\nversion: 3\nupdated: 2024-01-01\n",
    ],
)
def test_counters_of_a_person_stay(fields):
    document = parse(front(fields), DIALECT)
    written = render(document._replace(id=ID, title="Other"), DIALECT).decode()
    assert all(f"\n{line}\n" in written for line in fields.splitlines())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id: 202301011200", {"id": ID}),
        ("type: book", {"kind": "fact"}),
        ("links:\n- '[[Other]]'", {"links": (("related_to", OTHER, None),)}),
        ("importance: high", {"importance": 0.5}),
    ],
)
def test_where_a_person_uses_a_name_for_something_else_ours_has_a_prefix(field, value):
    data = front(f"{field}\nmood: good\n")
    document = parse(data, DIALECT)
    assert render(document, DIALECT) == data
    written = render(document._replace(**value), DIALECT)
    assert written.startswith(f"---\n{field}\nmood: good\ncommonbook_{field.partition(':')[0]}: ".encode()) or (
        written.startswith(f"---\n{field}\nmood: good\ncommonbook_links:\n".encode())
    )
    again = parse(written, DIALECT)
    assert {name: getattr(again, name) for name in value} == value
    assert render(again, DIALECT) == written


def test_a_date_is_read_as_the_time_of_creation_and_kind_as_the_type():
    document = parse(front("date: 2026-05-01\nkind: fact\n"), DIALECT)
    assert (document.created, document.kind) == (MAY, "fact")
    both = parse(front("date: 2020-05-01\ncreated: 2026-05-01\nkind: note\ntype: fact\n"), DIALECT)
    assert (both.created, both.kind) == (MAY, "fact")


def test_a_field_that_says_nothing_is_left_out():
    assert render(EMPTY._replace(id=ID, importance=0.0), DIALECT) == f"---\nid: {ID}\nimportance: 0\n---\n\n\n".encode()


@pytest.mark.parametrize(
    ("title", "written"),
    [
        ("Plain words, here", "Plain words, here"),
        ("Größe", "Größe"),
        ("yes", '"yes"'),
        ("NULL", '"NULL"'),
        ("12", '"12"'),
        ("2026-05-01", '"2026-05-01"'),
        ("a: b", '"a: b"'),
        ("a #b", '"a #b"'),
        ("- a", '"- a"'),
        ("*a", '"*a"'),
        ('"a"', '"\\"a\\""'),
        ("a\u2028b\x85c\ufeff", '"a\\u2028b\\u0085c\\ufeff"'),
        ("🎉", '"🎉"'),
    ],
)
def test_a_scalar_is_plain_only_where_no_yaml_could_misread_it(title, written):
    assert f"\ntitle: {written}\n" in render(EMPTY._replace(title=title), DIALECT).decode()


WORDS = st.text(min_size=1, max_size=60) | st.text(
    alphabet="ab yesno:#-,[]{}'\"\\|>&*!%@`~0.\u2028\x85\ufeff\uffff", max_size=20
)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
LINES = WORDS.map(clean_title).filter(lambda line: line and not CONTROL.search(line))
TAGS = st.lists(LINES, max_size=5).map(clean_tags)
TIMES = st.none() | st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001
IDS = st.uuids().map(str)
BODIES = (
    st.text(st.characters(codec="utf-8", exclude_characters="\0"))
    | st.text(alphabet="a-.\r\n #\ufeff", max_size=12)
    | st.sampled_from(["---\nid: x\n---\n", "\r", "\n", "\r\n"])
)
PRINCIPALS = st.from_regex(r"\A(?:user|agent):[A-Za-z0-9][A-Za-z0-9._@-]{0,20}\Z")
SHARED = st.builds(
    StoredCopyInfo,
    mode=st.sampled_from((*MODES, DETACHED)),
    root=IDS,
    by=PRINCIPALS,
    at=TIMES.filter(bool),
    claimed=st.booleans(),
    mode_set=TIMES,
    source_ends=TIMES,
    approved_by=st.none() | PRINCIPALS,
)
HASHES = st.from_regex(r"\A[0-9a-f]{16}\Z")
DECISIONS = st.builds(
    Decision,
    verdict=st.sampled_from(VERDICTS),
    invalidated=IDS,
    invalidating=IDS | st.just(DELETED),
    by=st.from_regex(r"\A(?:user|agent):[A-Za-z0-9][A-Za-z0-9._@-]{0,20}\Z"),
    at=TIMES.filter(bool),
    note=st.just("") | LINES,
)


def only_notices_have_theirs(document: Document) -> Document:
    if document.kind == "notice":
        return document
    return document._replace(dependent_id=None, invalidated_id=None, invalidating_id=None, timestamp=None)


SCALARS = st.one_of(
    LINES.filter(is_plain_line),
    st.sampled_from(["", "3", "true", "null", "1e5", "- x", "a: b", "# c", "1980-03-16", "[[Note]]", "007", "9" * 20]),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(-(2.0**53), 2.0**53),
)
METADATA = st.dictionaries(
    st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_. \u00fc\u4e2d#'{-]{0,20}[a-z]\Z") | st.sampled_from(["null", "_", "a#"]),
    SCALARS | st.lists(SCALARS, min_size=1, max_size=3),
    max_size=4,
).map(Metadata)

DOCUMENTS = st.builds(
    Document,
    id=IDS,
    title=st.none() | LINES,
    kind=st.none() | st.sampled_from(KINDS),
    tags=TAGS,
    created=TIMES,
    updated=st.none(),
    occurred=TIMES,
    valid_from=TIMES,
    valid_until=TIMES,
    expires=TIMES,
    importance=st.none() | st.floats(0, 1),
    metadata=METADATA,
    session_id=st.none() | st.from_regex(r"\A[A-Za-z0-9#&*%@][A-Za-z0-9._:/#-]{0,30}\Z"),
    session_space=st.none() | st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,8}(?:/[a-z0-9][a-z0-9._-]{0,8}){0,2}\Z"),
    author=st.none() | st.from_regex(r"\A(?:user|agent):[A-Za-z0-9][A-Za-z0-9._@-]{0,20}\Z"),
    links=st.lists(
        st.tuples(st.sampled_from((*RELATIONS, "blocked-by", "x2_y")), IDS, st.none() | HASHES),
        max_size=4,
        unique=True,
    ).map(tuple),
    text=BODIES,
    layout=st.just(""),
    has_front=st.just(True),
    unread=st.just(()),
    shared=st.none() | SHARED,
    dependent_id=st.none() | IDS,
    invalidated_id=st.none() | IDS,
    invalidating_id=st.none() | IDS | st.just(DELETED),
    timestamp=TIMES,
    superseded_because=st.lists(st.builds(SupersedeReason, superseded=IDS, why=LINES), max_size=2).map(tuple),
    invalidations_triaged=st.lists(DECISIONS, max_size=2).map(tuple),
    messages=st.lists(
        st.from_regex(r"\A[1-9][0-9]{0,5} mac:[0-9a-f]{16}(?: (?:[0-9a-f]{16}|[?-]) [!-~\u00e4\u4e2d]{1,9})?\Z"),
        max_size=2,
    ).map(tuple),
).map(only_notices_have_theirs)


@given(DOCUMENTS)
def test_what_is_written_is_read_again_without_a_yaml_parser(document):
    assert values_of(parse(render(document, OURS_ONLY), OURS_ONLY)) == document


@given(DOCUMENTS)
def test_yaml_parsers_read_from_our_writing_what_we_read(document):
    data = render(document, OURS_ONLY)
    disturbed = data.replace(b"---\n", b"---\n# a comment\n", 1)
    for yaml in (PyYaml(), PyYaml(compiled=False)):
        assert values_of(parse(disturbed, Dialect(yaml, read_time))) == document


# Files that people wrote


def test_a_persons_front_matter_is_understood():
    document = parse(FOREIGN.encode(), DIALECT)
    assert (document.id, document.title, document.tags) == (ID, "Alice owns billing", ("people", "billing"))
    assert document.occurred == MAY
    assert document.text == "# Billing\n\nAsk her."
    assert document.layout


def test_an_unchanged_file_is_written_byte_for_byte():
    assert render(parse(FOREIGN.encode(), DIALECT), DIALECT) == FOREIGN.encode()


@pytest.mark.parametrize("tags", ["[a, b]", "a, b", "'#a,#b'", "\n  - '#a'\n  - b\n  -", '["#a", b, a]'])
def test_tags_are_a_list_or_one_string(tags):
    assert parse(front(f"tags: {tags}\n"), DIALECT).tags == ("a", "b")


def test_one_string_is_one_tag():
    assert parse(front("tags: two words\n"), DIALECT).tags == ("two words",)


def test_a_title_over_several_lines_becomes_one_line():
    assert parse(front("title: |\n  one\n\n  two\n"), DIALECT).title == "one two"


def test_an_id_and_a_kind_may_be_in_capitals_and_stay_so_in_the_file():
    data = front(f"id: {ID.upper()}\nkind: Fact\n")
    document = parse(data, DIALECT)
    assert (document.id, document.kind) == (ID, "fact")
    assert render(document, DIALECT) == data


@pytest.mark.parametrize("fields", ["", "title:\n", "tags: []\n", "title: ''\ntags: ~\nlinks: []\nid:\n"])
def test_a_field_without_value_says_nothing(fields):
    assert values_of(parse(front(fields), DIALECT)) == EMPTY._replace(text="text")


@pytest.mark.parametrize(
    "content",
    [
        "just text\n",
        "no newline at the end",
        "\n",
        "---\n",
        "---\n\nA rule above.\n",
        "---\nprose\n---\nmore: prose\n",
        "---\n- a list\n---\n",
        "----\nid: x\n---\n",
        " ---\nid: x\n---\n",
        "text\n---\nid: x\n---\n",
    ],
)
def test_text_without_front_matter_is_only_text(content):
    document = parse(content.encode(), DIALECT)
    assert not document.has_front
    assert document.text == content.removesuffix("\n")
    assert render(document, DIALECT) == content.encode()
    written = render(document._replace(id=ID, has_front=True), DIALECT)
    assert written == f"---\nid: {ID}\n---\n\n{content}".encode()
    assert parse(written, OURS_ONLY).text == document.text


def test_front_matter_for_a_windows_file_has_its_byte_order_mark_and_line_ends():
    document = parse("\ufeffone\r\ntwo\r\n".encode(), DIALECT)
    assert document.text == "one\r\ntwo"
    written = render(document._replace(id=ID, has_front=True), DIALECT)
    assert written == f"\ufeff---\r\nid: {ID}\r\n---\r\n\r\none\r\ntwo\r\n".encode()


@pytest.mark.parametrize("fields", ["id: x", "<<<<<<< HEAD\nid: x\n=======\n", "\n# comment\nkey: value\n", "TODO:\n"])
def test_front_matter_that_is_never_closed_is_refused(fields):
    assert "never closed" in refused(f"---\n{fields}".encode()).message


def test_a_merge_conflict_is_not_mistaken_for_text():
    refused(f"---\n<<<<<<< HEAD\nid: {ID}\n=======\nid: {OTHER}\n>>>>>>> theirs\n---\n\ntext\n".encode())


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"", 1, "empty"),
        (b"one\ntwo \xff\n", 2, "UTF-8"),
        ("text".encode("utf-16"), 1, "UTF-8"),
        (b"one\ntwo\0\n", 2, "NUL"),
        (front("id: a\nid: b\n"), 3, "second time"),
        (front("a: x\nb: 'c' d\n"), 3, "not YAML"),
        (front("{a: b}\n"), 2, "list of fields"),
        (front("x: " + "y" * MAX_FRONT_BYTES + "\n"), 1, "front matter"),
        (front("a: b\n", "ä" * (MAX_TEXT_BYTES // 2 + 1)), 1, "text"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_reason(data, line, reason):
    error = refused(data)
    assert error.message.startswith(f"line {line}: ")
    assert reason in error.message


@pytest.mark.parametrize(
    ("fields", "field", "line", "reason"),
    [
        ("id: not-a-uuid\n", "id", 2, "UUID"),
        ("x:\ntype: poem\n", "kind", 3, "one of note, fact"),
        ("x:\nkind: poem\n", "kind", 3, "one of note, fact"),
        ("title: [a]\n", "title", 2, "text"),
        (f"title: {'x' * (MAX_TITLE + 1)}\n", "title", 2, "text"),
        ('title: "a\\0b"\n', "title", 2, "text"),
        ("tags: {a: b}\n", "tags", 2, "tags"),
        ("tags: [[a]]\n", "tags", 2, "tags"),
        (f"tags: [{'x' * (MAX_TAG + 1)}]\n", "tags", 2, "tags"),
        (f"tags: [{','.join(f't{n}' for n in range(MAX_TAGS + 1))}]\n", "tags", 2, "tags"),
        ("importance: high\n", "importance", 2, "0 to 1"),
        ("importance: 1.5\n", "importance", 2, "0 to 1"),
        ("importance: nan\n", "importance", 2, "0 to 1"),
        ("author: alice\n", "author", 2, "user:alice"),
        ("# c\noccurred: someday\n", "occurred", 3, "date or time"),
        ("created: 2026-13-01T00:00:00.000000Z\n", "created", 2, "date or time"),
        ("created: 0001-01-01T00:00:00+23:00\n", "created", 2, "date or time"),
        (f"links: supersedes {ID}\n", "links", 2, "list"),
        (f"links:\n  - Likes {ID}\n", "links", 2, "relation"),
        ("links:\n  - supersedes x\n", "links", 2, "relation"),
        (f"links:\n  - supersedes {ID}@x\n", "links", 2, "relation"),
    ],
)
def test_a_value_that_is_not_in_our_form_is_the_persons_own_and_can_be_refused(fields, field, line, reason):
    document = parse(front(fields), DIALECT)
    assert values_of(document) == EMPTY._replace(text="text")
    assert [(one.field, one.line) for one in document.unread] == [(field, line)]
    assert render(document, DIALECT) == front(fields)
    require_read(document, {"valid_from"})
    with pytest.raises(BadFile) as caught:
        require_read(document, {field})
    assert caught.value.message.startswith(f"line {line}: ")
    assert reason in caught.value.message


def test_the_largest_text_can_be_written_and_read():
    document = FULL._replace(text="x" * MAX_TEXT_BYTES)
    assert parse(render(document, OURS_ONLY), OURS_ONLY) == document


def test_more_links_than_front_matter_may_hold_are_not_written():
    with pytest.raises(TooLarge):
        render(FULL._replace(links=(("related_to", OTHER, "0123456789abcdef"),) * 2000), DIALECT)


# Whatever the file, its bytes come back

EOLS = st.sampled_from(["\n", "\r\n"])
FRONT_LINES = st.sampled_from(
    [f"id: {ID}", "title: 'Alice'", "title: >-\n  folded\n  title", "# comment", "", "tags: [a,\n  b]", "tags: a, b",
     "tags:\n- a\n- b", "mood: |+\n  good\n", "occurred: 2026-05-01", "kind: FACT  # k", "author: user:bob",
     "unknown:\n  nested: [1, 2]", "importance: .5", f"links: [related_to {OTHER}]", "version: 3", "'revision': 4",
     "created: 2026-05-01T02:00:00+02:00", "updated:"]
)  # fmt: skip


@st.composite
def foreign_files(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(FRONT_LINES, max_size=8, unique_by=lambda line: line.split(":")[0].strip("'") or line))
    eol = draw(EOLS)
    content = draw(st.sampled_from(["", "\ufeff"])) + draw(st.sampled_from(["---", "--- "])) + eol
    content += "".join(line.replace("\n", eol) + draw(st.sampled_from([eol, eol, "\n"])) for line in lines)
    content += draw(st.sampled_from(["---", "...", "--- \t"])) + draw(st.sampled_from([eol, eol, "\n", ""]))
    if content.endswith("\n"):
        content += draw(st.sampled_from(["", "\n", "\r\n"])) + draw(BODIES) + draw(st.sampled_from(["", "\n", "\r\n"]))
    return content.encode()


@given(foreign_files())
def test_an_unchanged_foreign_file_is_written_byte_for_byte(data):
    document = parse(data, DIALECT)
    assert document.has_front
    assert render(document, DIALECT) == data
    assert (with_absent_fields(document.layout, ()) == "") == (render(document._replace(layout=""), DIALECT) == data)


@pytest.mark.slow
@given(foreign_files(), DOCUMENTS)
def test_whatever_changes_in_a_foreign_file_is_read_again(data, document):
    changed = document._replace(layout=parse(data, DIALECT).layout)
    again = parse(render(changed, DIALECT), DIALECT)
    assert values_of(again) == document
    assert render(again, DIALECT) == render(changed, DIALECT)


@pytest.mark.slow
@given(BODIES.filter(bool), DOCUMENTS)
def test_a_text_keeps_its_bytes_when_it_is_given_front_matter(content, document):
    assume(not content.removeprefix("\ufeff").startswith("---"))
    plain = parse(content.encode(), DIALECT)
    written = render(document._replace(text=plain.text, layout=plain.layout), DIALECT)
    assert written.endswith(content.removeprefix("\ufeff").encode())
    assert values_of(parse(written, OURS_ONLY)) == document._replace(text=plain.text)


# A change touches only its own lines


def edited(**changes: Any) -> str:
    document = parse(FOREIGN.encode(), DIALECT)._replace(**changes)
    return render(document, DIALECT).decode()


def test_a_changed_field_replaces_only_its_own_lines():
    assert edited(tags=("one",)) == FOREIGN.replace("tags:\n- people\n- '#billing'\n", "tags: [one]\n")
    assert edited(title="Bob") == FOREIGN.replace("title:   'Alice owns billing'   # the title\n", "title: Bob\n")
    assert edited(text="New.") == FOREIGN.replace("# Billing\n\nAsk her.", "New.")


def test_a_field_that_now_says_nothing_loses_its_lines():
    assert edited(tags=()) == FOREIGN.replace("tags:\n- people\n- '#billing'\n", "")
    assert edited(occurred=None) == FOREIGN.replace("occurred: 2026-05-01\n", "")


def test_a_time_stays_as_it_was_written_while_it_means_the_same_moment():
    zone = datetime.fromisoformat("2026-05-01T02:00:00+02:00")
    assert edited(occurred=zone) == FOREIGN
    assert "occurred: 2026-05-01T00:00:00.000001Z\n" in edited(occurred=MAY + timedelta(microseconds=1))


def test_new_fields_stand_behind_the_id_in_canonical_order():
    id_, tags = f"id: {ID}\n", "- '#billing'\n"
    assert edited(kind="fact") == FOREIGN.replace(id_, f"{id_}type: fact\n")
    assert edited(kind="fact", author="user:bob") == FOREIGN.replace(id_, f"{id_}type: fact\n").replace(
        tags, f"{tags}author: user:bob\n"
    )
    assert edited(created=MAY) == FOREIGN.replace(tags, f"{tags}created: 2026-05-01T00:00:00.000000Z\n")


def test_without_an_id_new_fields_stand_together_at_the_end():
    data = b"---\ntitle: mine\nmood: good\n---\n\ntext\n"
    document = parse(data, DIALECT)._replace(id=ID, importance=0.5)
    written = f"---\ntitle: mine\nmood: good\nid: {ID}\nimportance: 0.5\n---\n\ntext\n".encode()
    assert render(document, DIALECT) == written
    assert b"mood: good\nid: " + ID.encode() + b"\ntype: fact\nimportance: 0.5\n---" in render(
        parse(written, DIALECT)._replace(kind="fact"), DIALECT
    )


def test_lines_put_into_a_windows_file_end_as_its_own_do():
    data = FOREIGN.replace("\n", "\r\n").encode()
    document = parse(data, DIALECT)._replace(links=(("supersedes", OTHER, None),))
    inserted = f"links:\r\n  - supersedes {OTHER}\r\n".encode()
    assert render(document, DIALECT).replace(inserted, b"") == data


def without(name: str, data: bytes) -> list[str]:
    """The lines of a file, but for those of one field."""
    opening, *lines = data.decode().split("\n")
    closing = next(number for number, line in enumerate(lines) if line.rstrip() in {"---", "..."})
    for field in reversed(DIALECT.yaml.fields("".join(f"{line}\n" for line in lines[:closing]))):
        is_metadata = name == "metadata" and read_metadata({field.name: field.value})
        if field.name in {name, FILE_NAMES[name]} or is_metadata:
            del lines[field.first_line : field.end_line]
    return [opening, *lines]


@pytest.mark.slow
@given(foreign_files() | DOCUMENTS.map(lambda document: render(document, DIALECT)), st.sampled_from(FIELDS), DOCUMENTS)
def test_an_edit_leaves_every_line_of_other_fields_alone(data, name, other):
    before = parse(data, DIALECT)
    # A notice stays one, and only a notice has the fields that say what it is about.
    assume(name != "kind" or "notice" not in {before.kind, other.kind})
    document = before._replace(**{name: getattr(other, name)})
    assert without(name, render(document, DIALECT)) == without(name, data)


# Hostile bytes

VALID = st.sampled_from([render(FULL, DIALECT), FOREIGN.encode(), FOREIGN.replace("\n", "\r\n").encode()])


@st.composite
def mutated_files(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(VALID))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 8))] = draw(
            st.binary(max_size=4)
            | st.sampled_from([b"\n", b": ", b"- ", b"'", b'"', b"[", b"---\n", b"\r", b"\t", b"&a ", b"\xe2\x80\xa8"])
        )
    return bytes(data)


FRONT_LIKE = st.text(alphabet="-.:a \n#'\"[]{}|", max_size=60).map(lambda text: b"---\n" + text.encode())


@given(st.binary() | mutated_files() | st.text().map(str.encode) | FRONT_LIKE)
@example(b'---\ntitle: "\\ud800"\n---\n')
@example(b'---\ntitle: "\\U00110000"\n---\n')
@example(b"---\n---")
def test_any_bytes_are_read_and_written_again_or_refused(data):
    for yaml in (PyYaml(), PyYaml(compiled=False)):
        dialect = Dialect(yaml, read_time)
        try:
            document = parse(data, dialect)
        except BadFile:
            continue
        assert render(document, dialect) == data


@pytest.mark.parametrize("piece", ["---\n", "---\n\n", "- ", "a", "#\n", "a:", "\r", "\n", "id: x\n", "  - a\n"])
def test_hostile_files_take_no_longer_than_long_ones(piece):
    started = time.process_time()
    with contextlib.suppress(BadFile):
        parse(b"---\n" + piece.encode() * (2_000_000 // len(piece)), DIALECT)
    assert time.process_time() - started < 5
