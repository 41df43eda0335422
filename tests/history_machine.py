"""Programs that use one home through two books, for random histories: each verb beside what the model says of it.

`tests/test_histories.py` adds what people do to the files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import commonplace
from commonplace.book import Commonplace
from commonplace.errors import (
    BadInput,
    BadText,
    CommonplaceError,
    FileInTheWay,
    KeyConflict,
    NotFound,
    SpaceExists,
    VersionConflict,
)
from commonplace.model import Draft, Receipt
from commonplace.paths import below
from commonplace.titles import title_from
from tests.histories import KINDS, TAGS, Entry, Model, Says, compare, read_disk, reader

SPACES: Final = ("personal", "a", "b", "a/c")
TEXTS: Final = (
    "apple pie",
    "plum jam\n\nwith cream",
    "a\r\nb\r\n",
    "",
    "# Heading\n\ntext\n\n",
    "\n\nlead",
    "---\nid: x\n---\n",
)
TITLES: Final = ("Title", "Another: one", "yes", "Ünï 🎉")
RELATIONS: Final = ("related_to", "supersedes", "derived_from")
MANY: Final = 9
"""Never so many files that their vanishing would be kept back for a person to agree."""

texts = st.sampled_from(TEXTS)
titles = st.sampled_from(TITLES)
spaces = st.sampled_from(SPACES)
kinds = st.sampled_from(KINDS)
tags = st.lists(st.sampled_from(TAGS), max_size=2, unique=True).map(tuple)
which = st.integers(0, MANY - 1)
somebody = st.integers(0, 1)
relations = st.sampled_from(RELATIONS)
moments = st.sampled_from((None, "2020-02-03", "1999-12-31T12:00:00Z"))
numbers = st.sampled_from((None, 0.25, 1.0))
drafts: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    text=texts,
    title=st.none() | titles,
    space=spaces,
    kind=kinds,
    tags=tags,
    importance=numbers,
    occurred=moments,
    key=st.none() | st.sampled_from(("k1", "k2")),
)
changes: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "text": texts,
        "title": st.none() | titles,
        "kind": kinds,
        "tags": tags,
        "importance": numbers,
        "occurred": moments,
    },
)


def moment(said: str | None) -> datetime | None:
    return None if said is None else datetime.fromisoformat(said).replace(tzinfo=UTC)


class Programs(RuleBasedStateMachine):
    """What programs do to one home, and how it is compared with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="commonplace-histories-"))
        self.home = self.root / "home"
        self.books: dict[int, Commonplace] = {0: commonplace.open(self.home)}
        self.model = Model(reader(self.books[0]))
        self.seen_paths: list[str] = []
        self.kept: dict[bytes, bytes] = {}
        self.taken_away: list[bytes] = []
        self.sealed: set[str] = set()

    # --- the means of the machine

    def disk(self) -> dict[str, bytes]:
        found = read_disk(self.home)
        self.seen_paths = list(dict.fromkeys([*self.seen_paths, *sorted(found)]))
        return found

    def pending(self) -> bool:
        return self.disk() != self.model.agreed

    def looked(self, book: Commonplace, before: dict[str, bytes]) -> None:
        """After a look: the model looks as well, and everything must be the same."""
        self.model.look(before, self.disk())
        self.model.learn_what_moving_counted(book)
        self.compare(book)

    def book(self, by: int) -> Commonplace:
        self.steer_clear()
        if by not in self.books:
            before = self.disk()
            self.books[by] = commonplace.open(self.home)
            self.looked(self.books[by], before)
        return self.books[by]

    def steer_clear(self) -> None:
        """Keep out of what is known to go wrong, each shown by a test: strike a line here when it is mended."""
        for path in list(self.disk()):
            disk = self.disk()
            named = [document.id for data in disk.values() if (document := self.model.document(data)) and document.id]
            here, document = self.model.at(path), self.model.document(disk[path])
            one = self.model.entries.get((document and document.id) or "")
            if one is None or one.path == path or one.path not in disk:
                continue
            in_its_place = self.model.document(disk[one.path])
            taken = in_its_place is not None and in_its_place.id not in (None, one.id)
            swapped = here is None or (in_its_place is not None and in_its_place.id == here.id)
            simple = len(named) == len(set(named)) and in_its_place and in_its_place.id in self.model.entries
            if one.deleted or (taken and not (swapped and simple)):
                (self.home / path).unlink()

    def look(self, by: int = 0) -> None:
        book, before = self.book(by), self.disk()
        book.sync()
        self.looked(book, before)

    def entry(self, at: int) -> Entry | None:
        live = self.model.live
        return live[at % len(live)] if live else None

    def file(self, at: int) -> str | None:
        """Choose a file that a person may do something to, whoever knows it."""
        files = [path for path, data in sorted(self.disk().items()) if not self.is_sealed(path, data)]
        return files[at % len(files)] if files else None

    def is_sealed(self, path: str, data: bytes) -> bool:
        document, here = self.model.document(data), self.model.at(path)
        return bool({document and document.id, here and here.id} & self.sealed)

    def place(self, place: str | int) -> str:
        if isinstance(place, str):
            return place
        return self.seen_paths[place % len(self.seen_paths)] if self.seen_paths else "one.md"

    def put(self, path: str, data: bytes) -> None:
        (self.home / path).parent.mkdir(parents=True, exist_ok=True)
        (self.home / path).write_bytes(data)

    def keep_aside(self, path: str) -> None:
        data = self.disk().get(path)
        if data is not None:
            self.taken_away = [*self.taken_away[-3:], data]

    def room(self) -> bool:
        return len(self.disk()) < MANY and len(self.model.live) < MANY

    def attempt(self, verb: Callable[[], Any]) -> tuple[Any, type[CommonplaceError] | None]:
        try:
            return verb(), None
        except CommonplaceError as error:
            return None, type(error)

    def expected(self, story: Callable[[], None]) -> type[CommonplaceError] | None:
        """Let the model do the same: an error changes nothing."""
        kept = self.model.copy()
        try:
            story()
        except CommonplaceError as error:
            self.model = kept
            return type(error)
        return None

    def change(self, by: int, id_: str, verb: Callable[[Commonplace], Any], story: Callable[[Entry], None]) -> None:
        """Let a verb change one memory: what a person did to its file counts first."""
        book, before = self.book(by), self.disk()
        result, error = self.attempt(lambda: verb(book))
        after = self.disk()
        whole = before == self.model.agreed
        path = self.model.entries[id_].path
        if path not in before:
            self.model.look(before, after)
            self.model.learn_what_moving_counted(book)
            whole, path = True, self.model.entries[id_].path
        assert self.expected(lambda: self.changed(id_, before, after, story)) is error
        entry = self.model.entries[id_]
        if isinstance(result, Receipt):
            entry.path = result.path
            assert (result.version, result.revision, result.space) == (entry.version, entry.revision, entry.space)
            self.model.left.pop(entry.path, None)
        if whole:
            self.compare(book)
        elif error is None:
            self.model.touch(entry, path, after)
            self.model.learn_spaces(book)

    def changed(self, id_: str, before: dict[str, bytes], after: dict[str, bytes], story: Callable[[Entry], None]):
        entry = self.model.entries[id_]
        if not entry.deleted:
            self.model.look(before, after, only=entry.path)
        if entry.deleted:
            raise NotFound("")
        if entry.malformed:
            raise FileInTheWay("")
        story(entry)

    def compare(self, book: Commonplace) -> None:
        self.model.settle(book, self.disk())
        compare(book, self.model)
        self.sealed.clear()

    # --- programs

    @initialize(by=somebody)
    def begin(self, by: int) -> None:
        self.remember_some(by, [{"text": "first", "space": "a"}, {"text": "second", "space": "b", "tags": ("red",)}])

    @rule(by=somebody, asked=drafts, to=st.lists(st.tuples(relations, which), max_size=2))
    def remember(self, by: int, asked: dict[str, Any], to: list[tuple[str, int]]) -> None:
        self.book(by)
        found = [(relation, entry.id) for relation, at in to if (entry := self.entry(at))]
        self.remember_some(by, [{**asked, "links": tuple(found)}])

    @rule(by=somebody, asked=st.lists(drafts, max_size=3))
    def remember_many(self, by: int, asked: list[dict[str, Any]]) -> None:
        self.remember_some(by, asked)

    def remember_some(self, by: int, asked: list[dict[str, Any]]) -> None:
        if len(self.disk()) + len(asked) > MANY:
            return
        book = self.book(by)
        whole = not self.pending()
        receipts, error = self.attempt(lambda: book.remember_many([Draft(**one) for one in asked]))

        def story() -> None:
            if any(not one["text"].strip() and not one.get("title") for one in asked):
                raise BadText("")
            for at, one in enumerate(asked):
                self.remembered(one, receipts[at] if receipts else None)

        assert self.expected(story) is error
        if whole:
            self.compare(book)

    def remembered(self, asked: dict[str, Any], receipt: Receipt | None) -> None:
        content = {"links": (), **asked, "key": None, "space": None}
        key = (self.model.spaces.get(asked["space"], "?" + asked["space"]), asked.get("key") or "")
        if key[1] and key in self.model.keys:
            if self.model.keys[key][0] != content:
                raise KeyConflict("")
            assert receipt is None or (receipt.id, receipt.new) == (self.model.keys[key][1], False)
            return
        links = {}
        for relation, target in asked.get("links", ()):
            links[relation, target] = self.model.entries[target].revision
        if receipt is None:
            if key[1]:
                self.model.keys[key] = (content, "")
            return
        assert receipt.new
        says = Says(
            title=asked.get("title") or title_from(asked["text"]),
            text=asked["text"],
            kind=asked.get("kind", "note"),
            tags=asked.get("tags", ()),
            links=tuple((*link, revision) for link, revision in links.items()),
            importance=asked.get("importance"),
            occurred=moment(asked.get("occurred")),
        )
        entry = Entry(receipt.id, asked["space"], receipt.path, says)
        self.model.entries[entry.id] = entry
        for one in self.books[0].spaces():
            if one.name == entry.space:
                self.model.spaces[one.name] = one.id
        if key[1]:
            self.model.keys[self.model.spaces[entry.space], key[1]] = (content, entry.id)
        self.model.touch(entry, entry.path, self.disk())

    @rule(by=somebody, at=which, changes=changes, off=st.sampled_from((None, 0, 0, 1, -1)))
    def edit(self, by: int, at: int, changes: dict[str, Any], off: int | None) -> None:
        self.book(by)
        entry = self.entry(at)
        if entry is None:
            return
        expected = None if off is None else entry.version + off

        def story(one: Entry) -> None:
            if expected is not None and one.version != expected:
                raise VersionConflict(memory=one.id, expected=expected, found=one.version)
            says = one.says
            if "text" in changes:
                follows = says.title == title_from(says.text)
                says = says._replace(text=changes["text"])
                says = says._replace(title=title_from(says.text)) if follows else says
            if "title" in changes:
                says = says._replace(title=changes["title"] or title_from(says.text))
            if "occurred" in changes:
                says = says._replace(occurred=moment(changes["occurred"]))
            plain = {name: changes[name] for name in ("kind", "tags", "importance") if name in changes}
            one.say(says._replace(**plain))

        self.change(by, entry.id, lambda book: book.edit(entry.id, **changes, expected_version=expected), story)

    @rule(by=somebody, at=which, to=spaces)
    def move(self, by: int, at: int, to: str) -> None:
        self.book(by)
        entry = self.entry(at)
        if entry is None:
            return

        def story(one: Entry) -> None:
            if one.space != to:
                self.model.left[one.path] = one.id
                one.goes(to)

        self.change(by, entry.id, lambda book: book.move(entry.id, to), story)

    @rule(by=somebody, at=which)
    def delete(self, by: int, at: int) -> None:
        self.book(by)
        entry = self.entry(at)
        if entry is None:
            return
        self.keep_aside(entry.path)

        self.change(by, entry.id, lambda book: book.delete(entry.id), Entry.delete)

    @rule(by=somebody, at=which, relation=relations, to=which)
    def link(self, by: int, at: int, relation: str, to: int) -> None:
        self.book(by)
        entry, target = self.entry(at), self.entry(to)
        if entry is None or target is None:
            return

        def story(one: Entry) -> None:
            if one.id == target.id:
                raise BadInput("")
            if (relation, target.id) not in {link[:2] for link in one.says.links}:
                found = self.model.entries[target.id]
                if found.deleted:
                    raise NotFound("")
                one.say(one.says._replace(links=(*one.says.links, (relation, target.id, found.revision))))

        self.change(by, entry.id, lambda book: book.link(entry.id, relation, target.id), story)

    @rule(by=somebody, at=which, link=which)
    def unlink(self, by: int, at: int, link: int) -> None:
        self.book(by)
        linked = [one for one in self.model.live if one.says.links]
        if not linked:
            return
        entry = linked[at % len(linked)]
        relation, target, _ = entry.says.links[link % len(entry.says.links)]

        def story(one: Entry) -> None:
            rest = tuple(one for one in one.says.links if one[:2] != (relation, target))
            if rest == one.says.links:
                raise NotFound("")
            one.say(one.says._replace(links=rest))

        self.change(by, entry.id, lambda book: book.unlink(entry.id, relation, target), story)

    # --- spaces

    @rule(by=somebody, name=spaces)
    def create_space(self, by: int, name: str) -> None:
        book = self.book(by)
        if name in self.model.spaces:
            with pytest.raises(SpaceExists):
                book.create_space(name)
        else:
            self.model.spaces[name] = book.create_space(name).id

    @rule(by=somebody, old=spaces, new=st.sampled_from((*SPACES, "d", "a/c/e")))
    def rename_space(self, by: int, old: str, new: str) -> None:
        self.look(by)
        book = self.book(by)
        going = sorted(name for name in self.model.spaces if below(name, old))
        renamed = {name: new + name.removeprefix(old) for name in going}
        along = [one for one in self.model.live if one.space in renamed]
        wrong: type[CommonplaceError] | None = None
        if below(new, old):
            wrong = BadInput
        elif old not in self.model.spaces:
            wrong = NotFound
        elif set(renamed.values()) & set(self.model.spaces):
            wrong = SpaceExists
        if any(one.malformed for one in along) and wrong in (None, SpaceExists):
            wrong = FileInTheWay
        if wrong:
            with pytest.raises(wrong):
                book.rename_space(old, new)
            return
        book.rename_space(old, new)
        self.model.spaces = {renamed.get(name, name): id_ for name, id_ in self.model.spaces.items()}
        for one in along:
            self.model.left[one.path] = one.id
            one.space, one.path = renamed[one.space], book.get(one.id).path
        for one in along:
            self.model.left.pop(one.path, None)
        for one in self.model.entries.values():
            one.space = renamed.get(one.space, one.space)
        self.compare(book)
