"""The declarations of verbs: each verb is declared once, and every book has it."""

from __future__ import annotations

import inspect
from collections import defaultdict

import pytest

from commonbook import aio
from commonbook.remote.remote_book import RemoteBook
from commonbook.service.book import Book
from commonbook.verbs import Verbs
from commonbook.verbs.requests import VERBS, fields_of_verb, result_of

ONLY_HERE = {"acting_as", "with_key", "watching", "working", "close"}
"""The public names of a book of this process that no request can have."""

ALL = tuple(VERBS.values())


def public_names(book: type) -> set[str]:
    return {name for name in dir(book) if not name.startswith("_")}


def test_every_verb_is_declared_once():
    subjects = [subject for subject in Verbs.__bases__ for name in vars(subject) if not name.startswith("_")]
    assert len(subjects) == len(VERBS)
    assert public_names(Verbs) == {*VERBS}


@pytest.mark.promise("http.same")
def test_a_book_implements_every_verb_and_has_nothing_else():
    implemented = {
        name for cls in Book.__mro__ if cls.__module__.startswith("commonbook.service") for name in vars(cls)
    }
    assert VERBS.keys() <= implemented
    assert public_names(Book) == VERBS.keys() | ONLY_HERE


@pytest.mark.promise("client.same")
def test_a_remote_book_sends_every_verb_and_has_nothing_else():
    assert public_names(RemoteBook) == VERBS.keys() | {"close", "outbox"}
    assert public_names(aio.RemoteBook) == public_names(RemoteBook)


@pytest.mark.promise("client.same")
@pytest.mark.parametrize("book", [Book, RemoteBook])
@pytest.mark.parametrize("verb", ALL, ids=lambda verb: verb.name)
def test_every_book_shows_the_signature_and_the_help_of_the_declaration(book, verb):
    method, declared = getattr(book, verb.name), getattr(Verbs, verb.name)
    assert inspect.getdoc(method)
    assert isinstance(method, property) == isinstance(declared, property)
    if not isinstance(method, property):
        assert inspect.signature(method) == verb.signature


def test_verbs_that_share_a_method_and_a_path_are_told_apart_by_their_fields():
    found = defaultdict(list)
    for request in (request for verb in ALL for request in verb.requests):
        found[request.method, request.template].append(request)
    for verbs in found.values():
        fields = [field.name for verb in verbs for field in fields_of_verb(verb.name)]
        own = [name for name in fields if name not in verbs[0].path_arguments]
        assert len(verbs) == 1 or (verbs[0].takes_body and len(set(own)) == len(own) == len(verbs))


@pytest.mark.parametrize("verb", ALL, ids=lambda verb: verb.name)
def test_a_request_has_the_arguments_of_the_verb(verb):
    names = {field.name for field in fields_of_verb(verb.name)}
    assert set(verb.path_arguments) <= names or (verb.several and verb.variadic in names)
    assert verb.expanded is None or verb.expanded in names
    assert verb.method != "GET" or not verb.changes


@pytest.mark.parametrize("verb", [verb for verb in ALL if verb.versioned], ids=lambda verb: verb.name)
def test_a_versioned_answer_has_a_version(verb):
    assert "version" in result_of(verb.name)._fields
