"""The whole OpenAPI document is fuzzed with keys of each role: no answer is a fault, or other than documented.

`COMMONBOOK_FUZZ_EXAMPLES` is the number of requests for each operation and role, valid ones and as many others.
"""

from __future__ import annotations

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from commonbook.service.book import Book
from commonbook.values.spaces import Role

pytestmark = pytest.mark.promise("http.faults")

EXAMPLES = int(os.environ.get("COMMONBOOK_FUZZ_EXAMPLES", "1"))

schemathesis.openapi.media_type("application/zip", st.binary(max_size=200))


def key_of(book: Book, role: Role | None) -> str:
    """Return a key of a principal with a role on two spaces, in which there is something; of the owner without one."""
    memory = book.remember("a memory", space="s").id
    book.share(memory, "team")
    book.append("talk", ["a message"], space="s")
    if role is None:
        return book.create_key("user:local").secret
    for space in ("s", "team"):
        book.grant(f"agent:{role}", space, role)
    return book.create_key(f"agent:{role}", space=None if role == "reader" else "s").secret


@pytest.mark.slow
@pytest.mark.parametrize("role", [None, "admin", "writer", "reader"])
def test_no_request_meets_a_fault(book, app, role, subtests):
    config = {"auth": {"openapi": {"HTTPBearer": {"bearer": key_of(book, role)}}}}
    document = schemathesis.openapi.from_asgi("/openapi.json", app, config=schemathesis.Config.from_dict(config))
    for operation in [found.ok() for found in document.get_all_operations()]:  # type: ignore[union-attr]
        for mode in GenerationMode:
            with subtests.test(f"{operation.label}, {mode.value}"):

                @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
                @given(case=operation.as_strategy(generation_mode=mode))
                def run(case):
                    # A request of the right shape may still name what does not exist.
                    case.call_and_validate(excluded_checks=[positive_data_acceptance])

                run()
