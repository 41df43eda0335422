"""`status` tells each principal only of the work in spaces that it may read."""

from __future__ import annotations

from datetime import timedelta

import pytest

from commonbook.core.tables import jobs

BOB = "user:bob"
REACHING = sorted(jobs.ALL_JOBS - jobs.OWN_SPACE_JOBS)


def enqueue(book, kind, memory, *, failed):
    """Enqueue a job on a memory of the space `lab`; with `failed`, after its last attempt."""
    lab = next(space for space in book.spaces() if space.name == "lab")

    def operation(tx):
        jobs.enqueue(tx, space=lab.id, kind=kind, subject=memory, due=tx.now - timedelta(seconds=1))
        if failed:
            job = jobs.take(tx, {lab.id: lab}, kinds=(kind,))
            assert job is not None
            assert jobs.fail(tx, job._replace(attempts=jobs.MAX_ATTEMPTS), "FileInTheWay: hush/2026-11")

    book._engines.db.write(operation)


@pytest.mark.promise("rules.hidden")
@pytest.mark.parametrize("kind", REACHING)
def test_only_the_owner_learns_of_work_that_reaches_other_spaces(book, kind):
    memory = book.remember("the heron nests", space="lab").id
    book.grant(BOB, "lab", "writer")
    bob = book.acting_as(BOB)
    enqueue(book, kind, memory, failed=True)
    enqueue(book, kind, memory, failed=False)
    assert (bob.status().waiting_jobs, bob.status().failed_jobs, bob.status().findings) == (0, 0, ())
    assert (book.status().waiting_jobs, book.status().failed_jobs) == (1, 1)
    (finding,) = book.status().findings
    assert "hush" in finding.why
    # A worker of his may do it: then he learns no more.
    assert bob.work() == 0
    assert book.status().waiting_jobs == 0


def test_a_member_learns_of_work_in_the_own_space(book):
    book.append("talk", ["the heron nests"], space="lab")
    book.grant(BOB, "lab", "reader")
    assert book.acting_as(BOB).status().waiting_jobs == book.status().waiting_jobs == 1
