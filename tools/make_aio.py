"""Write the types of `commonbook.aio`, from the signatures of `Book` and `RemoteBook`: `python tools/make_aio.py`."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import commonbook
from commonbook.aio.threads import CONTEXT_MANAGERS
from commonbook.remote.remote_book import RemoteBook
from commonbook.service.book import Book
from commonbook.verbs import Verbs

STUB = Path(__file__).parents[1] / "src" / "commonbook" / "aio" / "book.pyi"

TEXT = '''"""The types of `commonbook.aio.book`; made by `tools/make_aio.py`, which a test compares with this file."""

import builtins
import os
{imports}

_Opened = TypeVar("_Opened", bound=AsyncBook)

class AsyncBook:
    def __init__(
        self, book: commonbook.Book | commonbook.RemoteBook, threads: BookThreads, *, is_view: bool = False
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
{both}
class Book(AsyncBook):
{here}
class RemoteBook(AsyncBook):
{remote}
class Opening(Generic[_Opened]):
    def __init__(self, open_book: Callable[[], object], kind: type[_Opened]) -> None: ...
    def __await__(self) -> Generator[Any, None, _Opened]: ...
    async def __aenter__(self) -> _Opened: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

{functions}'''

_STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

MODULES = {
    "AbstractAsyncContextManager": "contextlib",
    "Any": "typing",
    "BookThreads": "commonbook.aio.threads",
    "Callable": "collections.abc",
    "Coroutine": "collections.abc",
    "Generator": "collections.abc",
    "Generic": "typing",
    "Iterable": "collections.abc",
    "Iterator": "collections.abc",
    "Mapping": "collections.abc",
    "Self": "typing",
    "Sequence": "collections.abc",
    "TracebackType": "types",
    "TypeVar": "typing",
    "datetime": "datetime",
    **dict.fromkeys(commonbook.__all__, "commonbook"),
}

OWN = {"Book", "RemoteBook", "open", "connect"}


def stub() -> str:
    """Return the text of the stub file, formatted."""
    both = {name for name in dir(Verbs) if not isinstance(getattr(Verbs, name), property)} | {"close"}
    text = TEXT.format(
        imports="{imports}",
        both=_members(Book, both),
        here=_members(Book, {*dir(Book)} - both),
        remote=_members(RemoteBook, {*dir(RemoteBook)} - both),
        functions=_function("open", commonbook.open, "Book") + _function("connect", commonbook.connect, "RemoteBook"),
    )
    words = set(re.findall(r"\b\w+\b", re.sub(r'""".*?"""', "", text, flags=re.DOTALL)))
    imports = sorted(f"from {module} import {name}" for name, module in MODULES.items() if name in words - OWN)
    text = text.replace("{imports}", "\n".join(["", "import commonbook", *imports]))
    for command in (["check", "--select", "I,F401", "--fix", "-q"], ["format", "-q"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _function(name: str, function: Callable[..., object], opened: str) -> str:
    return f"def {name}({', '.join(_parameters(inspect.signature(function)))}) -> Opening[{opened}]: ...\n"


def _members(book: type, names: set[str]) -> str:
    return "".join(_member(book, name) for name in sorted(names) if not name.startswith("_"))


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
    STUB.write_text(stub(), encoding="utf-8")
