"""A new field of front matter is added in few places: where it is stored, and in the verbs that can set it."""

from __future__ import annotations

import re
from pathlib import Path

import commonbook
from commonbook.book import memories as book_memories
from commonbook.engines.postgres import migrations as postgres_migrations
from commonbook.engines.sqlite import migrations as sqlite_migrations
from commonbook.markdown import front_matter
from commonbook.memories import drafts, edited_fields, remember
from commonbook.model import memory
from commonbook.tables import memories
from commonbook.write import new_memory

# A field that only files set needs these, the two schemas being one step: value, file, row, column.
STORED = {memory, front_matter, memories, sqlite_migrations, postgres_migrations}
# A field that `remember` and `edit` take as an argument needs these too, besides its option in each interface.
VERBS = {book_memories, drafts, remember, edited_fields, new_memory}


def listing_all(names: tuple[str, ...]) -> set[Path]:
    """The modules below the interfaces that name every one of these fields, and so would have to name the next one.

    The verbs of the client are made by `tools/make_client.py`.
    """
    root = Path(commonbook.__file__).parent
    inside = [
        path
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] not in ("interfaces", "adapters", "client")
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in inside}
    return {path for path, text in texts.items() if all(re.search(rf"\b{name}\b", text) for name in names)}


def test_a_new_field_of_front_matter_touches_only_the_modules_that_store_it_and_the_verbs_that_set_it():
    expected = {Path(module.__file__ or "") for module in STORED | VERBS}
    assert listing_all(front_matter.VERBATIM_FIELDS) == expected
