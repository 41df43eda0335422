"""Write the types of `commonbook.aio`, from the signatures of `Book` and `RemoteBook`: `python tools/make_aio.py`."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import commonbook
from commonbook.aio.threads import CONTEXT_MANAGERS
from commonbook.book.book import Book
from commonbook.client.remote_book import RemoteBook

FOLDER = Path(__file__).parents[1] / "src" / "commonbook" / "aio"

HEADER = '''"""The types of `commonbook.aio.book`; made by `tools/make_aio.py`, which a test compares with this file."""

import builtins
import os
{imports}

class Book:
    def __init__(self, book: commonbook.Book, threads: BookThreads, *, is_view: bool = False) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
'''

FOOTER = """
class Opening:
    def __init__(self, home: str | os.PathLike[str] | None, space: str | None, *, create: bool) -> None: ...
    def __await__(self) -> Generator[Any, None, Book]: ...
    async def __aenter__(self) -> Book: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def open(
    home: str | os.PathLike[str] | None = None, *, space: str | None = None, create: bool = False
) -> Opening: ...
"""

REMOTE_HEADER = '''"""The types of `commonbook.aio.remote_book`; made by `tools/make_aio.py`; a test compares it."""

import builtins
import os
{imports}

class RemoteBook:
    def __init__(self, book: commonbook.RemoteBook, threads: BookThreads) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
'''

REMOTE_FOOTER = """
class Connecting:
    def __init__(self, connect: Callable[[], commonbook.RemoteBook]) -> None: ...
    def __await__(self) -> Generator[Any, None, RemoteBook]: ...
    async def __aenter__(self) -> RemoteBook: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def connect(
    url: str | None = None,
    key: str | None = None,
    *,
    space: str | None = None,
    outbox: str | os.PathLike[str] | None = None,
    allow_http: bool = False,
    answer_seconds: float = 15.0,
    patience_seconds: float = 30.0,
) -> Connecting: ...
"""

_STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

MODULES = {
    "AbstractAsyncContextManager": "contextlib",
    "Any": "typing",
    "BookThreads": "commonbook.aio.threads",
    "Callable": "collections.abc",
    "Coroutine": "collections.abc",
    "Generator": "collections.abc",
    "Iterable": "collections.abc",
    "Iterator": "collections.abc",
    "Mapping": "collections.abc",
    "Self": "typing",
    "Sequence": "collections.abc",
    "TracebackType": "types",
    "datetime": "datetime",
    **dict.fromkeys(commonbook.__all__, "commonbook"),
}


def stubs() -> dict[Path, str]:
    """Return the text of each stub file, formatted."""
    return {
        FOLDER / "book.pyi": _stub(Book, HEADER, FOOTER, own={"Book", "open"}),
        FOLDER / "remote_book.pyi": _stub(RemoteBook, REMOTE_HEADER, REMOTE_FOOTER, own={"RemoteBook", "connect"}),
    }


def _stub(book: type, header: str, footer: str, *, own: set[str]) -> str:
    body = "".join(_member(book, name) for name in sorted(dir(book)) if not name.startswith("_"))
    text = header + body + footer
    words = set(re.findall(r"\b\w+\b", re.sub(r'""".*?"""', "", text, flags=re.DOTALL)))
    imports = sorted(f"from {module} import {name}" for name, module in MODULES.items() if name in words - own)
    text = text.replace("{imports}", "\n".join(["", "import commonbook", *imports]))
    for command in (["check", "--select", "I,F401", "--fix", "-q"], ["format", "-q"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(FOLDER / "book.pyi"), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _member(book: type, name: str) -> str:
    verb = getattr(book, name)
    if isinstance(verb, property):
        returned = inspect.signature(verb.fget).return_annotation  # type: ignore[arg-type] # every property is read
        # A property of a remote book asks the server.
        shown = returned if book is Book else f"Coroutine[Any, Any, {returned}]"
        return f"    @property\n    def {name}(self) -> {shown}: ...\n"
    signature = inspect.signature(verb)
    parameters = ", ".join(_parameters(signature))
    if name in CONTEXT_MANAGERS:
        return f"    def {name}({parameters}) -> AbstractAsyncContextManager[None]: ...\n"
    returned = _without_the_name_list(signature.return_annotation)
    return f"    async def {name}({parameters}) -> {returned}: ...\n"


def _without_the_name_list(annotation: str) -> str:
    """Return an annotation in which `list` is the type, and not the verb of that name."""
    return re.sub(r"\blist\[", "builtins.list[", annotation)


def _parameters(signature: inspect.Signature) -> list[str]:
    """Return the parameters as they stand in a stub; a default that is no plain value is left open."""
    written: list[str] = []
    for parameter in signature.parameters.values():
        is_named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if is_named and "*" not in written and not any(text.startswith("*") for text in written):
            written.append("*")
        text = _STARS.get(parameter.kind, "") + parameter.name
        if parameter.annotation is not inspect.Parameter.empty:
            text += f": {_without_the_name_list(parameter.annotation)}"
        if parameter.default is not inspect.Parameter.empty:
            is_plain = isinstance(parameter.default, str | int | float | None) or parameter.default == ()
            text += f" = {parameter.default!r}" if is_plain else " = ..."
        written.append(text)
    return written


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text, encoding="utf-8")
