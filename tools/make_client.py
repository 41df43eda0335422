"""Write the verbs of a remote book, from the signatures of `commonbook.Book`: `python tools/make_client.py`."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import commonbook
from commonbook.book.book import Book
from commonbook.model import memory, reports
from commonbook.wire.verbs import NOT_SENT, VERBS, Verb

FOLDER = Path(__file__).parents[1] / "src" / "commonbook" / "client" / "verbs"

BY_HAND = ("append",)
"""Verbs that a remote book has by hand, since they do more than one call."""

CLASSES = {
    "memories": "MemoryVerbs",
    "recall": "RecallVerbs",
    "sessions": "SessionVerbs",
    "sharing": "SharingVerbs",
    "reasoning": "ReasoningVerbs",
    "administration": "AdministrationVerbs",
    "maintenance": "MaintenanceVerbs",
}

HEADER = '''"""Verbs of a remote book: {group}. Made by `tools/make_client.py`; a test compares it."""

from __future__ import annotations

{imports}

class {name}(VerbCaller):
    """Verbs of a remote book: {group}."""
'''

CONSTANTS = {id(memory.NO_METADATA): "NO_METADATA", id(memory.UNSET): "UNSET", id(reports.no_progress): "no_progress"}

_STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

MODULES = {
    "Any": "typing",
    "VerbCaller": "commonbook.client.verbs.base",
    "datetime": "datetime",
    "NO_METADATA": "commonbook.model.memory",
    "no_progress": "commonbook.model.reports",
    **dict.fromkeys(("Callable", "Iterable", "Mapping", "Sequence"), "collections.abc"),
    **{name: module for module, names in commonbook._MODULES.items() for name in names},  # noqa: SLF001 - our own
}


def modules() -> dict[Path, str]:
    """Return the text of each module, formatted."""
    return {FOLDER / f"{group}.py": _module(group) for group in CLASSES}


def _module(group: str) -> str:
    body = "".join(_members(group))
    words = set(re.findall(r"\b[A-Za-z_]+\b", re.sub(r'""".*?"""', "", body, flags=re.DOTALL))) | {"VerbCaller"}
    imports = "\n".join(f"from {module} import {name}" for name, module in MODULES.items() if name in words)
    text = HEADER.format(group=group, name=CLASSES[group], imports=imports) + body
    path = str(FOLDER / f"{group}.py")
    for command in (["check", "--select", "I,F401", "--fix", "-q"], ["format", "-q"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", path, "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _members(group: str) -> Iterator[str]:
    verbs = [verb for verb in VERBS.values() if verb.group == group and verb.name not in BY_HAND]
    # A class that has the verb `list` has it last: annotations before it mean the type.
    for verb in sorted(verbs, key=lambda verb: verb.name == "list"):
        yield _property(verb) if verb.is_property else _method(verb)


def _property(verb: Verb) -> str:
    getter = getattr(Book, verb.name).fget
    returned = inspect.signature(getter).return_annotation
    return (
        f"\n    @property\n    def {verb.name}(self) -> {returned}:\n{_docstring(getter)}"
        f'        value: {returned} = self._call("{verb.name}", {{}})\n        return value\n'
    )


def _method(verb: Verb) -> str:
    method = getattr(Book, verb.name)
    signature = inspect.signature(method)
    sent = [name for name in signature.parameters if name not in NOT_SENT]
    options = [name for name, one in signature.parameters.items() if one.kind is inspect.Parameter.VAR_KEYWORD]
    given = ", ".join(f'"{name}": {name}' for name in sent if name not in options)
    arguments = "{" + ", ".join(filter(None, [*(f"**{name}" for name in options), given])) + "}"
    remark = "  # noqa: ANN401 - as in the book" if options else ""
    call = f'self._call("{verb.name}", {arguments})'
    returned = signature.return_annotation
    body = call if returned == "None" else f"result: {returned} = {call}\n        return result"
    parameters = ", ".join(_parameters(signature))
    return f"\n    def {verb.name}({parameters}) -> {returned}:{remark}\n{_docstring(method)}        {body}\n"


def _docstring(method: object) -> str:
    text = (inspect.getdoc(method) or "").replace("\n", "\n        ").replace("\n        \n", "\n\n")
    return f'        """{text}\n        """\n' if "\n" in text else f'        """{text}"""\n'


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    named = False
    for parameter in signature.parameters.values():
        star = _STARS.get(parameter.kind, "")
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not named:
            yield "*"
        named = named or parameter.kind is inspect.Parameter.KEYWORD_ONLY or star == "*"
        text = star + parameter.name
        if parameter.annotation is not inspect.Parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not inspect.Parameter.empty:
            text += f" = {CONSTANTS.get(id(parameter.default)) or repr(parameter.default)}"
        yield text


if __name__ == "__main__":
    for path, text in modules().items():
        path.write_text(text, encoding="utf-8")
