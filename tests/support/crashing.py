"""Shared by the crash tests: operations of a child, the expected state after them, and the real content of a home.

An operation is a dictionary, so that it can cross a pipe. Its text is abbreviated: `token*n` stands for a text of about
n bytes that begins with the token. Files are parsed here independently of the program: front matter is split and read
once more.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import commonbook
from commonbook.service.book import Book
from commonbook.values.ids import new_id
from commonbook.values.memory import KINDS, Draft, Filter, Receipt
from commonbook.values.spaces import FILESYSTEM, LOCAL_OWNER

Op = dict[str, Any]
Revision = tuple[str, str]

_ROOT = Path(__file__).resolve().parents[2]
_OURS = {"machine", "state.db", "state.db-wal", "state.db-shm", "config.toml", ".gitignore"} | {
    f"{lock}.lock{turn}" for lock in ("write", "files") for turn in ("", ".turn")
}
_KEYS = {"keys/signing.key", "keys/hashing.key"}
_DEADLINE = 60
# The texts of these tests are alike, so that a save may look like one of an old buffer.
_REVERTED = "reverted save"


# --- operations


def text_of(short: str) -> str:
    """Expand a text abbreviated as `token*n`."""
    token, _, size = short.partition("*")
    words = f"{token} " + "lorem ipsum dolor sit amet\n" * (int(size or 0) // 27)
    return words.strip()


def do(book: Book, op: Op) -> Any:
    """Run an operation through the public API; return its result as plain data."""
    match op["verb"]:
        case "remember":
            return _plain(book.remember(**_draft(op)))
        case "remember_many":
            return [_plain(one) for one in book.remember_many([Draft(**_draft(draft)) for draft in op["drafts"]])]
        case "edit":
            return _plain(book.edit(op["id"], **_changes(op)))
        case "move":
            return _plain(book.move(op["id"], op["space"]))
        case "delete":
            return list(book.delete(op["id"]).ids)
        case "rename":
            return book.rename_space(op["old"], op["new"]).name
        case "save":
            # An id that was changed by hand is put back, so that something has to be written back.
            save(Path(book.home) / book.get(op["id"]).path, text_of(op["text"]), synced=True, other_id=True)
            return book.sync().edited
        case "sync":
            return book.sync().edited
        case "reopen":
            return None
    raise AssertionError(op)


def _draft(op: Op) -> dict[str, Any]:
    return {
        "text": text_of(op["text"]),
        "title": op["title"],
        "space": op["space"],
        "tags": tuple(op.get("tags", ())),
        "key": op.get("key"),
    }


def _changes(op: Op) -> dict[str, Any]:
    changes: dict[str, Any] = {name: op[name] for name in ("text", "title", "tags") if name in op}
    return {**changes, "text": text_of(op["text"])} if "text" in op else changes


def _plain(receipt: Receipt) -> dict[str, Any]:
    return {"id": receipt.id, "version": receipt.version, "path": receipt.path}


def save(path: Path, text: str, *, in_place: bool = False, synced: bool = False, other_id: bool = False) -> None:
    """Save a new text below a file's front matter, as an editor does: in place, or by a rename over it."""
    front = path.read_bytes().partition(b"\n---\n")[0]
    if other_id:
        front = re.sub(rb"\nid: .*", b"\nid: " + new_id().encode(), front)
    data = front + b"\n---\n\n" + text.encode() + b"\n"
    place = path if in_place else path.with_name(f".{path.name}.{os.getpid()}.swp")
    with place.open("wb") as file:
        file.write(data)
        file.flush()
        if synced:
            os.fsync(file.fileno())
    if not in_place:
        place.rename(path)
    if synced:
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


# --- the expected state


@dataclass
class Expected:
    """One memory, as acknowledged."""

    space: str
    title: str
    text: str
    tags: tuple[str, ...]
    version: int = 1
    deleted: bool = False
    revisions: list[Revision] = field(default_factory=list)
    logged: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def next(self, action: str, actor: str = LOCAL_OWNER) -> None:
        """Count one more version, logged under this action."""
        self.version += 1
        self.logged[action, actor, self.version] += 1

    def change(self, op: Op) -> None:
        """Apply an operation to this memory."""
        if op["verb"] == "move":
            self.space = op["space"]
            self.next("move.in")
            self.logged["move.out", LOCAL_OWNER, self.version] += 1
        elif op["verb"] == "delete":
            self.deleted = True
            self.next("delete")
        else:
            self.tags = tuple(op.get("tags", self.tags))
            if "title" in op or "text" in op:
                self.say(op.get("title", self.title), text_of(op["text"]) if "text" in op else self.text)
            self.next("edit", FILESYSTEM if op["verb"] == "save" else LOCAL_OWNER)

    def say(self, title: str, text: str) -> None:
        """Set title and text, and add them to the history."""
        self.title, self.text = title, text
        self.revisions.append((title, text))


class Ledger:
    """Everything that was acknowledged, and so must be stored, whatever happened since."""

    def __init__(self) -> None:
        self.memories: dict[str, Expected] = {}

    def after(self, op: Op, answer: Any) -> Ledger:
        """Return a copy of the ledger with one more operation."""
        following = Ledger()
        following.memories = deepcopy(self.memories)
        following.write(op, answer)
        return following

    def write(self, op: Op, answer: Any) -> None:
        """Record an operation that was acknowledged with this result."""
        match op["verb"]:
            case "remember":
                self._add(op, answer)
            case "remember_many":
                for draft, receipt in zip(op["drafts"], answer, strict=True):
                    self._add(draft, receipt)
            case "rename":
                for one in self.memories.values():
                    one.space = op["new"] if one.space == op["old"] else one.space
            case "edit" | "save" | "move" | "delete":
                self.memories[op["id"]].change(op)
            case other:
                assert other in {"reopen", "sync"}, op

    def _add(self, draft: Op, receipt: Any) -> None:
        first = (draft["title"], text_of(draft["text"]))
        memory = Expected(draft["space"], *first, tuple(draft.get("tags", ())), revisions=[first])
        memory.logged["remember", LOCAL_OWNER, 1] += 1
        assert receipt["id"] not in self.memories, "an id was given out twice"
        self.memories[receipt["id"]] = memory

    def with_the_one_under_way(self, op: Op, home: Home) -> Ledger | None:
        """Return the ledger as if the unacknowledged operation had happened, or None if it cannot have."""
        drafts = op.get("drafts", [op])
        if not op["verb"].startswith("remember"):
            return self.after(op, None)
        new = [id_ for id_ in home.memories if id_ not in self.memories]
        by_text = {home.memories[id_].text: {"id": id_} for id_ in new}
        found = [by_text.get(text_of(draft["text"])) for draft in drafts]
        if not all(found):
            return None
        return self.after(op, found if op["verb"] == "remember_many" else found[0])


# --- the content of a home


@dataclass
class Home:
    """The content of a home, read through the program and from its files, and every violated invariant."""

    memories: dict[str, Expected]
    wrong: list[str]


def look_at(home: Path | str) -> Home:
    """Open a home or a book on a server, read its content, close it, and check every invariant."""
    wrong: list[str] = []
    with closing(commonbook.open(home, create=True)) as book:
        live = _all(book, Filter(kinds=KINDS))
        gone = _all(book, Filter(kinds=KINDS, deleted=True))
        logged = _logged(book)
        found = {memory.id: _found(book, memory, logged[memory.id]) for memory in [*live, *gone]}
        if len(found) != len(live) + len(gone):
            wrong.append("an id is there twice")
        wrong += [f"log: {one}" for one in book.verify_log().findings]
        wrong += [f"doctor: {one}" for one in book.doctor() if one.what != _REVERTED]
        if isinstance(home, Path):
            wrong += _wrong_files(home, {memory.path: memory for memory in live})
        status = book.status()
        findings = [one for one in status.findings if one.what != _REVERTED]
        if status.pending_files or findings:
            wrong.append(f"status: {status.pending_files} pending, {findings}")
    return Home(found, wrong + (_wrong_after_closing(home, len(live)) if isinstance(home, Path) else []))


def _all(book: Book, chosen: Filter) -> list[Any]:
    found: list[Any] = []
    after = None
    while True:
        page = book.list(chosen, limit=500, after=after)
        found += page.items
        after = page.next
        if after is None:
            return found


def _found(book: Book, memory: Any, logged: Counter[tuple[str, str, int]]) -> Expected:
    revisions = [(revision.title, revision.text) for revision in book.history(memory.id)]
    # A save by hand sets the version to the milliseconds since 1970, so only the order of versions can be expected.
    order = {version: at for at, version in enumerate(sorted({one for _, _, one in logged}), start=1)}
    logged = Counter({(action, actor, order[version]): count for (action, actor, version), count in logged.items()})
    return Expected(
        memory.space,
        memory.title,
        memory.text,
        memory.tags,
        order[memory.version],
        memory.deleted is not None,
        revisions,
        logged,
    )


def _logged(book: Book) -> dict[str, Counter[tuple[str, str, int]]]:
    entries: dict[str, Counter[tuple[str, str, int]]] = {}
    for space in book.spaces():
        after = 0
        while page := book.log(space=space.name, after=after):
            after = page[-1].seq
            for entry in page:
                for subject in json.loads(entry.subjects)[:1]:
                    count = entries.setdefault(subject, Counter())
                    payload = json.loads(entry.payload)
                    # That a memory is superseded from another space is no version of it.
                    if entry.action != "superseded":
                        count[entry.action, entry.actor, payload["version"]] += 1
    return entries


def _wrong_files(home: Path, live: dict[str, Any]) -> list[str]:
    wrong = []
    paths = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    markdown = {path for path in paths if path.endswith(".md")}
    wrong += [f"stray file {path}" for path in sorted(markdown - live.keys())]
    wrong += [f"missing file {path}" for path in sorted(live.keys() - markdown)]
    allowed = {f".commonbook/{name}" for name in _OURS | _KEYS}
    # An unfinished key (`.signing.key.…`) is left alone: another process may be writing it.
    unnamed = {path for path in paths if path.startswith(".commonbook/keys/.")}
    unnamed |= {path for path in paths if path.endswith((".space.toml", "_invalidations/.gitignore"))}
    wrong += [f"stray file {path}" for path in sorted(paths - markdown - allowed - unnamed)]
    for path in markdown & live.keys():
        front, text = read(home / path)
        memory = live[path]
        content = (front["id"], front["title"], tuple(front.get("tags", ())), text)
        if content != (memory.id, memory.title, memory.tags, memory.text):
            wrong.append(f"{path} says {str(content)[:200]} and not what its row says")
    return wrong


def read(path: Path) -> tuple[dict[str, Any], str]:
    """Return a file's front matter and its text, read without the program."""
    front, _, text = path.read_text(encoding="utf-8").partition("\n---\n")
    return yaml.safe_load(front.removeprefix("---\n")), text.removeprefix("\n").removesuffix("\n")


def _wrong_after_closing(home: Path, live: int) -> list[str]:
    wrong = []
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as db:
        journal = db.execute("SELECT memory FROM file_journal").fetchall()
        bases = db.execute("SELECT count(*) FROM file WHERE path LIKE '%.md'").fetchone()[0]
        places = db.execute("SELECT count(*) FROM place").fetchone()[0]
        rows = db.execute("SELECT count(*) FROM memory").fetchone()[0]
    if journal:
        wrong.append(f"the journal still has {journal}")
    if bases != live:
        wrong.append(f"{bases} files are known, {live} memories are live")
    if places != rows:
        wrong.append(f"{places} places for {rows} memories")
    return wrong


def differences(expected: Ledger, home: Home) -> list[str]:
    """Return the differences between the acknowledged and the real state."""
    found = []
    for id_ in sorted(expected.memories.keys() | home.memories.keys()):
        want, have = expected.memories.get(id_), home.memories.get(id_)
        if want is None or have is None:
            what = "lost" if have is None else "stored though never acknowledged"
            found.append(f"{id_} is {what}: {_short(want or have)}")
        elif want != have:
            found += [
                f"{id_} {name}: expected {_short(getattr(want, name))}, found {_short(getattr(have, name))}"
                for name in want.__dataclass_fields__
                if getattr(want, name) != getattr(have, name)
            ]
    return found


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:130]} … {text[-50:]}"


def settle(ledger: Ledger, under_way: Op | None, home_path: Path | str) -> Ledger:
    """Check a home against the ledger; the operation under way happened whole or not at all. Return the new ledger."""
    home = look_at(home_path)
    assert not home.wrong, home.wrong
    before = differences(ledger, home)
    if not before:
        return ledger
    happened = ledger.with_the_one_under_way(under_way, home) if under_way else None
    assert happened is not None, before
    after = differences(happened, home)
    assert not after, f"neither before {under_way}:\n  {before}\nnor after it:\n  {after}"
    return happened


# --- children


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a child: this program, and no settings of the developer."""
    source = Path(commonbook.__file__).resolve().parent.parent
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name == "COMMONBOOK_KEYS" or not name.startswith("COMMONBOOK_")
    }
    return {**inherited, "PYTHONPATH": f"{source}{os.pathsep}{_ROOT}", "PYTHONDONTWRITEBYTECODE": "1", **more}


def named(place: Path | str) -> dict[str, str]:
    """Return the environment variable that selects a book: a home, or the address of a server."""
    return {"COMMONBOOK_HOME" if isinstance(place, Path) else "COMMONBOOK_DATABASE": str(place)}


def command(mode: str, *args: object) -> list[str]:
    """Return the command line of a child."""
    return [sys.executable, "-m", "tests.support.crash_child", mode, *map(str, args)]


def start(mode: str, *args: object, **env: str) -> subprocess.Popen[bytes]:
    """Start a child that reads standard input and reports on standard output."""
    return subprocess.Popen(
        command(mode, *args),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env=environment(**env),
        bufsize=0,
    )


def say(child: subprocess.Popen[bytes], operations: object) -> None:
    """Send a child its operations, on standard input."""
    assert child.stdin
    child.stdin.write(json.dumps(operations).encode())
    child.stdin.close()
    child.stdin = None


def finish(child: subprocess.Popen[bytes], stdin: bytes = b"", *, deadline: float = _DEADLINE) -> list[Any]:
    """Wait for a child to end without error; return its reports."""
    try:
        out, _ = child.communicate(stdin or None, timeout=deadline)
    except BaseException:
        child.kill()
        child.communicate()
        raise
    assert child.returncode == 0, out[-2000:]
    return [json.loads(line) for line in out.splitlines()]


def run(mode: str, *args: object, stdin: object = None, deadline: float = _DEADLINE, **env: str) -> list[Any]:
    """Run a child to its end; return its reports."""
    return finish(start(mode, *args, **env), json.dumps(stdin).encode(), deadline=deadline)


def script(text: str, *args: object, **env: str) -> None:
    """Run a Python script in a new process."""
    child = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text, *map(str, args)]
    done = subprocess.run(child, env=environment(**env), timeout=_DEADLINE, capture_output=True, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr.decode()[-2000:]}"


def wait_until_stopped(child: subprocess.Popen[bytes]) -> None:
    """Wait until a child has stopped itself."""
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        child.returncode = os.waitstatus_to_exitcode(status)
        raise AssertionError(f"the child ended with {child.returncode} and did not stop")
