"""One table of scenarios, which run through every interface of the book and must give the same results.

A scenario is a function of a `World`. `world("agent:ana")` is the book as this principal has it through one interface:
the library itself, HTTP, a remote book, the command line, or MCP. Every call is recorded with its result or its error.
The transcripts of two interfaces are equal, except for ids and times, which are replaced by their order of appearance.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

from starlette.testclient import TestClient

from commonbook.errors import CommonbookError
from commonbook.interfaces.cli.main import main
from commonbook.interfaces.mcp.methods import METHODS
from commonbook.interfaces.mcp.tools import TOOLS
from commonbook.service.book import Book
from commonbook.values import problems
from commonbook.values.encoding import decode, encode
from commonbook.values.memory import Filter
from commonbook.verbs import Verbs
from commonbook.verbs.declaration import Verb
from commonbook.verbs.requests import VERBS, request_of, result_of

OWNER: Final = "user:local"
Transcript = list[Any]


class World:
    """A book with principals that use it through one interface."""

    def __init__(self, book: Book, connect: Callable[[str, str], Any]) -> None:
        """Use this book; `connect` takes a principal and the secret of its key, and returns the book as it has it."""
        self.book = book
        self.transcript: Transcript = []
        self._connect = connect
        self._connected: dict[str, Any] = {}

    def __call__(self, principal: str = OWNER) -> Any:
        """Return the book as a principal has it; every call is recorded."""
        if principal not in self._connected:
            secret = self.book.create_key(principal).secret
            self._connected[principal] = self._connect(principal, secret)
        return _Recorder(principal, self._connected[principal], self.transcript)

    def grant(self, principal: str, space: str, role: str) -> None:
        """Make a space, and give a principal a role on it."""
        if space not in {known.name for known in self.book.spaces()}:
            self.book.create_space(space)
        self.book.grant(principal, space, role)  # type: ignore[arg-type]

    def state(self) -> Transcript:
        """Return everything that the book has in the end."""
        return list(self._state())

    def _state(self) -> Iterator[Any]:
        spaces = [space.name for space in self.book.spaces()]
        for space in spaces:
            for deleted in (False, True):
                items = self.book.list(Filter(space=space, deleted=deleted), limit=500).items
                # The ids of notices are hashes of ids, so that their order is another one in each run.
                notices = [item.marks for item in items if item.kind == "notice"]
                yield space, sorted(notices), encode([item for item in items if item.kind != "notice"])
            for session in sorted(self.book.sessions(space=space), key=lambda session: session.id):
                yield encode(self.book.messages(session.id, space=space))
            entries = self.book.log(space=space, limit=1000)
            # The keys are made by the tests themselves.
            yield [(entry.actor, entry.action) for entry in entries if entry.action != "key.create"]
        yield sorted([item.dependent.title or "", item.reason, item.by] for item in self.book.inbox().items)
        yield self.book.verify_log().ok


class _Recorder:
    def __init__(self, principal: str, book: Any, transcript: Transcript) -> None:
        self._principal, self._book, self._transcript = principal, book, transcript

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                result = getattr(self._book, verb)(*arguments, **options)
            except CommonbookError as error:
                details = problems.problem(error, problems.status_of(error))
                self._transcript.append([self._principal, verb, {"refused": details}])
                return None
            self._transcript.append([self._principal, verb, result if isinstance(result, dict) else encode_any(result)])
            return result

        return call


def encode_any(result: Any) -> Any:
    items = result if isinstance(result, list) else [result]
    return None if any(isinstance(item, SimpleNamespace) for item in items) else encode(result)


# --- interfaces


def through_the_library(book: Book) -> World:
    """Return a world whose principals call the library, each with its key."""
    return World(book, lambda _principal, secret: book.with_key(secret))


def through_http(book: Book, app: Any) -> World:
    """Return a world whose principals send requests."""
    return World(book, lambda _principal, secret: HttpBook(app, secret))


def through_remote_books(book: Book, connect: Callable[[str], Any]) -> World:
    """Return a world whose principals have remote books; `connect` takes the secret of a key."""
    return World(book, lambda _principal, secret: connect(secret))


class HttpBook(Verbs):
    """The verbs as requests to an app, without a client library."""

    def __init__(self, app: Any, secret: str) -> None:
        self._client = TestClient(app, headers={"Authorization": f"Bearer {secret}"})

    def _call(self, verb: Verb, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        request = request_of(verb, verb.bind(args, kwargs))
        answer = self._client.request(request.method, request.path, params=list(request.query), content=request.body)
        if answer.status_code != 200:
            raise problems.error_of(answer.json(), answer.status_code)
        return decode(result_of(verb.name), answer.json())


class CommandLine:
    """The verbs as commands; those that the command line does not have, or not in this form, go to the library.

    It returns receipts as the commands print them.
    """

    def __init__(self, book: Book, principal: str) -> None:
        self._principal = principal
        self._book = book if principal == OWNER else book.acting_as(principal)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return getattr(self._book, verb)  # type: ignore[no-any-return]

    def _run(self, *words: str | None, lines: str = "", **options: Any) -> Any:
        """Run a command; options that are None or empty are left out, and lists are given several times."""
        arguments = [word for word in words if word is not None]
        for name, value in options.items():
            values = value if isinstance(value, list | tuple) else [value]
            for each in values:
                if each is not None and each is not False:
                    arguments += [f"--{name.replace('_', '-')}", *([] if each is True else [str(each)])]
        if self._principal != OWNER:
            arguments += ["--as", self._principal]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _input(lines):
            code = main([*arguments, "--json"])
        if code:
            error = json.loads(err.getvalue())["error"]
            details = {"type": error["type"], "detail": error["message"], "fix": error["fix"]}
            raise problems.error_of(details, 500)
        return json.loads(out.getvalue(), object_hook=lambda fields: SimpleNamespace(**fields))

    def remember(self, text: str, *, space: str | None = None, kind: str = "note", tags: Any = (), **more: Any) -> Any:
        return self._run("remember", text, space=space, kind=kind, tag=list(tags), **more)

    def recall(self, query: str, *, spaces: Any = None, k: int = 10, tags: Any = ()) -> Any:
        return self._run("recall", query, "-k", str(k), space=spaces, tag=list(tags))

    def edit(self, memory_id: str, *, text: str | None = None, title: str | None = None, **more: Any) -> Any:
        return self._run("edit", memory_id, text, title=title, **more)

    def move(self, memory_id: str, space: str) -> Any:
        return self._run("move", memory_id, space)

    def delete(self, *ids: str) -> Any:
        return self._run("delete", *ids, yes=True)

    def undelete(self, memory_id: str) -> Any:
        return self._run("undelete", memory_id)

    def link(self, source: str, relation: str, target: str) -> Any:
        return self._run("link", source, relation, target)

    def append(self, session: str, messages: list[str], *, space: str | None = None, tags: Any = ()) -> Any:
        lines = "".join(json.dumps({"text": message}) + "\n" for message in messages)
        return self._run("session", "append", session, space=space, tag=list(tags), jsonl=True, lines=lines)

    def switch(self, old: str, new: str, *, reason: str = "new", space: str | None = None) -> Any:
        return self._run("session", "switch", old, new, reason=reason, space=space)

    def rewind(self, session: str, after: int, *, space: str | None = None) -> Any:
        return self._run("session", "rewind", session, str(after), space=space)

    def close_session(self, session: str, *, space: str | None = None) -> Any:
        return self._run("session", "close", session, space=space)

    def move_session(self, session: str, to: str, *, space: str | None = None) -> Any:
        return self._run("session", "move", session, to, space=space)

    def share(self, memory_id: str, to: str, *, refresh: str = "live") -> Any:
        return self._run("share", memory_id, to=to, refresh=refresh)[0]

    def pull(self, memory_id: str, to: str, *, refresh: str = "live") -> Any:
        return self._run("pull", memory_id, to=to, refresh=refresh)

    def unshare(self, copy_id: str) -> Any:
        return self._run("unshare", copy_id)

    def refresh(self, copy_id: str) -> Any:
        return self._run("refresh", copy_id)

    def detach(self, copy_id: str) -> Any:
        return self._run("detach", copy_id)

    def adopt(self, copy_id: str) -> Any:
        return self._run("adopt", copy_id)

    def request_share(self, memory_id: str, to: str) -> Any:
        return self._run("request", memory_id, to)

    def approve(self, request_id: str, *, note: str = "") -> Any:
        return self._run("approve", request_id, note=note or None)

    def reject(self, request_id: str, *, note: str = "") -> Any:
        return self._run("reject", request_id, note=note or None)

    def reflect(self, text: str, on: list[str], *, space: str | None = None) -> Any:
        return self._run("reflect", text, on=on, space=space)

    def supersede(self, old: str, by: str, *, reason: str = "") -> Any:
        return self._run("supersede", old, by=by, reason=reason or None)

    def reinstate(self, old: str) -> Any:
        return self._run("reinstate", old)

    def triage(self, memory_id: str, verdict: str, *, note: str = "") -> Any:
        return self._run("triage", memory_id, verdict, note=note or None)


@contextlib.contextmanager
def _input(lines: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(lines.encode()), encoding="utf-8")
    try:
        yield
    finally:
        sys.stdin = before


def through_the_command_line(book: Book) -> World:
    """Return a world whose principals run commands."""
    return World(book, lambda principal, _secret: CommandLine(book, principal))


class Tools:
    """The verbs as tools of MCP, with the results that the protocol carries; other verbs go to the library."""

    def __init__(self, view: Book) -> None:
        self._view = view

    def book(self, *, changes: bool) -> Book:
        return self._view

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        found = getattr(self._view, verb)
        if verb not in TOOLS:
            return found  # type: ignore[no-any-return]

        def call(*given: Any, **options: Any) -> Any:
            bound = VERBS[verb].bind(given, options)
            arguments = {_TOOL_NAMES.get(name, name): encode(value) for name, value in bound.items()}
            if not arguments.keys() <= set(TOOLS[verb].arguments):
                return found(*given, **options)
            if verb == "append":
                arguments["messages"] = [{"text": message} for message in arguments["messages"]]
            answer = METHODS["tools/call"](self, {"name": verb, "arguments": arguments})
            if answer["isError"]:
                type_, _, message = answer["content"][0]["text"].partition(": ")
                raise problems.error_of({"type": type_, "detail": message}, 500)
            return json.loads(
                json.dumps(answer["structuredContent"]), object_hook=lambda fields: SimpleNamespace(**fields)
            )

        return call


_TOOL_NAMES: Final = {"memory_id": "id"}


def through_mcp(book: Book) -> World:
    """Return a world whose principals call tools."""
    return World(book, lambda _principal, secret: Tools(book.with_key(secret)))


# --- comparison

_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PLACEHOLDERS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DAY"),
    (re.compile(r"\d{4}-\d\d/"), "MONTH/"),
    (re.compile(r"--[0-9a-f]{8}\b"), "--TAIL"),
    (re.compile(r"\b[0-9a-f]{16,128}\b"), "HASH"),
    (re.compile(r"\bin \d+ seconds\b"), "in SOME seconds"),
)
_VOLATILE: Final = frozenset({"took_ms", "steps", "instance", "next", "retry_after", "signature", "payload"})


_SET_BY_CLIENTS: Final = frozenset({"client_id"})
"""The fields of a stored message that a remote book sets: it gives client ids."""


def normalized(value: Any, *, from_client: bool = False) -> Any:
    """Return JSON without what differs from run to run: ids and times are replaced.

    With `from_client`, fields of messages that a remote book sets are left out.
    """
    ids: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        return ids.setdefault(match[0], f"#{len(ids) + 1}")

    def walk(part: Any) -> Any:
        if isinstance(part, dict):
            left_out = _VOLATILE | _SET_BY_CLIENTS if from_client and {"seq", "role"} <= part.keys() else _VOLATILE
            return {name: walk(field) for name, field in part.items() if name not in left_out}
        if isinstance(part, list | tuple):
            return [walk(item) for item in part]
        if not isinstance(part, str):
            return part
        text = _ID.sub(replaced, part)
        for pattern, word in _PLACEHOLDERS:
            text = pattern.sub(word, text)
        return text

    return walk(value)


def errors_of(transcript: Transcript) -> list[tuple[str, str]]:
    """Return the verbs that were refused, with the types of the errors."""
    return [
        (verb, result["refused"]["type"])
        for _, verb, result in transcript
        if isinstance(result, dict) and "refused" in result
    ]


# --- the scenarios


def memories(world: World) -> None:
    """Remember, edit, move, link, delete and bring back."""
    owner = world()
    memory = owner.remember("Alice owns billing", space="team/a", tags=["x"]).id
    other = owner.remember("Tea at four", space="team/a", kind="fact").id
    owner.edit(memory, text="Carol owns billing")
    owner.edit(memory, text="Dora owns billing", expected_version=1)
    owner.link(memory, "related_to", other)
    owner.move(other, "team/b")
    owner.delete(other)
    owner.undelete(other)
    owner.get(memory)
    owner.history(memory)
    owner.links(memory)
    owner.list(Filter(space="team/a", tags=("x",)))
    owner.remember("x", kind="thought", space="team/a")
    owner.get("01a19a5c-7d1e-7c3a-9f61-0b2f4c6e8a10")


def masked_secrets(world: World) -> None:
    """Secrets are masked before they are stored."""
    owner = world()
    owner.remember("the key is sk-ant-api03-" + "a1B2c3D4" * 11, space="s")
    owner.append("talk", ["my password is hunter2! <private>and this</private>"], space="s")
    owner.messages("talk", space="s")


def session_switch(world: World) -> None:
    """A switch settles what is unsettled under the old session."""
    owner = world()
    owner.append("one", ["I like oolong", "Noted"], space="s", tags=["tea"])
    owner.switch("one", "two", space="s")
    owner.switch("one", "three", space="s")
    owner.switch("one", "one", space="s")
    owner.append("two", ["And coffee?"], space="s")
    owner.messages("two", space="s")
    owner.sessions(space="s")


def rewound_turns(world: World) -> None:
    """Rewound turns leave recall and episodes."""
    owner = world()
    owner.append("talk", ["first kite", "second kite", "third kite"], space="s")
    owner.rewind("talk", 1, space="s")
    owner.rewind("talk", 9, space="s")
    owner.recall("kite", spaces=["s"], k=5)
    owner.close_session("talk", space="s")
    owner.messages("talk", space="s")


def moved_session(world: World) -> None:
    """A session moves with its messages and episodes, and appends that name its old space follow it."""
    owner = world()
    owner.append("talk", ["first kite", "second kite"], space="s")
    owner.close_session("talk", space="s")
    owner.append("talk", ["third kite"], space="s")
    owner.move_session("talk", "t", space="s")
    owner.append("talk", ["fourth kite"], space="s")
    owner.messages("talk", space="t")
    owner.recall("kite", spaces=["s", "t"], k=5)
    owner.sessions(space="s")
    owner.sessions(space="t")
    owner.append("other", ["a kite"], space="u")
    owner.move_session("other", "t", space="u")
    owner.move_session("nobody", "t", space="s")


def sessions_of_two_spaces(world: World) -> None:
    """The same name in two spaces is two sessions."""
    world.grant("agent:ana", "a", "writer")
    world.grant("agent:ben", "b", "writer")
    ana, ben = world("agent:ana"), world("agent:ben")
    ana.append("talk", ["in a"], space="a")
    ben.append("talk", ["in b"], space="b")
    ben.append("talk", ["not mine"], space="a")
    ana.messages("talk")
    world().messages("talk")


def odd_messages(world: World) -> None:
    """Odd messages are stored as given, or refused whole."""
    owner = world()
    owner.append("talk", ["مرحبا 👋🏽 \u202eabc", "ok"], space="s")
    owner.append("talk", ["fine", "nul \0 byte"], space="s")
    owner.append("talk", [], space="s")
    owner.messages("talk", space="s")


def filtered_recall(world: World) -> None:
    """A tag restricts before the best are chosen; other spaces are not asked."""
    owner = world()
    for number in range(12):
        world.book.remember(f"kite kite kite number {number}", space="s", tags=["z"])
    owner.remember("a kite once", space="s", tags=["y"])
    owner.recall("kite", spaces=["s"], k=5, tags=["y"])
    world.grant("agent:ana", "elsewhere", "reader")
    world("agent:ana").recall("kite", spaces=["s"])
    world("agent:ana").recall("kite")


def copies_that_follow(world: World) -> None:
    """Live, lazy and snapshot copies, and their freshness."""
    owner = world()
    world.grant("agent:ana", "team", "reader")
    source = owner.remember("the price is five", space="mine").id
    for refresh, space in (("live", "team/live"), ("lazy", "team/lazy"), ("snapshot", "team/snapshot")):
        owner.share(source, space, refresh=refresh)
    owner.edit(source, text="the price is six")
    owner.copies(source)
    owner.lineage(source)
    ana = world("agent:ana")
    ana.list(Filter(space="team/"))
    ana.get(source)
    owner.delete(source)
    ana.list(Filter(space="team/"))


def chains_of_copies(world: World) -> None:
    """Share, pull, and share back: one copy for each space."""
    owner = world()
    source = owner.remember("a fact", space="a").id
    first = owner.share(source, "b").id
    second = owner.pull(first, "c").id
    owner.share(second, "b")
    owner.lineage(second)
    owner.copies(source)
    owner.unshare(first)
    owner.lineage(second)


def copies_that_part(world: World) -> None:
    """Diverged and detached copies, and adopting the source again."""
    owner = world()
    source = owner.remember("a fact", space="a").id
    copy = owner.share(source, "b").id
    owner.edit(copy, text="edited here")
    owner.refresh(copy)
    owner.adopt(copy)
    owner.detach(copy)
    owner.refresh(copy)
    owner.get(copy)


def revoked_copies(world: World) -> None:
    """A copy whose sharer may no longer read the source says so."""
    owner = world()
    world.grant("agent:ana", "team", "reader")
    world.grant("agent:ana", "own", "writer")
    source = owner.remember("for the team", space="team").id
    copy = world("agent:ana").pull(source, "own").id
    world.book.revoke("agent:ana", "team")
    owner.edit(source, text="news for the team")
    world("agent:ana").refresh(copy)
    world("agent:ana").get(copy)


def requests_with_approval(world: World) -> None:
    """Requests are listed to those who may decide; a decision happens once."""
    world.grant("agent:ana", "mine", "writer")
    world.grant("agent:ana", "board", "reader")
    world.grant("agent:ben", "board", "admin")
    ana, ben = world("agent:ana"), world("agent:ben")
    memory = ana.remember("please take this", space="mine").id
    request = ana.request_share(memory, "board").id
    ana.approve(request)
    ben.pending()
    ben.approve(request, note="fits")
    ben.reject(request)
    ana.pending(decided=True)


def limits(world: World) -> None:
    """A rate limit says when to come back."""
    owner = world()
    world.book.set_limit("share", 1, principal="agent:ana")
    world.grant("agent:ana", "a", "writer")
    world.grant("agent:ana", "b", "writer")
    one, two = owner.remember("one", space="a").id, owner.remember("two", space="a").id
    ana = world("agent:ana")
    ana.share(one, "b")
    ana.share(two, "b")


def notices(world: World) -> None:
    """A supersession notifies each dependent once; decisions end the doubt."""
    owner = world()
    old, new = owner.remember("R1", space="r").id, owner.remember("R2", space="r").id
    first = owner.reflect("M1", [old], space="a").id
    second = owner.reflect("M2", [old], space="b").id
    third = owner.remember("M3", space="a").id
    owner.link(third, "related_to", old)
    owner.supersede(old, new, reason="it changed")
    owner.supersede(old, new, reason="it changed")
    owner.dependents(old)
    owner.inbox(space="a")
    owner.inbox(space="b")
    owner.triage(first, "keep", note="still holds")
    owner.triage(second, "retract")
    owner.reinstate(old)
    owner.supersede(new, new)
    owner.get(second)


def superseding_without_the_right(world: World) -> None:
    """It is refused and logged; the superseder learns nothing of dependents that it may not read."""
    owner = world()
    world.grant("agent:ana", "open", "writer")
    secret = owner.remember("secret", space="closed").id
    world.book.reflect("a hidden reflection", [secret], space="closed")
    mine = world("agent:ana").remember("mine", space="open").id
    world("agent:ana").supersede(secret, mine)
    world("agent:ana").dependents(secret)
    world("agent:ana").inbox()


def the_log(world: World) -> None:
    """Every change has an entry, and the chain verifies."""
    owner = world()
    owner.remember("one", space="s")
    owner.log(space="s")
    owner.verify_log()
    world.grant("agent:ana", "t", "reader")
    world("agent:ana").log(space="s")


def proposed_memories(world: World) -> None:
    """An agent proposes in a space under review, and a person approves."""
    world.grant("agent:ana", "team", "admin")
    world.grant("user:ben", "team", "writer")
    owner, ana, ben = world(), world("agent:ana"), world("user:ben")
    old = owner.remember("the kite is red", space="team").id
    owner.set_review("team", "agents")
    kite = ana.remember("the kite is blue", space="team", replaces=old).id
    thought = ana.reflect("kites are coloured", [old], space="team").id
    ana.edit(old, text="the kite is mine")
    ana.delete(old)
    ana.approve(kite)
    owner.recall("kite", spaces=["team"])
    owner.recall("kite", spaces=["team/_proposed"])
    ana.get(kite)
    ben.pending(space="team")
    ben.approve(kite, note="yes")
    ben.reject(thought)
    ben.reject(thought)
    owner.get(old)
    owner.recall("kite", spaces=["team"])
    owner.pending(decided=True)


SCENARIOS: Final[tuple[Callable[[World], None], ...]] = (
    memories,
    masked_secrets,
    session_switch,
    rewound_turns,
    moved_session,
    sessions_of_two_spaces,
    odd_messages,
    filtered_recall,
    copies_that_follow,
    chains_of_copies,
    copies_that_part,
    revoked_copies,
    requests_with_approval,
    proposed_memories,
    limits,
    notices,
    superseding_without_the_right,
    the_log,
)
