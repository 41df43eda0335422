"""The table of verbs over HTTP: every public name of `Book` is in it, or is left out for a reason."""

from __future__ import annotations

import pytest

from commonbook.book.book import Book
from commonbook.wire.signatures import signature
from commonbook.wire.verbs import EXPORT, IMPORT, LEFT_OUT, VERBS, Verb

ALL = (*VERBS.values(), IMPORT, EXPORT)


def arguments_of(verb: Verb) -> set[str]:
    options = Book.recall if verb.name == "prefetch" else None
    return {argument.name for argument in signature(getattr(Book, verb.name), options=options).arguments}


@pytest.mark.promise("http.same")
def test_every_public_name_of_a_book_is_served_or_left_out_for_a_reason():
    public = {name for name in dir(Book) if not name.startswith("_")}
    served = {verb.name for verb in ALL}
    assert not served & LEFT_OUT.keys()
    assert served | LEFT_OUT.keys() == public
    assert all(LEFT_OUT.values())


def test_no_two_verbs_have_one_method_and_path():
    assert len({(verb.method, verb.path) for verb in ALL}) == len(ALL)


@pytest.mark.parametrize("verb", ALL, ids=lambda verb: verb.name)
def test_a_verb_over_http_has_the_arguments_of_the_book(verb):
    assert set(verb.path_arguments) <= arguments_of(verb)
    assert verb.expanded is None or verb.expanded in arguments_of(verb)
    assert verb.is_property == isinstance(getattr(Book, verb.name), property)
    assert verb.method != "GET" or not verb.changes


@pytest.mark.parametrize("verb", ALL, ids=lambda verb: verb.name)
def test_only_ids_stand_in_a_path(verb):
    names_with_slashes = {"space", "session", "principal", "to", "name", "new", "from_space", "part"}
    assert not set(verb.path_arguments) & names_with_slashes


@pytest.mark.parametrize("verb", [verb for verb in ALL if verb.versioned], ids=lambda verb: verb.name)
def test_a_versioned_answer_has_a_version(verb):
    assert "version" in signature(getattr(Book, verb.name)).result._fields
