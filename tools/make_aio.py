"""Write the types of `commonbook.aio.Book`, from the signatures of `commonbook.Book`: `python tools/make_aio.py`."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import commonbook
from commonbook.aio.threads import CONTEXT_MANAGERS
from commonbook.book.book import Book

STUB = Path(__file__).parents[1] / "src" / "commonbook" / "aio" / "book.pyi"

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

_STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

MODULES = {
    "AbstractAsyncContextManager": "contextlib",
    "Any": "typing",
    "BookThreads": "commonbook.aio.threads",
    "Callable": "collections.abc",
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


def stub() -> str:
    """Return the text of the stub file, formatted."""
    body = "".join(_member(name) for name in sorted(dir(Book)) if not name.startswith("_"))
    text = HEADER + body + FOOTER
    words = set(re.findall(r"\b\w+\b", re.sub(r'""".*?"""', "", text, flags=re.DOTALL)))
    own = {"Book", "open"}
    imports = sorted(f"from {module} import {name}" for name, module in MODULES.items() if name in words - own)
    text = text.replace("{imports}", "\n".join(["", "import commonbook", *imports]))
    for command in (["check", "--select", "I", "--fix", "-q"], ["format", "-q"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _member(name: str) -> str:
    verb = getattr(Book, name)
    if isinstance(verb, property):
        returned = inspect.signature(verb.fget).return_annotation  # type: ignore[arg-type] # every property is read
        return f"    @property\n    def {name}(self) -> {returned}: ...\n"
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
