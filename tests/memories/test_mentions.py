"""Links and tags in texts, `[[like this]]` and #this: they count as long as they stand there, on every way in."""

from __future__ import annotations

import pytest

import commonbook
from commonbook.book.book import Book
from commonbook.errors import BadInput
from commonbook.model.memory import Filter
from tests.support.transfers import write


def mentioned(book: Book, memory_id: str) -> list[str]:
    """Return the titles of the memories that a text links to."""
    links = [link for link in book.links(memory_id) if link.relation == "mentions" and link.source == memory_id]
    return [book.get(link.target).title for link in links]


def mentioning(book: Book, memory_id: str) -> set[str]:
    links = [link for link in book.links(memory_id) if link.relation == "mentions" and link.target == memory_id]
    return {book.get(link.source).title for link in links}


def tagged(book: Book, tag: str) -> set[str]:
    return {memory.title for memory in book.list(Filter(tags=(tag,))).items}


def test_links_in_a_text_lead_to_memories_by_title_and_back(book):
    garden = book.remember("Beds and paths", title="The garden")
    note = book.remember("Water [[the Garden]], [[the garden#Beds|beds]] and [[nowhere]]; not `[[The garden]]`")
    assert mentioned(book, note.id) == ["The garden"]
    assert mentioning(book, garden.id) == {book.get(note.id).title}
    assert book.get(note.id).links == ()


def test_a_link_that_is_removed_is_gone_and_one_that_is_added_counts(book):
    garden = book.remember("Beds", title="Garden")
    shed = book.remember("Tools", title="Shed")
    note = book.remember("See [[Garden]]")
    book.edit(note.id, text="See [[Shed]]")
    assert mentioned(book, note.id) == ["Shed"]
    assert mentioning(book, garden.id) == set()
    assert mentioning(book, shed.id) == {"See Shed"}


def test_a_link_finds_what_is_written_later_and_loses_what_is_renamed_or_deleted(book):
    note = book.remember("See [[Garden]]")
    assert mentioned(book, note.id) == []
    garden = book.remember("Beds", title="Garden")
    assert mentioned(book, note.id) == ["Garden"]
    book.edit(garden.id, title="Yard")
    assert mentioned(book, note.id) == []
    book.edit(garden.id, title="garden")
    assert mentioned(book, note.id) == ["garden"]
    book.delete(garden.id)
    assert mentioned(book, note.id) == []


def test_a_link_means_a_memory_of_its_own_space(book):
    book.remember("Secret beds", title="Garden", space="vault")
    note = book.remember("See [[Garden]]", space="team")
    assert mentioned(book, note.id) == []
    here = book.remember("Beds", title="Garden", space="team")
    book.grant("user:bob", "team", "reader")
    assert mentioned(book.acting_as("user:bob"), note.id) == ["Garden"]
    book.move(here.id, "vault")
    assert mentioned(book, note.id) == []


def test_nobody_sets_or_removes_a_mention_but_in_the_text(book):
    garden, note = book.remember("Beds", title="Garden"), book.remember("See [[Garden]]")
    with pytest.raises(BadInput):
        book.link(note.id, "mentions", garden.id)
    with pytest.raises(BadInput):
        book.unlink(note.id, "mentions", garden.id)
    with pytest.raises(BadInput):
        book.remember("x", links=[("mentions", garden.id)])
    assert mentioned(book, note.id) == ["Garden"]


def test_tags_in_a_text_are_tags_as_long_as_they_stand_there(book):
    note = book.remember("Plant beans #garden/spring #Todo, not #42 nor `#code`", tags=["todo", "home"])
    assert book.get(note.id).tags == ("todo", "home", "garden/spring")
    title = book.get(note.id).title
    assert tagged(book, "garden/spring") == {title}
    assert [hit.id for hit in book.recall("beans", tags=["garden/spring"]).hits] == [note.id]
    book.edit(note.id, text="Plant beans")
    assert book.get(note.id).tags == ("todo", "home")
    assert tagged(book, "garden/spring") == set()
    assert book.recall("beans", tags=["garden/spring"]).hits == ()
    book.edit(note.id, text="Plant beans #garden/spring", tags=[])
    assert book.get(note.id).tags == ("garden/spring",)


def test_messages_have_neither_tags_nor_links(book):
    book.remember("Beds", title="Garden")
    book.append("s", ["see [[Garden]] #todo"])
    (episode,) = book.settle("s").episodes
    assert book.get(episode).tags == ()
    assert mentioned(book, episode) == []


def test_a_rebuild_derives_the_same(book):
    book.remember("Beds", title="Garden")
    note = book.remember("See [[Garden]] #todo")
    book.rebuild()
    assert mentioned(book, note.id) == ["Garden"]
    assert tagged(book, "todo") == {book.get(note.id).title}


# --- files


VAULT = {
    "Home.md": "Start at [[Projects/Garden|the garden]], [[todo]] or [[Old/Garden]]. #Start\n",
    "Projects/Garden.md": "---\nup: '[[Home]]'\n---\n![[todo]] and ![[picture.png]]\n",
    "Old/Garden.md": "Nothing\n",
    "todo.md": "Water the [[Garden]] and [[./Home]]\n",
}


@pytest.fixture
def vault(home):
    write(home, VAULT)
    with commonbook.open(home, create=True) as book:
        yield book


def by_path(book: Book) -> dict[str, str]:
    return {memory.path: memory.id for memory in book.list(limit=100).items}


def paths(book: Book, path: str) -> list[str]:
    id_ = by_path(book)[path]
    return [
        book.get(link.target).path for link in book.links(id_) if link.relation == "mentions" and link.source == id_
    ]


def test_links_between_files_mean_the_nearest_path(vault):
    assert paths(vault, "Home.md") == ["Projects/Garden.md", "todo.md", "Old/Garden.md"]
    assert paths(vault, "Projects/Garden.md") == ["Home.md", "todo.md"]
    assert paths(vault, "todo.md") == ["Old/Garden.md", "Home.md"]


def test_an_edit_by_hand_and_a_renamed_file_count(vault, home):
    (home / "todo.md").write_text((home / "todo.md").read_text().replace("[[Garden]]", "garden #later"))
    vault.sync()
    assert paths(vault, "todo.md") == ["Home.md"]
    assert tagged(vault, "later") == {vault.get(by_path(vault)["todo.md"]).title}
    (home / "Old" / "Garden.md").rename(home / "Old" / "Shed.md")
    (home / "todo.md").write_text((home / "todo.md").read_text() + "[[shed]]\n")
    vault.sync()
    assert "Old/Shed.md" in paths(vault, "todo.md")


def test_a_file_that_the_book_named_is_found_by_its_name(vault, home):
    made = vault.remember("Alice owns billing", space="personal")
    name = vault.get(made.id).path.rpartition("/")[2].removesuffix(".md")
    write(home, {"linking.md": f"ask [[{name}|her]]\n"})
    vault.sync()
    assert paths(vault, "linking.md") == [vault.get(made.id).path]
    assert len(mentioning(vault, made.id)) == 1
