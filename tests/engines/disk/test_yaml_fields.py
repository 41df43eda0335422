"""Untrusted YAML is parsed safely."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.engines.disk import yaml_fields
from commonbook.engines.disk.yaml_fields import MAX_DEPTH, PyYaml
from commonbook.errors import BadFile
from commonbook.ports.files import YamlField

BOTH = [PyYaml(), PyYaml(compiled=False)]


@pytest.fixture(params=BOTH, ids=["compiled", "pure"])
def reader(request):
    return request.param


def read(reader: PyYaml, text: str) -> dict[str, object]:
    return {field.name: field.value for field in reader.fields(text)}


def spans(reader: PyYaml, text: str) -> dict[str, tuple[int, int]]:
    return {field.name: (field.first_line, field.end_line) for field in reader.fields(text)}


def test_every_scalar_stays_the_string_that_was_written(reader):
    text = "a: 1\nb: true\nc: 2026-05-01\nd: '0x10'\ne: \"x\\ny\"\nf: 1_000\n"
    assert read(reader, text) == {"a": "1", "b": "true", "c": "2026-05-01", "d": "0x10", "e": "x\ny", "f": "1_000"}


def test_null_and_nothing_are_none_unless_quoted(reader):
    text = "a:\nb: ~\nc: null\nd: ''\ne: 'null'\nf: [~, x]\n"
    assert read(reader, text) == {"a": None, "b": None, "c": None, "d": "", "e": "null", "f": [None, "x"]}


def test_lists_and_maps_nest(reader):
    text = "a: [x, {y: z}]\nb:\n- k: v\n  l: [m]\n- n\n"
    assert read(reader, text) == {"a": ["x", {"y": "z"}], "b": [{"k": "v", "l": ["m"]}, "n"]}


def test_nothing_and_comments_alone_have_no_fields(reader):
    assert reader.fields("") == []
    assert reader.fields("\n# only a comment\n\n") == []


def test_a_field_knows_its_lines_and_not_the_comments_around_it(reader):
    text = (
        "# top\nplain: x # side\n\n# between\nfolded: >\n  one\n  two\n\n# after\nflow: [a,\n  b]\n# c\n"
        "block:\n  - a\n  # inside\n  - b\n\n# d\nlong: one\n  two\nempty:\n# end\nlast: |+\n  keep\n\n"
    )
    assert spans(reader, text) == {
        "plain": (1, 2),
        "folded": (4, 8),
        "flow": (9, 11),
        "block": (12, 16),
        "long": (18, 20),
        "empty": (20, 21),
        "last": (22, 25),
    }


def test_lines_are_counted_alike_in_windows_files(reader):
    assert spans(reader, "a: x\r\nb:\r\n  - y\r\nc: |\r\n  z\r\nd: e\r\n") == {
        "a": (0, 1),
        "b": (1, 3),
        "c": (3, 5),
        "d": (5, 6),
    }


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("ok: x\na: &anchor x\n", 2, "anchor"),
        ("a: *alias\n", 1, "alias"),
        ("a: !!python/object/apply:os.system [id]\n", 1, "tag"),
        ("a: !custom x\n", 1, "tag"),
        ("a: ! x\n", 1, "tag"),
        ("&a a: b\n", 1, "anchor"),
        ("!!map\na: b\n", 1, "tag"),
        ("{a: b}\n", 1, "list of fields"),
        ("- a\n- b\n", 1, "list of fields"),
        ("just words\n", 1, "list of fields"),
        ("a: x\nb: y\na: z\n", 3, "second time (see line 1)"),
        ("a: x\n'a': z\n", 2, "second time"),
        ("  a: x\n  b: y\n", 1, "begin with its name"),
        ("? a\n: x\n", 1, "begin with its name"),
        (": x\n", 1, "front matter"),
        ("~: x\n", 1, "begin with its name"),
        ("[a]: x\n", 1, "in place of a name"),
        ("a: {[b]: c}\n", 1, "in place of a name"),
        ("a: x\n--- b\n", 2, "second YAML document"),
        ("--- {a: x}\n", 1, "second YAML document"),
        ("%YAML 1.1\n", None, "not YAML"),
        ("a: x\nb: 'never closed\n", None, "not YAML"),
        ("a: b: c\n", 1, "not YAML"),
        ("a:\n\tb: c\n", 2, "not YAML"),
        ("a: @x\n", 1, "not YAML"),
        ('a: "\\U99999999"\n', 1, "not YAML"),
        ("a: x\nb: \x07\n", 2, "does not allow"),
        ("a: x\rb: y\n", 1, "line break"),
        ("ok: x\na: x\x85b: y\n", 2, "line break"),
        ("a: x\u2028b\n", 1, "line break"),
    ],
)
def test_what_is_not_a_plain_mapping_is_refused_with_its_line(reader, text, line, reason):
    with pytest.raises(BadFile) as caught:
        reader.fields(text)
    assert reason in caught.value.message
    assert caught.value.message.startswith("line " if line is None else f"line {line}: ")
    assert caught.value.fix


BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)


@pytest.mark.promise("malformed.bombs")
@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: " + "[" * 60_000,
        "[" * 60_000,
        "a: " + "{x: " * 15_000,
        "a:\n" + "".join(" " * n + "-\n" for n in range(1, 340)),
        "a: " + "- " * 30_000 + "\n",
        "a: [" + "x," * 30_000 + "]\n",
        "a: [" + "[],x: y," * 7_000 + "]\n",
        "? " * 30_000,
        "a: " + "!" * 60_000,
        "a: '" + "\n" * 60_000,
        "".join(f"k{n}: v\n" for n in range(6_000)),
    ],
)
def test_a_bomb_is_refused_quickly(reader, text):
    started = time.process_time()
    with pytest.raises(BadFile):
        reader.fields(text)
    assert time.process_time() - started < 5


def test_nesting_is_allowed_up_to_the_limit_and_not_beyond(reader):
    within, beyond = MAX_DEPTH - 1, MAX_DEPTH
    assert read(reader, f"a: {'[' * within}{']' * within}\n")
    with pytest.raises(BadFile, match="nested"):
        reader.fields(f"a: {'[' * beyond}{']' * beyond}\n")


YAMLISH = st.text(alphabet="ab:-?[]{}'\"#&*!|>%@`~,. \n\t\r\\é\x85\u2028\ufeff0", max_size=80)
LINES = [
    "a: x", "b:", "  - y", "- z", "# c", "", "c: |", "  t", "d: [1,", "2]", "e: 'q", "  r'", "f: >-", "   u", " v",
    "g: {h: i}", "j: k # l", "m: n", "  o", "  # p", "q: |+", "? r", ": s",
]  # fmt: skip
PIECES = st.lists(st.sampled_from(LINES).map(lambda line: f"{line}\n"), max_size=12).map("".join)


def outcome(reader: PyYaml, text: str) -> list[YamlField] | None:
    try:
        return reader.fields(text)
    except BadFile:
        return None


@given(YAMLISH | PIECES | st.text())
def test_any_text_is_read_or_refused(text):
    for reader in BOTH:
        outcome(reader, text)


@given(PIECES)
def test_fields_stand_apart_and_between_them_are_only_comments_and_blanks(text):
    lines = text.split("\n")
    for reader in BOTH:
        after = 0
        for field in outcome(reader, text) or []:
            assert after <= field.first_line < field.end_line
            assert all(not line.strip() or line.lstrip().startswith("#") for line in lines[after : field.first_line])
            after = field.end_line


@given(PIECES)
def test_both_parsers_agree_where_both_can_read(text):
    compiled, pure = (outcome(reader, text) for reader in BOTH)
    if compiled is not None and pure is not None:
        assert compiled == pure


def test_the_parser_is_not_loaded_before_it_is_needed():
    check = "import sys, commonbook.compose.book, commonbook.core.markdown.file_format; sys.exit('yaml' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, cwd=Path(yaml_fields.__file__).parents[3])
