"""The public names, on which users rely: adding or removing one must be a decision, not an accident."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import commonbook
from commonbook import errors
from commonbook.remote import outbox_client
from commonbook.service.book import Book

INPUTS = {
    "ChatMessage",
    "ChatObject",
    "Draft",
    "Filter",
    "Metadata",
    "MetadataValue",
    "NewMessage",
    "Progress",
    "PromptPassage",
    "Scalar",
    "UNSET",
    "Unset",
}
RESULTS = {
    "Ancestor",
    "ApiKey",
    "AppendReceipt",
    "BackupReport",
    "Bars",
    "ChangeEvent",
    "ChangePage",
    "CopyInfo",
    "CopyNode",
    "CopyPlace",
    "Decision",
    "Deleted",
    "Deletion",
    "Dependent",
    "Finding",
    "Grant",
    "Hit",
    "Identity",
    "Inbox",
    "InboxItem",
    "Invalidation",
    "Lineage",
    "Link",
    "LogEntry",
    "LogReport",
    "LoginCode",
    "Memory",
    "MemoryReference",
    "Message",
    "MessagePage",
    "MessageReceipt",
    "Metrics",
    "NewKey",
    "Notice",
    "Page",
    "PromptUse",
    "RateLimit",
    "RecallResult",
    "Receipt",
    "RestoreReport",
    "Revision",
    "SchemaMigration",
    "Session",
    "SettleReport",
    "ShareReceipt",
    "ShareRequest",
    "SharingRule",
    "SignInCode",
    "Space",
    "SpaceRole",
    "Status",
    "SupersedeReason",
    "SupersedeReport",
    "SyncReport",
    "TransferReport",
    "TriageReport",
    "Wish",
    "WorkReport",
}
WORDS = {
    "CopyMode",
    "Freshness",
    "HitType",
    "Include",
    "Kind",
    "LimitedAction",
    "Mark",
    "Refresh",
    "Relation",
    "RequestPurpose",
    "RequestState",
    "Review",
    "Role",
    "SwitchReason",
    "Verdict",
}
ERRORS = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}


def modules_loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_exports_exactly_these_names():
    assert set(commonbook.__all__) == {
        "__version__",
        "open",
        "open_client",
        "connect",
        "backup",
        "restore",
        "Book",
        "RemoteBook",
        "Embedder",
        "EmbedderChoice",
        "EmbeddingInput",
        *(INPUTS | RESULTS | WORDS | set(outbox_client.__all__) | ERRORS),
    }
    assert len(commonbook.__all__) == len(set(commonbook.__all__))


def test_every_exported_name_can_be_imported():
    names: dict[str, object] = {}
    exec("from commonbook import *", names)
    assert set(commonbook.__all__) <= {*names, "__version__"}
    assert all(names[name] is getattr(commonbook, name) for name in commonbook.__all__)
    assert set(commonbook.__all__) <= set(dir(commonbook))
    assert not hasattr(commonbook, "Nonsense")
    with pytest.raises(ImportError, match="Nonsense"):
        exec("from commonbook import Nonsense")


def test_type_checkers_see_every_exported_name():
    tree = ast.parse(Path(commonbook.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported = {
        (alias.name, node.module)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    table = {(name, module) for module, names in commonbook._MODULES.items() for name in names}
    assert imported == table
    functions = {"open", "open_client", "connect", "backup", "restore"}
    assert {name for name, _ in table} == set(commonbook.__all__) - {"__version__"} - functions


def test_importing_the_package_alone_loads_nothing_else():
    loaded = modules_loaded_by("import commonbook")
    assert {name for name in loaded if name.startswith("commonbook")} == {"commonbook", "commonbook.version"}


def test_importing_a_value_does_not_load_the_book():
    loaded = modules_loaded_by("from commonbook import NotFound, NewMessage")
    assert {name for name in loaded if name.startswith("commonbook")} == {
        "commonbook",
        "commonbook.errors",
        "commonbook.values",
        "commonbook.values.session",
        "commonbook.values.spaces",
        "commonbook.version",
    }


def own_types(annotation: object) -> Iterator[type]:
    """Yield the classes of the package that an annotation names, however deep."""
    if isinstance(annotation, type) and annotation.__module__.partition(".")[0] == "commonbook":
        yield annotation
    parts = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    for part in parts:
        yield from own_types(part)


def types_in_verbs(facade: type) -> Iterator[type]:
    """Yield the classes of the package in the signatures of a facade's public verbs, and in the fields of those."""
    exported = {name: getattr(commonbook, name) for name in commonbook.__all__}
    verbs = [getattr(facade, name) for name in dir(facade) if not name.startswith("_")]
    waiting = [inspect.unwrap(getattr(verb, "fget", verb)) for verb in verbs]
    seen: set[type] = set()
    while waiting:
        hints = typing.get_type_hints(waiting.pop(), localns=exported)
        found = {type_ for hint in hints.values() for type_ in own_types(hint)} - seen - {facade}
        seen |= found
        waiting += found
    yield from seen


@pytest.mark.parametrize("facade", [Book, outbox_client.Client])
def test_every_type_in_the_signature_of_a_verb_is_exported(facade):
    types = set(types_in_verbs(facade))
    assert types
    assert {type_.__name__ for type_ in types} <= set(commonbook.__all__)
    assert all(getattr(commonbook, type_.__name__) is type_ for type_ in types)


def literals(annotation: object) -> Iterator[frozenset[str]]:
    """Yield the sets of fixed words in an annotation, however deep."""
    if typing.get_origin(annotation) is typing.Literal:
        yield frozenset(typing.get_args(annotation))
    for part in annotation if isinstance(annotation, list) else typing.get_args(annotation):
        yield from literals(part)


@pytest.mark.parametrize("name", sorted(WORDS))
def test_a_type_of_fixed_words_is_used_by_a_verb_or_a_value(name):
    exported = {name: getattr(commonbook, name) for name in commonbook.__all__}
    verbs = [inspect.unwrap(verb) for key, verb in vars_of(Book) if not key.startswith("_") and callable(verb)]
    values = [exported[key] for key in INPUTS | RESULTS if isinstance(exported[key], type)]
    used = {
        words
        for source in (*verbs, *values)
        for hint in typing.get_type_hints(source, localns=exported).values()
        for words in literals(hint)
    }
    assert frozenset(typing.get_args(exported[name])) in used


def vars_of(facade: type) -> list[tuple[str, object]]:
    return [(name, getattr(facade, name)) for name in dir(facade)]


FIXED = {
    "action": "LimitedAction",
    "freshness": "Freshness",
    "include": "Include",
    "kind": "Kind",
    "kinds": "Kind",
    "marks": "Mark",
    "purpose": "RequestPurpose",
    "refresh": "Refresh",
    "review": "Review",
    "role": "Role",
    "state": "RequestState",
    "verdict": "Verdict",
}
"""The parameters and fields that take fixed words, and the type of each."""

OPEN = {
    (commonbook.Status, "kinds"),
    (commonbook.Message, "role"),
    (commonbook.LogEntry, "action"),
    (commonbook.ChangeEvent, "action"),
    (Book.import_folder, "include"),
    (Book.export, "include"),
}


def test_every_parameter_and_field_of_fixed_words_has_their_type():
    exported = {name: getattr(commonbook, name) for name in commonbook.__all__}
    sources = [*(getattr(Book, name) for name in dir(Book) if not name.startswith("_")), *map(exported.get, RESULTS)]
    checked = 0
    for source in map(inspect.unwrap, filter(callable, sources)):
        for name, hint in typing.get_type_hints(source, localns=exported).items():
            # The kinds of a status are counts; a message's role and the actions of the log are open to new words;
            # an import and an export include files by patterns.
            if name in FIXED and (source, name) not in OPEN:
                words = frozenset(typing.get_args(exported[FIXED[name]]))
                # A copy that is detached has a mode, and a retraction that was taken back a verdict, of their own.
                assert any(words <= found for found in literals(hint)), (source, name)
                checked += 1
    assert checked > 30


def test_a_book_has_just_the_verbs_that_the_help_of_the_package_names():
    table = re.search(r"has these verbs;.*?\n\n(.*?)\n\n", commonbook.__doc__ or "", re.DOTALL)
    assert table is not None
    named = [name for line in table[1].splitlines() for name in re.findall(r"\w+", line[15:])]
    public = {name: getattr(Book, name) for name in dir(Book) if not name.startswith("_")}
    assert sorted(named) == [name for name, verb in public.items() if callable(verb)]
    properties = {name for name, verb in public.items() if not callable(verb)}
    assert properties == {"actor", "default_space", "home", "moved_to", "schema_migration"}


def test_the_client_offers_just_this():
    public = {name for name in vars(outbox_client.Client) if not name.startswith("_")}
    assert public == {
        "append",
        "close",
        "counts",
        "discard",
        "enqueue",
        "flush",
        "is_waiting",
        "pending",
        "refused",
        "retry",
        "trouble",
    }
    assert set(outbox_client.__all__) == {
        "Client",
        "EnqueuedMessage",
        "OutboxCounts",
        "OutboxEntry",
        "OutboxMessage",
        "OutboxReceipt",
        "SessionContext",
        "StoredMessage",
        "Transport",
    }


def test_importing_the_package_and_its_facade_imports_nothing_slow():
    loaded = modules_loaded_by("import commonbook.compose.book")
    assert not loaded & {
        "cryptography",
        "yaml",
        "watchfiles",
        "rich",
        "shtab",
        "asyncio",
        "zipfile",
        "tarfile",
        "tomllib",
    }


def test_help_of_the_package_fits_two_screens():
    code = "import commonbook, pydoc; commonbook.Book; print(pydoc.plain(pydoc.render_doc(commonbook)))"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    lines = text.splitlines()
    assert len(lines) <= 2 * 40, len(lines)
    assert max(map(len, lines)) <= 130
    assert "open(home" in text
    assert set(commonbook.__all__) <= set(dir(commonbook)), "completion still knows every name"


WINDOWS = """
import sys
sys.platform = "win32"
import commonbook
try:
    commonbook.{call}
except commonbook.CommonbookError as error:
    print(type(error).__name__, error.message, error.fix)
"""


@pytest.mark.parametrize("call", ["open()", "open_client(None)"])
def test_windows_is_refused_by_name_with_the_way_out(call, tmp_path):
    code = WINDOWS.format(call=call)
    home = tmp_path / "user"
    home.mkdir()
    env = {"HOME": str(home), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.startswith("UnsupportedSystem ")
    assert "Windows" in done.stdout
    assert "WSL" in done.stdout
    assert list(home.iterdir()) == []


def test_the_command_line_refuses_windows_in_two_lines(tmp_path):
    code = (
        "import sys; sys.platform = 'win32'; from commonbook.interfaces.cli.main import main; sys.exit(main(['list']))"
    )
    env = {"HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert "Windows" in first
    assert "WSL" in second


ONE_SPACE = {"str", "str | None"}
SEVERAL_SPACES = {"str | Iterable[str] | None"}


def test_space_is_one_name_and_spaces_are_several_in_every_verb():
    seen: dict[str, set[str]] = {"space": set(), "spaces": set()}
    for name in (name for name in dir(Book) if not name.startswith("_") and callable(getattr(Book, name))):
        for parameter in inspect.signature(getattr(Book, name)).parameters.values():
            if parameter.name in seen:
                seen[parameter.name].add(name)
                assert parameter.annotation in (ONE_SPACE if parameter.name == "space" else SEVERAL_SPACES), name
    assert seen["spaces"] == {"recall"}, "only a search over several spaces takes `spaces`"
    assert {"remember", "append", "sessions", "inbox", "export", "verify_log"} <= seen["space"]
    assert not seen["space"] & seen["spaces"]
