"""Problem details: every error of the tree comes back as the same class, with the same message and fix."""

from __future__ import annotations

import traceback

import pytest

from commonbook import errors
from commonbook.errors import CommonbookError
from commonbook.values import problems


def all_errors() -> list[CommonbookError]:
    made: list[CommonbookError] = []
    branches: list[type[CommonbookError]] = [CommonbookError]
    while branches:
        cls = branches.pop()
        branches += cls.__subclasses__()
        if cls.__module__ == "commonbook.errors":
            made.append(example(cls))
    return made


def example(cls: type[CommonbookError]) -> CommonbookError:
    if cls is errors.VersionConflict:
        return errors.VersionConflict(memory="m", expected=3, found=4)
    if issubclass(cls, errors.TooMany | errors.ServerBusy):
        return cls("slow down", retry_after=12.5, fix="wait")
    if cls is errors.Refused:
        return errors.Refused("no", client_ids=("a", "b"), fix="send others")
    return cls("a message", fix="a fix")


@pytest.mark.promise("http.same")
@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.type)
def test_an_error_comes_back_as_it_was(error):
    status = problems.status_of(error)
    back = problems.error_of(problems.problem(error, status), status)
    assert type(back) is type(error)
    assert (str(back), back.message, back.fix) == (str(error), error.message, error.fix)
    assert vars(back) == vars(error)


def test_the_item_of_a_batch_comes_back():
    error = errors.BadText("no text")
    error.item = 3
    assert problems.error_of(problems.problem(error, 400), 400).item == 3


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.BadTime("x"), 400),
        (errors.TooLarge("x"), 413),
        (errors.NotFound("x"), 404),
        (errors.NotAllowed("x"), 403),
        (errors.KeyConflict("x"), 409),
        (errors.TooMany("x", retry_after=1), 429),
        (errors.Busy("x"), 503),
        (errors.DatabaseUnreachable("x"), 503),
        (errors.DiskFull("x"), 507),
        (errors.EmbedderFailed("x"), 503),
    ],
)
def test_each_branch_has_its_status(error, status):
    assert problems.status_of(error) == status


def test_a_version_that_does_not_fit_is_a_failed_precondition_only_with_if_match():
    conflict = errors.VersionConflict(memory="m", expected=1, found=2)
    assert problems.status_of(conflict) == 409
    assert problems.status_of(conflict, with_if_match=True) == 412


@pytest.mark.parametrize(
    ("details", "status", "cls"),
    [
        ({"type": "of_the_future", "detail": "new"}, 404, errors.NotFound),
        (None, 502, errors.ServerFailed),
        ("<html>", 429, errors.TooMany),
        ({"type": 3, "detail": 4, "fix": []}, 500, errors.ServerFailed),
    ],
)
def test_an_answer_that_is_none_of_ours_becomes_the_error_of_its_status(details, status, cls):
    error = problems.error_of(details, status)
    assert type(error) is cls
    assert error.message
    assert cls is not errors.TooMany or error.retry_after > 0  # type: ignore[attr-defined]


def test_seconds_until_the_next_try_are_whole_in_the_header():
    assert problems.headers_of(errors.TooMany("x", retry_after=0.2), 429) == {"Retry-After": "1"}
    assert problems.headers_of(errors.Busy("x"), 503) == {"Retry-After": "1"}
    assert problems.headers_of(errors.NotAllowed("x"), 401) == {"WWW-Authenticate": 'Bearer realm="commonbook"'}


def test_a_traceback_shows_the_fix_and_the_message_stays_as_it_is():
    error = errors.BadInput("there is no key", fix="run `commonbook login`")
    shown = traceback.format_exception(error)
    assert (str(error), shown[-1]) == ("there is no key", "fix: run `commonbook login`\n")
    assert traceback.format_exception(errors.BadInput("no advice"))[-1].endswith("BadInput: no advice\n")
