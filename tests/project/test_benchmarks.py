"""Every benchmark runs, at a size where the figures mean nothing, and says what it measured in numbers."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

import commonbook
from benchmarks import __main__
from benchmarks.bench import ROOT, Scale
from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, in_turns
from benchmarks.library import CHAT, as_in_a_chat, by_frequency, from_a_passage, shelves, vocabulary
from benchmarks.recalling import percentile
from commonbook.core.text.terms import query_words, terms

pytestmark = pytest.mark.slow

TINY = Scale(
    small=2,
    middle=3,
    large=4,
    batch=20,
    adds=2,
    processes=(2, 4),
    write_rounds=1,
    batch_rounds=1,
    start_rounds=1,
    passages=(60, 120),
    questions=8,
    question_rounds=2,
    copies=(0, 3),
    chain=5,
    fan=4,
    shared=20,
    dependents=(0, 3),
)
MISSED = Figure(
    benchmark="made_up",
    what="adds",
    n=1_000,
    unit="/s",
    ours_rounds=(10.0, 20.0, 90.0),
    reference_rounds=(100.0,),
    bar=Bar(AT_LEAST, 0.25),
)


def distinct_terms(question: str) -> list[str]:
    return list(dict.fromkeys(term for _, term in query_words(question)))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("single_add", [0, 3, 4]),
        ("add_cost", [2]),
        ("parallel_add", [2, 4]),
        ("parallel_gain", [4]),
        ("batch", [10, 2, 20, 20]),
        ("importing", [4] * 14),
        ("mcp_server", [1, 1, 14, 1, 1, 2, 2]),
        ("hooks", [2] * 5),
        ("append", [1, 2]),
        ("open_unchanged", [2, 3, 4]),
        ("cold_status", [2, 3, 4]),
        ("recall", [60] * 6 + [120] * 6),
        ("recall_memory", [120, 120, 120]),
        ("cold_recall", [2, 3, 4]),
        ("write_then_recall", [60]),
        ("recall_after_burst", [4, 4]),
        ("edit_shared", [0, 3]),
        ("lineage", [5, 4]),
        ("recall_copies", [20]),
        ("supersede", [0, 3]),
        ("recall_suspect", [20]),
        ("suspect_chain", [3, 3, 3, 3]),
        ("http", [120, 120, 120, 120, 32]),
        ("soak", [2]),
        ("postgres_recall", [720, 120, 120, 2, 2, 2, 2, 1, 1]),
        ("postgres_append", [1, 2]),
    ],
)
def test_a_benchmark_measures_ours_beside_its_reference(name, sizes, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_SOAK_SECONDS", "2")
    monkeypatch.setattr("benchmarks.agents._PROCESSES", (1, 2))
    monkeypatch.setattr("benchmarks.agents._IDLE_SECONDS", 0)
    monkeypatch.setattr("benchmarks.capturing._CASES", ((1, 1), (2, 2)))
    monkeypatch.setattr("benchmarks.capturing_on_postgres._CASES", ((1, "in turn", 1, None), (2, "at once", 2, None)))
    figures = list(__main__.measured([name], TINY))
    assert [figure.n for figure in figures] == sizes
    for figure in figures:
        assert figure.benchmark == name
        assert figure.ours > 0
        assert figure.reference > 0
        # Reported values are rounded, which matters for measurements as small as these.
        report, ours, reference = figure.as_json(), figure.ours, figure.reference
        assert (report["ours"], report["reference"]) == pytest.approx((ours, reference), abs=0.001)
        assert report["ratio"] == pytest.approx(reference / ours if figure.faster else ours / reference, abs=0.001)
        assert (report["bar"] is None) == (report["ok"] is None)


def test_an_import_is_measured_beside_that_of_an_earlier_version():
    figures = list(__main__.measured(["importing"], TINY, ROOT))
    (compared,) = [figure for figure in figures if "earlier version" in figure.what]
    assert len(compared.ours_rounds) == len(compared.reference_rounds) == 2
    assert compared.bar is not None


def test_a_ratio_tells_how_much_of_the_reference_we_reach_or_how_many_times_faster_we_are():
    assert MISSED.ratio == pytest.approx(0.2)
    assert replace(MISSED, unit="ms", faster=True).ratio == pytest.approx(5)


def test_a_percentile_is_a_time_that_was_measured():
    times = [float(number) for number in range(100, 0, -1)]
    assert [percentile(times, share) for share in (50, 95, 100)] == [50.0, 95.0, 100.0]
    assert percentile([7.0], 50) == 7.0


def test_a_library_has_the_passages_that_were_asked_for_and_the_same_in_every_run():
    first, again = list(shelves(500)), list(shelves(500))
    assert first == again
    assert sum(len(shelf.passages) for shelf in first) == 500
    assert {shelf.draft.kind for shelf in first} == {"note", "episode"}
    assert all(8 <= len(passage.split()) <= 61 for shelf in first for passage in shelf.passages)


def test_a_library_is_cut_into_exactly_its_passages(tmp_path):
    with commonbook.open(tmp_path, create=True) as book:
        book.remember_many([shelf.draft for shelf in shelves(120)])
        found = book.recall("alice bob carol dave erin", k=200, min_confidence=0)
    passages = {passage for shelf in shelves(120) for passage in shelf.passages}
    assert found.hits
    assert {hit.passage for hit in found.hits} <= passages
    assert sum(hit.type == "message" for hit in found.hits) > 0


def test_words_are_as_frequent_as_in_real_english():
    words = Counter(word for shelf in shelves(2_000) for passage in shelf.passages for word in passage.lower().split())
    assert len(vocabulary()) > 15_000
    assert words["the"] / words.total() == pytest.approx(0.06, abs=0.03)
    assert sum(1 for count in words.values() if count == 1) > len(words) / 4


def test_a_message_is_found_by_its_speaker_too_and_a_third_call_the_other_by_name():
    talks = [shelf for shelf in shelves(5_000) if shelf.draft.kind == "episode"]
    messages = [(shelf, at) for shelf in talks for at in range(len(shelf.passages))]
    assert all(shelf.searched[at] == f"{shelf.speakers[at]} {shelf.passages[at]}" for shelf, at in messages)
    assert all(len(set(shelf.speakers)) == 2 for shelf in talks)
    called = [shelf.passages[at].split(",")[0].lower() in set(shelf.speakers) for shelf, at in messages]
    assert sum(called) / len(called) == pytest.approx(0.334, abs=0.04)
    assert all(shelf.searched == shelf.passages for shelf in shelves(200) if shelf.draft.kind == "note")


def test_a_question_by_frequency_has_seven_words_and_nearly_always_a_speaker():
    chance = random.Random("one")
    speakers = {speaker for shelf in shelves(500) for speaker in shelf.speakers}
    questions = [by_frequency(chance).split() for _ in range(1_000)]
    assert all(len(distinct_terms(" ".join(words))) == len(words) == 7 for words in questions)
    named = Counter(len(speakers & set(words)) for words in questions)
    assert (named[1] + named[2]) / len(questions) == pytest.approx(0.987, abs=0.02)
    assert named[2] / len(questions) == pytest.approx(0.097, abs=0.04)


def test_a_question_from_a_passage_has_seven_words_of_which_some_are_in_it():
    chance = random.Random("one")
    passage = "The quick fox jumped over the lazy dog near the old river bank."
    words = from_a_passage(passage, chance).split()
    assert len(words) == len(set(words)) == 7
    assert len(set(words) & set(passage.lower().split())) >= 4


def test_a_bar_is_met_from_its_own_side():
    assert Bar(AT_LEAST, 0.25).met(0.25)
    assert not Bar(AT_LEAST, 0.25).met(0.24)
    assert Bar(AT_MOST, 3).met(3)
    assert not Bar(AT_MOST, 3).met(3.01)


def test_rounds_are_measured_in_turns_and_the_first_of_each_is_not_counted():
    order = []

    def ours():
        order.append("ours")
        return float(len(order))

    def reference():
        order.append("reference")
        return float(len(order))

    results = in_turns(2, ours, reference)
    assert order == ["ours", "reference", "ours", "reference", "reference", "ours"]
    assert results == ((3.0, 6.0), (4.0, 5.0))


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_a_missed_bar_is_told_and_is_an_error_only_when_asked(options, code, monkeypatch, capsys):
    monkeypatch.setattr(__main__, "BENCHMARKS", {"made_up": lambda _bench: iter([MISSED])})
    assert __main__.main(options) == code
    output = capsys.readouterr()
    (figure,) = json.loads(output.out)["figures"]
    assert (figure["ours"], figure["ratio"], figure["bar"], figure["ok"]) == (20.0, 0.2, ">= 0.25", False)
    assert "MISSED: adds (1,000): 0.20" in output.err


def test_the_json_goes_where_it_is_asked_to(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(__main__, "BENCHMARKS", {"made_up": lambda _bench: iter([MISSED])})
    place = tmp_path / "figures.json"
    __main__.main(["made_up", "--json", str(place)])
    assert json.loads(place.read_text())["figures"][0]["benchmark"] == "made_up"
    assert capsys.readouterr().out == ""


def test_an_unknown_benchmark_is_refused(capsys):
    with pytest.raises(SystemExit):
        __main__.main(["sigle_add"])
    assert "sigle_add" in capsys.readouterr().err


def test_a_question_to_a_chat_asks_for_what_many_messages_have_but_not_for_more_than_real_ones_do():
    """The table in benchmarks/library.py: LoCoMo's are .673, .025 and .82."""
    passages = [frozenset(terms(text)) for shelf in shelves(4_000, CHAT) for text in shelf.searched]
    having = Counter(term for text in passages for term in text)
    chance = random.Random(7)
    questions = [distinct_terms(as_in_a_chat(chance)) for _ in range(100)]
    names = [having[term] / len(passages) for words in questions for term in words if term in ("alic", "bob")]
    others = [having[term] / len(passages) for words in questions for term in words if term not in ("alic", "bob")]
    together = [sum(not text.isdisjoint(words) for text in passages) / len(passages) for words in questions]
    assert 0.6 < sum(names) / len(names) < 0.69
    assert 0.008 < sum(others) / len(others) < 0.025
    assert 0.6 < sum(together) / len(together) < 0.82
