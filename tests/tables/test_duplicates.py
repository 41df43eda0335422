"""The fingerprints of near duplicates follow every change of a memory, and none is left behind."""

from __future__ import annotations

from commonbook import Book
from commonbook.model.ids import id_bytes, id_of_bytes
from commonbook.tables import duplicates

ALICE = "The billing service belongs to Alice Miller."
BOB = "The walrus at the northern harbour eats herring in the evening."


REPORT = "".join(f"On day {day} the lock keeper counted {day * 7} herons at the weir. " for day in range(30))


def near(book: Book, text: str, space: str = "notes") -> tuple[str, ...]:
    """Return the near duplicates of a text in a space, as a receipt would name them."""
    with book._engines.db.reading() as tx:
        found = next(one for one in book.spaces() if one.name == space)
        return duplicates.find_near_texts(tx, found, text)


def rows(book: Book) -> list[tuple[int, str]]:
    with book._engines.db.reading() as tx:
        return sorted((mark, id_of_bytes(memory)) for mark, memory in tx.rows("SELECT mark, memory FROM memory_mark"))


def test_fingerprints_follow_edits_moves_deletions_and_ways_back(book: Book):
    memory = book.remember(ALICE, space="notes").id
    book.remember("Something else entirely stands in the other space.", space="team")
    others = [row for row in rows(book) if row[1] != memory]
    assert near(book, ALICE) == (memory,)
    book.edit(memory, text=BOB)
    assert (near(book, ALICE), near(book, BOB)) == ((), (memory,))
    book.edit(memory, tags=["birds"])
    assert near(book, BOB) == (memory,)
    book.move(memory, "team")
    assert (near(book, BOB), near(book, BOB, "team")) == ((), (memory,))
    book.delete(memory)
    assert near(book, BOB, "team") == ()
    assert rows(book) == others, "a deleted memory has no fingerprints"
    book.undelete(memory)
    assert near(book, BOB, "team") == (memory,)
    assert len(rows(book)) == len(others) + 4


def test_a_rebuild_makes_the_same_fingerprints_and_removes_those_of_nothing(book: Book):
    memory = book.remember(ALICE, space="notes").id
    book.remember(BOB, space="team")
    before = rows(book)
    strange = next(mark for mark, owner in before if owner == memory) + 1
    book._engines.db.write(lambda tx: tx.run("DELETE FROM memory_mark WHERE memory = :id", id=id_bytes(memory)))
    book._engines.db.write(
        lambda tx: tx.run(
            "INSERT INTO memory_mark (space, mark, memory) SELECT space, :mark, :nobody FROM place WHERE id = :id",
            mark=strange,
            nobody=bytes(16),
            id=memory,
        )
    )
    book.rebuild()
    assert rows(book) == before


def test_duplicates_of_a_long_text_are_found(book: Book):
    memory = book.remember(REPORT, space="notes").id
    assert near(book, REPORT + "That was all.") == (memory,)
    assert book.remember(REPORT, space="notes").duplicate_of == memory


def test_of_several_memories_with_one_text_the_oldest_is_named(book: Book):
    first, *_ = [book.remember(ALICE, space=space).id for space in ("notes", "notes", "team")]
    assert book.remember(ALICE, space="notes").duplicate_of == first
    book.delete(first)
    second = book.remember(ALICE, space="notes")
    assert second.duplicate_of not in {None, first}
