"""Links and tags in texts, `[[like this]]` and #this: they count as long as they stand there, on every way in."""

from __future__ import annotations

import pytest

import commonbook
from commonbook.errors import BadInput
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from tests.interfaces.cli.test_cli import cli
from tests.support.transfers import write

__all__ = ["cli"]


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


@pytest.mark.promise("links.text")
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


@pytest.mark.promise("links.paths")
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


@pytest.mark.promise("links.text")
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


@pytest.mark.promise("links.text")
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


# --- aliases


ALIASES = {
    "brackets.md": "---\naliases: [Yard, \"Plot, large\", 'Bob''s bed'] # mine\n---\nx\n",
    "lines.md": '---\r\naliases:\r\n- Shed\r\n- "Tool house" # old\r\n- Hut\r\ntags: [a]\r\n---\r\nx\r\n',
    "indented.md": "---\naliases:\n  - Gate\n\n  - Fence\nother: x\n---\nx\n",
    "one.md": "---\nalias: Pond, Lake\npermalink: water/pond-of-mine\n---\nx\n",
    "none.md": "---\naliases:\nother: Yard\nnested:\n  aliases: [Nested]\n---\naliases: [Text]\n",
}


def meant(book: Book, *names: str) -> list[str]:
    """Return the paths of the memories that links by these names lead to, each name in a note of its own."""
    notes = [book.remember(f"see [[{name}]]", space="personal").id for name in names]
    links = [[link for link in book.links(id_) if link.source == id_] for id_ in notes]
    return [book.get(found[0].target).path if found else "" for found in links]


def test_aliases_in_front_matter_are_names_of_a_note(book, tmp_path):
    book.import_folder(str(write(tmp_path / "vault", ALIASES)), space="personal")
    titles = {memory.title: memory.path for memory in book.list(limit=100).items}
    names = ("yard", "Plot, large", "Bob's bed", "Shed", "tool house", "Fence", "Pond", "Lake", "water/pond-of-mine")
    found = ("brackets", "brackets", "brackets", "lines", "lines", "indented", "one", "one", "one")
    assert meant(book, *names) == [titles[title] for title in found]
    assert meant(book, "Nested", "Text", "mine", "a", "pond-of-mine") == [""] * 5
    assert all(memory.tags in ((), ("a",)) for memory in book.list(limit=100).items)


@pytest.mark.promise("links.aliases")
def test_an_alias_leads_both_ways_and_ends_with_its_line(vault, home):
    write(home, ALIASES)
    write(home, {"linking.md": "my [[Yard]] and [[water/pond-of-mine]]\n"})
    vault.sync()
    assert paths(vault, "linking.md") == ["brackets.md", "one.md"]
    assert len(mentioning(vault, by_path(vault)["brackets.md"])) == 1
    assert len(mentioning(vault, by_path(vault)["one.md"])) == 1
    text = (home / "brackets.md").read_text()
    assert "aliases: [Yard, \"Plot, large\", 'Bob''s bed'] # mine\n" in text
    (home / "brackets.md").write_text(text.replace("[Yard, ", "["))
    (home / "lines.md").write_text((home / "lines.md").read_text().replace("- Hut", "- Yard"))
    vault.sync()
    assert paths(vault, "linking.md") == ["lines.md", "one.md"]
    vault.rebuild()
    assert paths(vault, "linking.md") == ["lines.md", "one.md"]


@pytest.mark.promise("links.aliases")
def test_the_name_of_a_file_counts_before_a_title_and_a_title_before_an_alias(vault, home):
    notes = {"B/one.md": "---\naliases: Fern\n---\nx\n", "A/two.md": "---\ntitle: fern\n---\nx\n"}
    write(home, {**notes, "B/linking.md": "go to [[Fern]]\n"})
    vault.sync()
    assert paths(vault, "B/linking.md") == ["A/two.md"]
    write(home, {"C/D/fern.md": "x\n"})
    vault.sync()
    assert paths(vault, "B/linking.md") == ["C/D/fern.md"]


@pytest.mark.promise("links.aliases")
def test_aliases_come_along_in_exports_and_in_another_book(book, folder, tmp_path):
    book.import_folder(str(write(tmp_path / "vault", ALIASES)), space="personal")
    book.export(str(tmp_path / "out"))
    with commonbook.open(tmp_path / "other", create=True) as other:
        other.import_folder(str(tmp_path / "out"))
        assert meant(other, "Yard") == [titled_path(other, "brackets")]
    book.rebuild()
    assert meant(book, "Yard") == [titled_path(book, "brackets")]


def titled_path(book: Book, title: str) -> str:
    (path,) = [memory.path for memory in book.list(limit=100).items if memory.title == title]
    return path


MARKDOWN_LINKS = {
    "tables/orders.md": (
        "[a](customers.md), [b](./customers.md#keys 'title'), [c](</My plans/next year.md>),\n"
        "[d](../My%20plans/old.md),\n"
        "[e][ref] and ![f](/tables/parts(1).md).\n\n[ref]: ../start.md\n\n"
        "Not `[g](../code.md)`, [h](https://example.com/code.md), [i](//host/code.md), [j](mailto:code.md),\n"
        "[k](code.txt), \\[l\\](../code.md), [m](#here) or [^1].\n\n[^1]: ../code.md\n"
    ),
    "tables/customers.md": "customers of the shop",
    "other/customers.md": "customers of another shop",
    "My plans/next year.md": "next",
    "My plans/old.md": "old",
    "tables/parts(1).md": "parts",
    "start.md": "start",
    "code.md": "code",
}


@pytest.mark.promise("links.paths")
def test_markdown_links_to_paths_of_notes_count_as_long_as_they_stand_there(book, tmp_path):
    book.import_folder(str(write(tmp_path / "vault", MARKDOWN_LINKS)), space="shop")
    notes = {memory.title: memory for memory in book.list(limit=50).items}
    orders = notes["orders"]
    assert sorted(mentioned(book, orders.id)) == ["customers", "next year", "old", "parts(1)", "start"]
    assert mentioning(book, notes["start"].id) == {"orders"}
    (shop,) = [memory for memory in book.list(limit=50).items if memory.text == "customers of the shop"]
    assert mentioning(book, shop.id) == {"orders"}
    book.edit(orders.id, text="[a](./start.md) and [b](/start.md)")
    assert mentioned(book, orders.id) == ["start"]
    book.edit(orders.id, text="[a](./start.md)")
    assert mentioned(book, orders.id) == []
    assert mentioning(book, notes["start"].id) == set()


# --- tags that stand in the text


@pytest.mark.promise("writes.tags")
def test_an_edit_of_tags_names_those_that_stand_in_the_text(book: Book):
    receipt = book.remember("Water the #Garden #plan", tags=["outdoor", "plan"])
    assert book.edit(receipt.id, tags=[]).tags_in_text == ("Garden", "plan")
    assert book.get(receipt.id).tags == ("Garden", "plan")
    assert book.edit(receipt.id, tags=["garden"]).tags_in_text == ("plan",)
    assert book.edit(receipt.id, text="Water it", tags=[]).tags_in_text == ()
    assert book.edit(receipt.id, text="Water the #Garden").tags_in_text == ()


def test_a_tag_of_the_text_that_comes_back_with_the_others_is_not_written_a_second_time(book: Book, folder):
    receipt = book.remember("Water the #Garden", tags=["outdoor"])
    book.edit(receipt.id, tags=[*book.get(receipt.id).tags, "home"])
    assert "tags: [outdoor, home]" in (folder() / receipt.path).read_text()
    book.edit(receipt.id, text="Water the beds")
    assert book.get(receipt.id).tags == ("outdoor", "home")


def test_the_command_line_says_that_a_removed_tag_stands_in_the_text(cli):
    memory = cli("remember", "Water the #Garden", "--tag", "outdoor", "--json").json["id"]
    removed = cli("edit", memory, "--remove-tag", "garden")
    assert "#Garden stands in the text" in removed.out + removed.err
    assert cli("show", memory, "--json").json["tags"] == ["outdoor", "Garden"]
    assert cli("edit", memory, "--remove-tag", "garden", "--json").json["tags_in_text"] == ["Garden"]
    assert cli("edit", memory, "Water the beds", "--remove-tag", "garden", "--json").json["tags_in_text"] == []
