"""`edit` in the editor of the user: the typed text stays in a file if it cannot be saved."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from commonbook.errors import BadInput, CommonbookError
from commonbook.interfaces.cli.input import text as input_text

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.model.memory import Memory, Receipt


def edit_in_editor(book: Book, memory: Memory, editor: str, *, expected_version: int | None, mask: bool) -> Receipt:
    """Open the text of a memory in an editor, and save it with optimistic locking on the version."""
    path = _write_draft(memory.text)
    try:
        _open_editor(editor, path)
        with input_text.open_file(path) as file:
            text = input_text.read_text(file, path)
        # Editors end a file with a new line, whether or not the text had one.
        if text.endswith("\n") and not memory.text.endswith("\n"):
            text = input_text.without_final_break(text)
        version = memory.version if expected_version is None else expected_version
        receipt = book.edit(memory.id, text=text, expected_version=version, mask=mask)
    except CommonbookError as error:
        error.fix = f"{error.fix}; your text is kept in {path}"
        raise
    except BaseException:
        print(f"commonbook: your text is kept in {path}", file=sys.stderr)
        raise
    os.unlink(path)
    return receipt


def _write_draft(text: str) -> str:
    handle, path = tempfile.mkstemp(prefix="commonbook-", suffix=".md")
    with open(handle, "wb") as file:
        file.write(text.encode())
    return path


def _open_editor(editor: str, path: str) -> None:
    fix = "set EDITOR or VISUAL to a command that edits a file and waits for you"
    try:
        command = shlex.split(editor)
        code = subprocess.run([*command, path], check=False).returncode  # noqa: S603 - the user's own command
    except (OSError, ValueError) as error:
        raise BadInput(f"the editor {editor!r} cannot be started: {error}", fix=fix) from error
    if code:
        raise BadInput(f"the editor {editor!r} ended with {code}, so nothing was saved", fix=fix)
