"""Recall through the facade: what is found, what is left out, and what a hit says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import commonbook
from commonbook.core.markdown.transcript import TranscriptMessage, render
from commonbook.core.text import dates_in_text
from commonbook.engines.index.mapped_index import MappedIndex
from commonbook.engines.process import SystemClock
from commonbook.errors import BadInput, BadSpaceName, BadText, BadTime, CommonbookError
from commonbook.service.book import Book
from commonbook.subjects.recall import indexed_passages, recaller, scoring
from commonbook.values.hit import Hit
from commonbook.values.memory import Draft, Kind
from commonbook.values.recall import RecallResult
from tests.conftest import OpenBook
from tests.support.paraphrases import ASKED, OTHERS


def ids(found: RecallResult) -> list[str]:
    return [hit.id for hit in found.hits]


def texts(found: RecallResult) -> list[str]:
    return [hit.text for hit in found.hits]


def untimed(found: RecallResult) -> tuple[object, ...]:
    """Return all of an answer but how long it took."""
    return found.hits, tuple(found.steps), found.notes


def turn(number: int, text: str, *, author: str = "user:alice", role: str = "user", day: int = 7) -> TranscriptMessage:
    time = datetime(2026, 5, day, 10, number, tzinfo=UTC)
    return TranscriptMessage(f"0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c{number:02x}", number, author, role, time, text)


@pytest.fixture(params=[False, True], ids=["in the tail", "in the index"])
def settle(request, book: Book) -> Callable[[], None]:
    """Write the index, or leave everything to be searched directly: nobody may see a difference."""

    def settling() -> None:
        if request.param:
            book.reindex()

    return settling


# --- filters, inside the search


def test_the_one_memory_with_a_tag_is_found_among_eighty_stronger_matches(book: Book, settle):
    strong = [Draft(text=f"billing billing invoice {n}", tags=("x",)) for n in range(80)]
    weak = "In a long talk about holidays and the weather somebody said that billing, of all things, had moved."
    book.remember_many(strong[:40])
    receipt = book.remember(weak, tags=["y", "z"])
    book.remember_many(strong[40:])
    settle()
    assert ids(book.recall("billing invoice", tags=["y"], k=5)) == [receipt.id]
    assert ids(book.recall("billing invoice", tags=["y", "z"], k=5)) == [receipt.id]
    assert book.recall("billing invoice", tags=["y", "x"], k=5).hits == ()
    assert receipt.id not in ids(book.recall("billing invoice", k=5))


@pytest.mark.promise("recall.filters")
@pytest.mark.parametrize("only", [{"kinds": ["decision"]}, {"spaces": "other"}, {"since": "2001-01-01"}])
def test_no_filter_is_applied_after_the_cut(book: Book, settle, only):
    book.remember_many([Draft(text=f"billing billing {n}", occurred="2000-01-01") for n in range(120)])
    space = "other" if "spaces" in only else "personal"
    receipt = book.remember("Long ago they spoke of billing and of much else besides.", kind="decision", space=space)
    settle()
    assert ids(book.recall("billing", k=3, **only)) == [receipt.id]


def test_kinds_are_any_of_those_named_and_tags_are_all_of_them(book: Book, settle):
    kinds: tuple[Kind, ...] = ("fact", "preference", "note")
    fact, preference, note = (
        book.remember(f"Billing in {n} ways", kind=kind, tags=[kind, "all"]).id for n, kind in enumerate(kinds)
    )
    settle()
    assert set(ids(book.recall("billing", kinds=["fact", "preference"]))) == {fact, preference}
    assert set(ids(book.recall("billing", tags=["all"]))) == {fact, preference, note}
    assert ids(book.recall("billing", tags=["all", "note"])) == [note]
    assert ids(book.recall("billing", tags=["#note"])) == [note]


# --- titles, aliases, tags


@pytest.mark.promise("recall.names")
def test_a_question_that_is_a_title_an_alias_or_a_file_name_finds_that_memory_first(book: Book, settle, tmp_path):
    folder = tmp_path / "vault"
    folder.mkdir()
    front = '---\ntitle: Payment gateway\naliases: ["k8s", "the till"]\ntags: [ledger]\n---\n'
    (folder / "Kasse Nord.md").write_text(f"{front}Charges go through Adyen.\n")
    (folder / "Other.md").write_text("---\ntitle: Notes\n---\nThe payment gateway of Kasse Nord, the till, k8s.\n")
    (folder / "More.md").write_text("---\ntitle: More\n---\nPayment gateway, payment gateway: see the gateway.\n")
    book.import_folder(str(folder), space="team")
    settle()
    for query in ("payment gateway", "Payment Gateways?", "k8s", "the till", "kasse nord"):
        assert book.recall(query, spaces="team").hits[0].title == "Payment gateway", query
    assert book.recall("payment gateway", spaces="team").hits[0].parts["name"] > 0
    assert [hit.title for hit in book.recall("ledger", spaces="team").hits][:1] == ["Payment gateway"]


def test_a_question_that_is_a_title_of_common_words_finds_that_memory(book: Book, settle):
    about = book.remember("We are a small bakery in Graz.", title="About us")
    book.remember("It is about us all: we are what we do.", title="Essay")
    book.remember("This is not about us.", title="Other", space="vault")
    settle()
    assert ids(book.recall("about us")) == [about.id]
    assert book.recall("who are we").hits == ()
    assert book.recall("about us", kinds=["fact"]).hits == ()
    assert book.recall("about us", spaces="vault").hits == ()


def test_a_question_of_common_words_alone_says_how_to_search_for_them(book: Book, settle):
    book.remember("It was said while the server was down.")
    settle()
    answer = book.recall("said while")
    assert answer.hits == ()
    assert [note for note in answer.notes if "in quotes" in note]
    assert book.recall("server").notes == book.recall("").notes == book.recall("...").notes == ()


# --- words of one letter, dates, long messages


@pytest.mark.promise("recall.dates")
def test_a_digit_and_a_letter_are_words(book: Book, settle):
    buoys = [book.remember(f"Buoy {number} was painted green.").id for number in range(1, 8)]
    letters = [book.remember(f"Vitamin {letter} is in the blue tin.").id for letter in "BCDE"]
    settle()
    assert [ids(book.recall(f"buoy {number}"))[0] for number in range(1, 8)] == buoys
    assert ids(book.recall("where is vitamin c?"))[0] == letters[1]


@pytest.mark.promise("recall.dates")
@pytest.mark.parametrize("query", ["16.01.2024", "What broke on 16/1/24?", "2024-01-16", "on January 16th, 2024"])
def test_a_date_finds_the_text_that_names_the_day_in_another_way(book: Book, settle, query):
    wanted = book.remember("On the 16th of January 2024 the lift broke again and was mended by the caretaker.").id
    book.remember_many(
        [Draft(f"On {day}.02.2024 the lift broke, and on 2024-01-{day} the door did.") for day in (17, 18)]
    )
    settle()
    assert ids(book.recall(query))[0] == wanted


@pytest.mark.promise("recall.dates")
@pytest.mark.parametrize("query", ["What did we do on 3.5.{}?", "{}-05-03", "and on the 3rd of May?"])
def test_a_day_finds_what_was_written_on_it_whatever_it_says(open_book: OpenBook, monkeypatch, query):
    # In this zone, the third of May begins two hours earlier than in UTC.
    monkeypatch.setenv("COMMONBOOK_ZONE", "Europe/Berlin")
    book = open_book()
    year = datetime.now(UTC).year - 1
    query = query.format(year)
    others = [Draft(f"Went to the market on foot, way {n}", occurred=f"{year}-0{1 + n % 3}-11") for n in range(120)]
    day = [
        Draft("Boat repaired", occurred=f"{year}-05-02T22:30:00Z"),
        Draft("Bought nails and paint", occurred=f"{year}-05-03T18:00:00Z"),
    ]
    after = Draft("Slept until noon", occurred=f"{year}-05-03T22:30:00Z")
    book.remember_many([*day, *others, after])
    for _ in range(3):
        found = texts(book.recall(query, k=3, min_confidence=0))
        assert set(found[:2]) == {draft.text for draft in day}
        book.reindex()


def test_an_answer_in_a_short_message_is_found_before_long_answers_about_everything(book: Book, settle):
    filler = " ".join(f"topic{number} kayak advice plan" for number in range(400))
    answer = turn(1, "By the way, I keep my kayak in the shed of my uncle.")
    advice = [turn(number, filler, author="agent:bot", role="assistant") for number in (2, 4)]
    book.remember(render([answer, advice[0], turn(3, "Thanks a lot"), advice[1]]), kind="episode")
    settle()
    assert ids(book.recall("Where do I keep my kayak?"))[0] == answer.id


# --- what others have, and what is gone, shows in nothing


def _asked_everything(book: Book) -> list[tuple[object, ...]]:
    queries = ("billing", "Who pays the billing invoice of project 7?", "money", "rare words", "When was it?", "")
    return [
        untimed(book.recall(query, spaces="mine", k=k, explain=True, min_confidence=least))
        for query in queries
        for k, least in ((10, None), (50, 0.0))
    ]


def _compare_with_and_without_others(book: Book, *, own: int, others: int) -> None:
    text = "The billing invoice {} of project {} is paid by the team on day {}."
    mine = [Draft(text=text.format(n, n % 13, n % 7), space="mine", tags=(f"t{n % 3}",)) for n in range(own)]
    book.remember_many([*mine, Draft(text="Rare words about money", space="mine")])
    before = _asked_everything(book)
    theirs = [text.format(n, n % 13, n % 7) + (" money" if n % 2 else " rare") for n in range(others)]
    book.remember_many([Draft(text=theirs[n], space=("yours", "mine/below", "min")[n % 3]) for n in range(others)])
    assert _asked_everything(book) == before
    gone = book.remember_many([Draft(text=theirs[n], space="mine") for n in range(others // 4)])
    assert _asked_everything(book) != before
    book.delete(*(receipt.id for receipt in gone))
    assert _asked_everything(book) == before
    book.reindex(anew=True)
    assert _asked_everything(book) == before


@pytest.mark.promise("recall.spaces")
def test_an_answer_is_the_same_to_the_last_digit_whatever_other_spaces_hold_or_was_deleted(book: Book):
    _compare_with_and_without_others(book, own=140, others=200)


@pytest.mark.slow
def test_an_answer_with_over_a_thousand_matches_is_the_same_with_a_thousand_others(book: Book):
    _compare_with_and_without_others(book, own=1100, others=1000)


def test_candidates_of_one_score_are_chosen_by_their_whole_ids(home: Path):
    """Ids that share their first half, as those made in one millisecond nearly do, in any order of writing."""
    front = "---\nid: 0192f3a1-5c2e-7b1d-{}-4e6d7f3a9c2e\ncreated: 2026-01-01T00:00:00Z\n---\nthe billing service\n"
    numbers = [f"8{n:03x}" for n in range(80)]
    answers = []
    for name, order in (("forwards", numbers), ("backwards", numbers[::-1])):
        with commonbook.open(home.parent / name, create=True) as book:
            folder = home.parent / name / "personal"
            folder.mkdir(exist_ok=True)
            for half in (order[:40], order[40:]):
                for number in half:
                    (folder / f"{number}.md").write_text(front.format(number))
                book.sync()
                book.reindex()
            answers.append(ids(book.recall("billing", k=20)))
            book.reindex(anew=True)
            answers.append(ids(book.recall("billing", k=20)))
    assert all(len(answer) == 20 for answer in answers)
    assert answers == [answers[0]] * 4


# --- read your writes

ANSWERING = (
    "import sys, commonbook\n"
    "with commonbook.open(sys.argv[1], create=True) as book:\n"
    "    for line in sys.stdin:\n"
    "        verb, _, rest = line.rstrip('\\n').partition(' ')\n"
    "        if verb == 'remember': print(book.remember(rest).id, flush=True)\n"
    "        else: print(*(hit.id for hit in book.recall(rest).hits), flush=True)\n"
)


@pytest.mark.promise("processes.reads")
def test_what_one_process_wrote_the_next_recall_of_another_finds(place: Path | str, book: Book):
    command = [sys.executable, "-c", ANSWERING, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin
        assert other.stdout

        def ask(line: str) -> list[str]:
            assert other.stdin
            assert other.stdout
            other.stdin.write(line + "\n")
            other.stdin.flush()
            return other.stdout.readline().split()

        assert ask("recall walrus") == []
        for animal, plant, person in (("walrus", "oak", "pilot"), ("otter", "tulip", "dentist")):
            mine = book.remember(f"Here is one {animal}").id
            assert ask(f"recall {animal}") == [mine]
            (theirs,) = ask(f"remember There is some {plant}")
            assert ids(book.recall(plant)) == [theirs]
            # More than is searched directly: one of the two writes the index, and both go on with it.
            book.remember_many([Draft(text=f"filler {n}") for n in range(130)])
            book.edit(mine, text=f"Here works a {person}")
            assert ask(f"recall {animal}") == []
            assert ask(f"recall {person}") == [mine]
            book.delete(mine)
            assert ask(f"recall {person}") == []
        other.stdin.close()
        assert other.wait(60) == 0


def test_edited_moved_and_deleted_memories_are_found_as_they_are_now(book: Book, settle):
    edited, moved, deleted, kept = (book.remember(f"The walrus number {n}", space="a").id for n in range(4))
    assert set(ids(book.recall("walrus", spaces="a"))) == {edited, moved, deleted, kept}
    settle()
    book.edit(edited, text="The heron")
    book.move(moved, "b")
    book.delete(deleted)
    for _ in range(2):
        assert ids(book.recall("walrus", spaces="a")) == [kept]
        assert ids(book.recall("walrus", spaces="b")) == [moved]
        assert ids(book.recall("heron", spaces="a")) == [edited]
        settle()
    book.move(moved, "a")
    book.edit(edited, title="A walrus after all", tags=["late"], kind="fact")
    assert set(ids(book.recall("walrus", spaces="a"))) == {kept, moved, edited}
    assert book.recall("walrus", spaces="b").hits == ()
    assert ids(book.recall("walrus", spaces="a", tags=["late"], kinds=["fact"])) == [edited]
    book.rename_space("a", "c")
    assert set(ids(book.recall("walrus", spaces="c"))) == {kept, moved, edited}
    assert {hit.space for hit in book.recall("walrus", spaces="c").hits} == {"c"}


# --- times


def test_as_of_shows_what_was_valid_then(book: Book, settle):
    first = book.remember("Rent is 800", valid_from="2020-01-01", valid_until="2021-12-31").id
    second = book.remember("Rent is 900", valid_from="2022-01-01").id
    new = book.remember("Rent rises", occurred="2023-05-01").id
    today = book.remember("Rent is discussed").id
    settle()

    def then(moment: str) -> set[str]:
        newest = set(ids(book.recall("", as_of=moment)))
        assert newest == set(ids(book.recall("rent", as_of=moment)))
        return newest

    assert then("2019-12-31") == set()
    assert then("2020-01-01") == then("2021-12-31") == {first}
    assert then("2022-01-01") == then("2023-04-30") == {second}
    assert then("2023-05-01") == {second, new}
    assert then("now") == {second, new, today}


def test_as_of_shows_what_was_not_superseded_then(book: Book, settle):
    old = book.remember("Rent is 800", valid_from="2020-01-01").id
    settle()
    new = book.remember("Rent is 900", valid_from="2022-01-01", replaces=old).id
    settle()
    for query in ("rent", ""):
        assert ids(book.recall(query)) == [new]
        assert ids(book.recall(query, as_of="2021-06-01")) == [old]
        assert ids(book.recall(query, as_of="2022-01-01")) == [new]
    assert book.recall("rent", as_of="2021-06-01").hits[0].superseded_by == new
    # The successor turns out to hold only since later, and so the old one held for longer.
    book.edit(new, valid_from="2023-01-01")
    for query in ("rent", ""):
        assert ids(book.recall(query, as_of="2022-06-01")) == [old]
        assert ids(book.recall(query, as_of="2023-06-01")) == [new]


def test_of_a_memory_and_its_successor_one_holds_at_any_time(book: Book, settle):
    old = book.remember("Rent is 800", occurred="2020-01-01").id
    new = book.remember("Rent is 900", occurred="2022-01-01", replaces=old).id
    settle()
    assert ids(book.recall("rent", as_of="2021-06-01")) == [old]
    assert ids(book.recall("rent", as_of="2022-06-01")) == [new]


def test_since_and_until_go_by_when_it_happened_else_by_when_it_was_written_down(book: Book, settle):
    past = book.remember("Walrus seen", occurred="2020-05-07").id
    later = book.remember("Walrus heard", occurred="2021-05-07").id
    now = book.remember("Walrus noted", valid_from="2020-05-07").id
    settle()
    for query in ("walrus", ""):
        assert ids(book.recall(query, since="2020-05-07", until="2020-05-07")) == [past]
        assert ids(book.recall(query, since="2020-05-08", until="yesterday")) == [later]
        assert ids(book.recall(query, since="1h")) == [now]
        assert set(ids(book.recall(query, until="2021-05-07"))) == {past, later}
        assert book.recall(query, until="2020-05-06").hits == ()


def test_since_and_until_go_by_the_time_of_each_message(book: Book, settle):
    talk = [turn(1, "The walrus swims", day=7), turn(2, "The walrus sleeps", day=9)]
    book.remember(render(talk), kind="episode", title="Talk", occurred="2026-01-01")
    settle()
    assert ids(book.recall("walrus", since="2026-05-08", until="2026-05-10")) == [talk[1].id]
    assert ids(book.recall("walrus", until="2026-05-08")) == [talk[0].id]
    assert book.recall("walrus", until="2026-05-01").hits == ()


def test_a_question_that_names_a_month_prefers_what_happened_in_it(book: Book, settle):
    may = book.remember("The walrus swam", occurred="2023-05-07").id
    june = book.remember("The walrus swam", occurred="2023-06-07").id
    settle()
    assert ids(book.recall("What did the walrus do in May 2023?")) == [may, june]
    assert ids(book.recall("What did the walrus do in June 2023?")) == [june, may]


# --- reading changes nothing


_TABLES = {
    "sqlite": "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name",
    # Without the index, which is written when somebody recalls.
    "postgres": "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    " AND table_name NOT LIKE 'recall%' ORDER BY table_name",
}


def _state(book: Book, engine: str) -> tuple[list[object], dict[str, tuple[bytes, int]]]:
    """Every row of the book, and every file."""
    with book._engines.db.reading() as tx:
        rows = [(name, sorted(map(repr, tx.rows(f"SELECT * FROM {name}")))) for (name,) in tx.rows(_TABLES[engine])]
    files = sorted(Path(book.home).rglob("*.md"))
    return [*rows], {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.promise("recall.newest")
def test_recall_changes_nothing(book: Book, engine: str):
    old = book.remember("Walrus one", expires="in 3 days")
    book.remember("Walrus two", replaces=old.id)
    book.remember("Walrus gone", expires="yesterday")
    book.remember_many([Draft(text=f"filler {n}") for n in range(140)])
    before, status = _state(book, engine), book.status()._replace(database_bytes=0)
    for query in ("walrus", "", "filler 7", "nothing of the kind"):
        for include in ((), ("superseded", "expired")):
            first = untimed(book.recall(query, include=include, explain=True))
            assert untimed(book.recall(query, include=include, explain=True)) == first
    assert _state(book, engine) == before
    assert book.status()._replace(database_bytes=0) == status
    assert book.verify_log().ok


# --- nothing rather than junk


@pytest.fixture
def everyday(book: Book) -> Book:
    book.remember_many([Draft(text=text) for text in (*(memory for memory, _ in ASKED), *OTHERS)])
    return book


UNANSWERED = (
    "How do I reverse a linked list in Haskell?",
    "quantum chromodynamics on a lattice",
    "What is the capital of Mongolia?",
    "explain the offside rule in football",
    "segmentation fault in malloc",
    "which planet has the most moons",
    "photosynthesis converts light into sugar",
    "volcanic eruption in Iceland",
    "chess opening theory, Sicilian defence",
    "asdf qwer zxcv",
    "12345",
    "???",
    "\u200b",
    "🎉",
)


def test_a_prompt_that_nothing_answers_gets_nothing(everyday: Book):
    answered = {query: texts(everyday.recall(query)) for query in UNANSWERED}
    assert {query: found for query, found in answered.items() if found} == {}


def test_a_prompt_of_small_words_alone_gets_nothing(everyday: Book):
    prompts = (
        "no",
        "How are you?",
        "and then?",
        "what about it?",
        "do it again",
        "Can you do this for me?",
        "yes, go on",
    )
    answered = {query: texts(everyday.recall(query)) for query in prompts}
    assert {query: found for query, found in answered.items() if found} == {}


def test_an_empty_book_answers_nothing(book: Book):
    assert book.recall("walrus").hits == book.recall("").hits == book.recall("x", spaces="no/such").hits == ()


@pytest.mark.parametrize("query", ["", " ", "\n\t \u3000"])
def test_an_empty_question_gives_the_newest(book: Book, query):
    made = [book.remember(f"number {n}", tags=[f"t{n % 2}"], kind=("note", "fact")[n % 2]).id for n in range(14)]
    book.delete(made.pop())
    assert ids(book.recall(query)) == made[:-11:-1]
    assert ids(book.recall(query, k=3)) == made[:-4:-1]
    assert ids(book.recall(query, k=3, tags=["t1"])) == made[-2::-2][:3]
    assert ids(book.recall(query, k=2, kinds=["note"])) == made[::-2][:2]
    assert all(hit.score == 0 and hit.type == "memory" for hit in book.recall(query).hits)


@pytest.mark.promise("recall.confidence")
def test_hits_below_the_least_confidence_are_left_out_and_counted(everyday: Book):
    query = "Who is responsible for payments?"
    found = everyday.recall(query, k=50, min_confidence=0)
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= hit.confidence <= 1 for hit in found.hits)
    middle = sorted(hit.confidence for hit in found.hits)[-3]
    limited = everyday.recall(query, k=50, min_confidence=middle)
    assert limited.hits == tuple(hit for hit in found.hits if hit.confidence >= middle)
    assert (limited.left_out, limited.nearest) == (len(found.hits) - len(limited.hits), None)
    assert everyday.recall(query, min_confidence=1).nearest == found.hits[0]
    assert len(found.hits) > len(everyday.recall(query, k=50).hits) > 0


@pytest.mark.promise("recall.confidence")
def test_the_confidence_of_a_hit_is_the_same_for_every_k(everyday: Book):
    query = "Where does the kitten take its naps?"
    every = everyday.recall(query, k=50, min_confidence=0).hits
    for k in (1, 3, 10, 30):
        assert everyday.recall(query, k=k, min_confidence=0).hits == every[:k]


@pytest.mark.promise("recall.confidence")
def test_an_unrelated_question_gets_nothing_but_the_nearest(everyday: Book):
    result = everyday.recall("What is the melting point of gallium in kelvin?")
    assert result.hits == ()
    assert result.left_out > 0
    assert result.nearest is not None
    assert result.nearest.confidence < 0.1
    assert everyday.recall("Who owns the billing service?").hits[0].confidence > 0.4


@pytest.mark.promise("recall.confidence")
def test_a_question_about_somebody_whom_nothing_mentions_gets_nothing(everyday: Book):
    """A name that occurs nowhere makes a difference, though all other words of the question occur."""
    question = "Where did {} break his arm?"
    assert everyday.recall(question.format("Ben")).hits[0].text.startswith("Ben broke his arm")
    unknown = everyday.recall(question.format("Leopold"))
    assert unknown.hits == ()
    assert unknown.nearest is not None
    assert unknown.nearest.text.startswith("Ben broke his arm")
    assert everyday.recall(question.format("somebody")).hits[0].text.startswith("Ben broke his arm")


def test_hardly_a_paraphrase_is_taken_for_an_unrelated_question(everyday: Book):
    """Neither shares a word with any memory: see UNANSWERED for the others."""
    found = [one for one in ASKED if one[0] in [hit.text for hit in everyday.recall(one[1], min_confidence=0).hits]]
    lost = [query for memory, query in found if memory not in [hit.text for hit in everyday.recall(query).hits]]
    assert len(found) >= 27
    assert len(lost) <= 2, lost


# --- which spaces


def git(*args: str, cwd: Path) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *args], cwd=cwd, check=True, capture_output=True)


def test_without_a_name_the_project_and_personal_are_asked_and_worktrees_share_it(place, tmp_path, monkeypatch):
    first, second, elsewhere = tmp_path / "walruses", tmp_path / "feature-branch", tmp_path / "other"
    first.mkdir()
    elsewhere.mkdir()
    git("init", "-q", cwd=first)
    git("commit", "-q", "--allow-empty", "-m", "begin", cwd=first)
    git("worktree", "add", "-q", str(second), cwd=first)
    git("init", "-q", cwd=elsewhere)
    monkeypatch.chdir(first)
    with commonbook.open(place, create=True) as book:
        mine = book.remember("The walrus is ours").id
        own = book.remember("The walrus is private", space="personal").id
        team = book.remember("The walrus of the team", space="team").id
        assert book.get(mine).space == "projects/walruses"
    monkeypatch.chdir(second)
    with commonbook.open(place) as book:
        assert set(ids(book.recall("walrus"))) == {mine, own} == set(ids(book.recall("")))
        assert ids(book.recall("walrus", spaces="projects/walruses")) == [mine]
    monkeypatch.chdir(elsewhere)
    with commonbook.open(place) as book:
        assert ids(book.recall("walrus")) == [own] == ids(book.recall(""))
    with commonbook.open(place, space="team", create=True) as book:
        assert set(ids(book.recall("walrus"))) == {team, own}


def test_a_named_space_means_it_alone_and_with_a_slash_all_below_it(book: Book, settle):
    made = {
        name: book.remember(f"The walrus of {n}", space=name).id
        for n, name in enumerate(("team", "team/a", "team/a/b", "teams", "personal"))
    }
    settle()

    def found(spaces) -> set[str]:
        answer = set(ids(book.recall("walrus", spaces=spaces)))
        assert answer == set(ids(book.recall("", spaces=spaces)))
        return {name for name, id_ in made.items() if id_ in answer}

    assert found("team") == {"team"}
    assert found("team/") == {"team", "team/a", "team/a/b"}
    assert found("team/a/") == {"team/a", "team/a/b"}
    assert found(["team/a", "personal"]) == {"team/a", "personal"}
    assert found(["team/", "team/a"]) == {"team", "team/a", "team/a/b"}
    assert found("nowhere") == set()
    assert found(None) == found([]) == {"personal"}


# --- what is left out unless it is asked for


@pytest.mark.promise("recall.ended")
def test_superseded_memories_are_left_out_unless_asked_for_and_marked_then(book: Book, settle):
    old = book.remember("The walrus weighs 800").id
    settle()
    new = book.remember("The walrus weighs 900", replaces=old).id
    settle()
    for query in ("walrus", ""):
        assert ids(book.recall(query)) == [new]
        hits = {hit.id: hit for hit in book.recall(query, include=["superseded"]).hits}
        assert (hits[old].marks, hits[old].superseded_by) == (("superseded",), new)
        assert (hits[new].marks, hits[new].superseded_by) == ((), None)
    book.delete(new)
    assert ids(book.recall("walrus")) == ids(book.recall("")) == [old]


def test_a_supersession_that_is_taken_back_brings_the_memory_back(book: Book, settle):
    old, new = book.remember("The walrus weighs 800").id, book.remember("The walrus weighs 900").id
    settle()
    book.link(new, "supersedes", old)
    assert ids(book.recall("walrus")) == [new]
    settle()
    book.unlink(new, "supersedes", old)
    assert set(ids(book.recall("walrus"))) == {old, new}


@pytest.mark.promise("recall.ended")
def test_expired_memories_are_left_out_unless_asked_for_and_marked_then(book: Book, settle):
    gone = book.remember("The walrus of today", expires="2020-01-01").id
    soon = book.remember("The walrus of tomorrow", expires="in 3 days").id
    settle()
    for query in ("walrus", ""):
        assert ids(book.recall(query)) == [soon]
        hits = {hit.id: hit.marks for hit in book.recall(query, include=["expired"]).hits}
        assert hits == {gone: ("expired",), soon: ()}
    book.edit(gone, expires=None)
    assert set(ids(book.recall("walrus"))) == {gone, soon}


def test_a_memory_that_expires_later_leaves_when_its_time_comes(book: Book, settle, monkeypatch):
    at = datetime.now(UTC) + timedelta(hours=1)
    receipt = book.remember("The walrus of this hour", expires=at)
    settle()
    assert ids(book.recall("walrus")) == [receipt.id]
    monkeypatch.setattr(SystemClock, "now", lambda _clock: at + timedelta(seconds=1))
    assert book.recall("walrus").hits == book.recall("").hits == ()


def test_notices_are_left_out_unless_asked_for(book: Book, settle):
    old = book.remember("Alice feeds it").id
    book.reflect("The walrus likes Alice", on=[old])
    book.supersede(old, by=book.remember("Bob feeds it").id, reason="the walrus changed hands")
    settle()
    for query in ("walrus", ""):
        hits = book.recall(query, spaces=["personal/"]).hits
        assert hits
        assert "notice" not in {hit.kind for hit in hits}
        everything = book.recall(query, spaces=["personal/"], include=["notices"]).hits
        assert [hit.kind for hit in everything].count("notice") == 1
        (notice,) = book.recall(query, spaces=["personal/"], kinds=["notice"], include=["notices"]).hits
        assert notice.space == "personal/_invalidations"


# --- what a hit says


def test_k_is_how_many_hits_there_are_at_most_and_when_so_many_match_exactly(book: Book, settle):
    book.remember_many([Draft(text=f"the billing of number {n}") for n in range(210)])
    settle()
    for k in (1, 7, 50, 100, 200):
        found = ids(book.recall("billing", k=k))
        assert len(found) == len(set(found)) == k


def test_a_better_answer_does_not_depend_on_k(book: Book, settle):
    book.remember_many([Draft(text=f"the billing of number {n % 9} and {n}") for n in range(60)])
    settle()
    assert book.recall("billing number 7", k=40).hits[:5] == book.recall("billing number 7", k=5).hits


def long_text(parts: int, word: str = "walrus") -> tuple[str, list[str]]:
    paragraphs = [
        f"Chapter {n} is about the {word} and about topic{n}qz. " + " ".join(f"w{n}x{m}" for m in range(70))
        for n in range(parts)
    ]
    return "\n\n".join(paragraphs), paragraphs


def test_a_long_memory_shows_the_right_passage_word_for_word(book: Book, settle):
    text, paragraphs = long_text(100)
    receipt = book.remember(text, title="The long one")
    settle()
    for n in (0, 1, 57, 99):
        (hit,) = book.recall(f"topic{n}qz").hits
        assert (hit.type, hit.id, hit.memory, hit.passage_id) == ("memory", receipt.id, receipt.id, f"{receipt.id}#{n}")
        assert hit.passage == paragraphs[n]
        assert hit.before == (paragraphs[n - 1] if n else "")
        assert hit.after == (paragraphs[n + 1] if n < 99 else "")
        assert hit.text in text
        assert hit.passage in hit.text


@pytest.mark.parametrize("between", ["\n\n", " ", "\r\n\r\n", "\n\n\n\n"])
def test_every_text_in_a_hit_stands_so_in_the_memory(book: Book, settle, between):
    text = between.join(f"Sentence {n} tells of topic{n}qz, and of this and that, not at length." for n in range(400))
    book.remember(f"  {text}\n")
    settle()
    hit = book.recall("topic200qz").hits[0]
    assert "topic200qz" in hit.passage
    assert [part in text for part in (hit.text, hit.passage, hit.before, hit.after)] == [True] * 4
    assert hit.before
    assert hit.after


def test_a_memory_is_one_hit_however_many_of_its_passages_match(book: Book, settle):
    weaker = "In {} they saw a walrus, among many other things, on a long journey."
    others = [book.remember(weaker.format(n)).id for n in range(4)]
    receipt = book.remember(long_text(150)[0])
    settle()
    assert sorted(ids(book.recall("walrus"))) == sorted([receipt.id, *others])


def test_a_long_memory_whose_every_passage_matches_crowds_nobody_out(book: Book, settle):
    short = book.remember("A walrus eats herring").id
    passage = "The walrus eats herring. " + "walrus herring " * 35
    long = book.remember("\n\n".join([passage] * 120), title="walrus herring").id
    settle()
    assert set(ids(book.recall("walrus herring"))) == {short, long}


def test_a_message_of_an_episode_is_a_hit_of_its_own(book: Book, settle):
    talk = [
        turn(3, "Shall we feed the animals?"),
        turn(4, "The walrus wants herring.\n\nA lot of it.", author="agent:keeper", role="assistant"),
        turn(5, ""),
        turn(6, "Then buy some."),
    ]
    receipt = book.remember(render(talk, introduction="At the zoo"), kind="episode", title="Zoo talk", tags=["zoo"])
    settle()
    hit = book.recall("walrus herring").hits[0]
    assert (hit.type, hit.id, hit.passage_id, hit.memory) == ("message", talk[1].id, talk[1].id, receipt.id)
    assert (hit.seq, hit.author, hit.occurred, hit.kind) == (4, "agent:keeper", talk[1].time, "episode")
    assert (hit.text, hit.passage) == (talk[1].text, talk[1].text)
    assert hit.before == "user:alice: Shall we feed the animals?"
    assert hit.after.startswith("user:alice:")
    assert (hit.title, hit.tags, hit.space) == ("Zoo talk", ("zoo",), "personal")
    first = next(one for one in book.recall("feed the animals").hits if one.id == talk[0].id)
    assert first.before.strip() == "At the zoo"
    assert book.recall("buy some food").hits[0].after == ""


def test_messages_of_one_episode_are_several_hits_and_its_introduction_is_one(book: Book, settle):
    talk = [turn(n, f"The walrus said {n}") for n in range(3)]
    receipt = book.remember(render(talk, introduction="All about a walrus"), kind="episode", title="Talk")
    settle()
    hits = book.recall("walrus").hits
    assert {(hit.type, hit.id) for hit in hits} == {("memory", receipt.id), *(("message", one.id) for one in talk)}
    assert [hit.passage.strip() for hit in hits if hit.type == "memory"] == ["All about a walrus"]


def test_a_speaker_who_is_named_is_preferred(book: Book, settle):
    alice = turn(1, "I like herring best.", author="user:alice")
    bob = turn(21, "I like herring best.", author="user:bob")
    book.remember_many([Draft(text=render([one]), kind="episode", title=one.author) for one in (alice, bob)])
    settle()
    assert book.recall("What does Alice like best?").hits[0].id == alice.id
    assert book.recall("What does Bob like best?").hits[0].id == bob.id


def test_a_question_for_a_name_prefers_what_has_one(book: Book, settle):
    named = turn(1, "My herring comes from Bergen on most days.", author="user:alice")
    plain = turn(21, "My herring comes from bergen on most days.", author="user:bob")
    # Of equal scores the newest comes first.
    book.remember(render([named]), kind="episode", title="older")
    book.remember(render([plain]), kind="episode", title="newer")
    settle()
    where, other = book.recall("Where is the herring from?").hits, book.recall("Is there herring?").hits
    assert [hit.id for hit in where] == [named.id, plain.id]
    assert [hit.parts["told_name"] > 0 for hit in where] == [True, False]
    assert {hit.parts["told_name"] for hit in other} == {0}


@pytest.mark.parametrize(
    "heading",
    [
        "### Ann (user) · 2026-05-07T10:00:00.000000Z · 1 · -1",
        "### Ann (user) · 2026-05-07T10:00:00.000000Z · 1 · 1_0",
        "### Ann (user) · 2026-05-07T10:00:00.000000Z · 1 · +7",
        "### Ann (user) · 2026-05-07T10:00:00.000000Z · 99999999999999999999 · m1",
        "### Ann (user) · 9999-12-31T23:59:59.999999Z · 1 · m1",
        "### Ann (user) · 0001-01-01T00:00:00.000000Z · 1 · m1",
        "### (user) · 2026-05-07T10:00:00.000000Z · 1 · " + "m" * 5000,
    ],
    ids=["negative id", "underscored id", "signed id", "endless seq", "last moment", "first moment", "long id"],
)
def test_no_transcript_that_a_person_wrote_keeps_others_from_being_found(place, monkeypatch, heading):
    monkeypatch.setenv("COMMONBOOK_ZONE", "America/New_York")
    with commonbook.open(place, create=True) as book:
        receipt = book.remember("The walrus is fed")
        book.remember(f"{heading}\n\nThe walrus is hungry", kind="episode", title="odd")
        for query in ("walrus", "walrus in May 2026"):
            found = book.recall(query).hits
            assert receipt.id in [hit.id for hit in found]
            assert any("The walrus is hungry" in hit.passage for hit in found)
        book.reindex(anew=True)
        assert len(book.recall("walrus").hits) == 2


def test_a_hit_says_where_it_comes_from(book: Book):
    more: dict[str, Any] = {"tags": ["a", "b"], "kind": "fact", "occurred": "2020-01-01", "space": "team/x"}
    receipt = book.remember("Alice owns the billing service.", title="Billing", **more)
    (hit,) = book.recall("billing", spaces="team/x").hits
    memory = book.get(receipt.id)
    assert (hit.title, hit.tags, hit.kind, hit.space) == ("Billing", ("a", "b"), "fact", "team/x")
    assert (hit.created, hit.occurred, hit.author) == (memory.created, memory.occurred, memory.author)
    assert hit.path == receipt.path
    assert hit.revision == 1
    assert (hit.session, hit.seq, hit.freshness, hit.suspect) == (None, None, None, False)


def test_every_hit_has_a_path_a_session_and_a_space_or_none(book: Book):
    receipt = book.remember("The otter eats fish")
    book.append("s", ["The otter sleeps"])
    hits = {hit.type: hit for hit in book.recall("otter").hits}
    memory, message = hits["memory"], hits["message"]
    assert (memory.path, memory.session, memory.space) == (receipt.path, None, "personal")
    assert (message.path, message.session, message.space) == (None, "s", "personal")
    (episode,) = book.close_session("s").episodes
    (message,) = [hit for hit in book.recall("otter").hits if hit.type == "message"]
    assert (message.path, message.session, message.space) == (book.get(episode).path, "s", "personal")


def test_an_explanation_adds_up_and_names_words_and_steps(book: Book, settle):
    book.remember("Alice pays the invoices. Paying is what she does.")
    book.remember("Bob walks the dog")
    settle()
    found = book.recall("Who pays Alice?", explain=True, min_confidence=0)
    for hit in found.hits:
        assert hit.score == pytest.approx(sum(hit.parts.values()), abs=1e-9)
        assert tuple(hit.parts) == scoring.PARTS
    assert set(found.hits[0].matched) == {"alice", "pays", "paying"}
    assert {"search", "rank"} <= set(found.steps)
    assert sum(found.steps.values()) <= found.took_ms + 1
    plain = book.recall("Who pays Alice?", min_confidence=0)
    assert (dict(plain.steps), plain.hits[0].matched) == ({}, found.hits[0].matched)
    assert [(hit.id, hit.score) for hit in plain.hits] == [(hit.id, hit.score) for hit in found.hits]


# --- a budget


def room(hit: Hit) -> int:
    """Return how many tokens a hit takes at least."""
    return sum(len(part) for part in (hit.title, hit.before, hit.passage, hit.after)) // 4


@pytest.mark.parametrize("query", ["walrus", ""])
def test_a_budget_is_never_exceeded_and_a_shorter_hit_takes_the_place_of_one_too_long(book: Book, query):
    short = book.remember("A walrus, some fish and much ice.", title="short").id
    long = book.remember("walrus " * 100, title="long").id
    every = book.recall(query, budget_tokens=100_000).hits
    assert [hit.id for hit in every] == [long, short]
    for budget in (30, 100, 150, 200, 300, 1000):
        hits = book.recall(query, budget_tokens=budget).hits
        assert sum(room(hit) for hit in hits) <= budget
        assert [hit for hit in every if hit in hits] == list(hits)
    for budget in (1, 10):
        (cut,) = book.recall(query, budget_tokens=budget).hits
        assert (cut.id, room(cut) < 30) == (long, True)
    assert ids(book.recall(query, budget_tokens=100)) == [short]
    assert ids(book.recall(query, budget_tokens=1000)) == [long, short]


def test_a_character_of_chinese_counts_as_a_token(book: Book):
    book.remember("海象" * 60)
    (cut,), (whole,) = (book.recall("海象", budget_tokens=budget).hits for budget in (100, 400))
    assert len(cut.passage) < 100 < len(whole.passage)


# --- whatever is asked

BAD: list[tuple[dict[str, Any], type[CommonbookError]]] = [
    ({"k": 0}, BadInput),
    ({"k": -1}, BadInput),
    ({"k": 10**9}, BadInput),
    ({"kinds": ["walrus"]}, BadInput),
    ({"kinds": "note"}, BadInput),
    ({"tags": "walrus"}, BadInput),
    ({"tags": [""]}, BadInput),
    ({"tags": ["a,b"]}, BadInput),
    ({"tags": ["\ud800"]}, BadText),
    ({"include": ["everything"]}, BadInput),
    ({"include": "expired"}, BadInput),
    ({"since": "some day"}, BadTime),
    ({"until": "2026-13-45"}, BadTime),
    ({"as_of": datetime(2026, 1, 1)}, BadTime),  # noqa: DTZ001
    ({"since": 5}, BadTime),
    ({"min_confidence": float("nan")}, BadInput),
    ({"min_confidence": float("inf")}, BadInput),
    ({"min_confidence": -1}, BadInput),
    ({"budget_tokens": 0}, BadInput),
    ({"budget_tokens": -5}, BadInput),
    ({"spaces": ""}, BadSpaceName),
    ({"spaces": "../up"}, BadSpaceName),
    ({"spaces": ["personal", "Not A Name"]}, BadSpaceName),
    ({"spaces": "\ud800"}, BadSpaceName),
    ({"query": "lone \ud800 surrogate"}, BadInput),
]
WRONG_TYPES: list[dict[str, Any]] = [
    {"k": "5"},
    {"k": None},
    {"tags": [1]},
    {"kinds": [1]},
    {"include": [1]},
    {"query": None},
    {"query": b"walrus"},
    {"spaces": [1]},
    {"min_confidence": "high"},
    {"budget_tokens": "many"},
]


def test_bad_input_is_refused_with_a_fix_and_changes_nothing(book: Book, engine: str):
    book.remember("The walrus is fed")
    before = _state(book, engine)
    for arguments, error in BAD:
        for query in ("walrus", ""):
            with pytest.raises(error) as refused:
                book.recall(**{"query": query, **arguments})
            assert refused.value.fix, ascii(arguments)
    assert _state(book, engine) == before
    assert len(book.recall("walrus").hits) == 1


def test_a_value_of_another_type_is_refused_as_bad_input(book: Book):
    taken = []
    for arguments in WRONG_TYPES:
        try:
            book.recall(**{"query": "walrus", **arguments})
            taken.append(f"{arguments}: taken")
        except BadInput:
            pass
        except (TypeError, AttributeError) as error:
            taken.append(f"{arguments}: {error!r}")
    assert taken == []


@pytest.mark.parametrize(
    "query",
    [
        "walrus\0walrus",
        "\u202ewalrus\u202c",
        "walrus" + "\u0301" * 5000,
        "🎉 walrus 👩‍👩‍👧‍👦",
        "walrus AND (OR NOT \" ' * ? : ^ ~ [ ] { }",
        "%s {0} \\x00 <script>walrus</script> --; DROP TABLE memory",
        "\r\n\twalrus\x7f\x1b[31m",
        "\ufffe\uffff walrus",
    ],
    ids=["NUL", "right to left", "accents", "emoji", "operators", "markup", "control", "no characters"],
)
def test_any_text_is_a_question(book: Book, query):
    receipt = book.remember("The walrus is fed")
    book.remember("A pilot flies over the mountains")
    assert set(ids(book.recall(query))) <= {receipt.id}
    if "\u0301" not in query:
        assert ids(book.recall(query, min_confidence=0))[0] == receipt.id


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "walrus " * 150_000,
        "x" * 1_000_000,
        " ".join(f"word{n}" for n in range(10_000)),
        "海象" * 300_000,
        "1 May " * 170_000,
    ],
    ids=["a word again and again", "one word", "ten thousand words", "no spaces", "dates"],
)
def test_a_very_long_question_is_answered_in_good_time(book: Book, query):
    book.remember("The walrus is fed, 海象, word7")
    before = process_time()
    assert len(book.recall(query).hits) <= 1
    assert process_time() - before < 10


def test_a_long_question_is_about_what_stands_at_its_ends(book: Book):
    receipt = book.remember("The walrus is fed")
    filler = " ".join(f"padding{n}" for n in range(3000))
    assert ids(book.recall(f"Is the walrus fed? {filler}", min_confidence=0)) == [receipt.id]
    assert ids(book.recall(f"{filler} Is the walrus fed?", min_confidence=0)) == [receipt.id]


# --- threads, forks and the end


def test_eight_threads_recall_and_remember_at_once_and_each_finds_what_it_wrote(book: Book):
    wrong: list[object] = []
    begin = threading.Barrier(8)

    def work(who: int) -> None:
        try:
            begin.wait(60)
            for n in range(6):
                id_ = book.remember(f"The walrus{who}x{n} swims").id
                if ids(book.recall(f"walrus{who}x{n}"))[:1] != [id_]:
                    wrong.append((who, n))
                if n % 3 == 2:
                    book.reindex()
                book.delete(id_)
                if id_ in ids(book.recall(f"walrus{who}x{n}")):
                    wrong.append((who, n, "deleted"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_a_process_that_forks_after_a_recall_recalls_on_both_sides(book: Book):
    before = book.remember("The walrus of before").id
    assert ids(book.recall("walrus")) == [before]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        try:
            mine = book.remember("The walrus of the child").id
            os.write(write, " ".join([mine, *ids(book.recall("walrus"))]).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    mine, *found = os.read(read, 4096).decode().split()
    os.close(read)
    assert set(found) == {before, mine}
    assert set(ids(book.recall("walrus"))) == {before, mine}


@pytest.mark.slow
def test_a_process_that_forks_while_threads_recall_recalls_on_both_sides(book: Book, monkeypatch):
    book.remember("The walrus is fed")
    look = MappedIndex._stamp

    def slowly(index: MappedIndex) -> object:
        threading.Event().wait(0.02)
        return look(index)

    monkeypatch.setattr(MappedIndex, "_stamp", slowly)
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            book.recall("walrus")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    ended = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            # The runner's own alarm would go on with the tests in this child.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            try:
                os._exit(0 if len(book.recall("walrus").hits) == 1 else 1)
            finally:
                os._exit(2)
        ended.append(os.waitpid(child, 0)[1])
        if ended[-1]:
            break
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not any(ended)


def test_a_closed_book_answers_nothing_more_but_says_why(book: Book):
    book.remember("The walrus is fed")
    assert book.recall("walrus").hits
    book.close()
    for query in ("walrus", ""):
        with pytest.raises(CommonbookError):
            book.recall(query)


# --- receipts


def test_a_receipt_says_that_the_memory_is_searchable(book: Book):
    assert book.remember("The billing service belongs to Alice Miller.").searchable


def test_a_write_is_acknowledged_while_somebody_else_holds_the_index(book: Book, open_book: OpenBook):
    other = open_book()
    other.reindex()
    book.remember_many([Draft(text=f"filler {n}") for n in range(140)])
    acknowledged = threading.Event()

    def remember() -> None:
        book.remember("The walrus is fed")
        acknowledged.set()

    writer = threading.Thread(target=remember)
    recalls: Any = other._recall_service
    with recalls._index.writing(wait=60):
        writer.start()
        in_time = acknowledged.wait(60)
    writer.join(60)
    assert in_time


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Amsterdam"])
def test_every_moment_is_matched_by_its_day_in_the_homes_zone(zone):
    edges = [datetime(year, month, 1, tzinfo=UTC) for year in (1, 1900, 1937, 2026, 9999) for month in (1, 5, 12)]
    shifts = [timedelta(hours=hours, minutes=1) for hours in range(-40, 41, 5)]
    moments = [edge + shift for edge in edges for shift in shifts if edge.year > 1 or edge.month > 1]
    moments += [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]
    times = np.array([indexed_passages.micros(moment) for moment in moments])
    parts: Any = SimpleNamespace(zone=ZoneInfo(zone))
    for question in ("in May 1937", "in December", "on the 1st of January 2026", "in 2026"):
        named = dates_in_text.named_dates(question)
        assert named
        one_by_one = [named.match(recaller._local_day(parts, at)) for at in times.tolist()]
        assert recaller.match_days(parts, named, times).tolist() == one_by_one
