"""One small function for each command: it asks the book, and tells the answer."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from commonbook.compose import make_keys, move_book, open_book
from commonbook.doors import agreement, intake, jsons, plain, showing
from commonbook.doors.progress import Teller
from commonbook.errors import BadInput, CommonbookError
from commonbook.model import UNSET, UUID_PATTERN, Filter, Unset
from commonbook.settings import PERSONAL, Settings

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.book import Book
    from commonbook.doors.plain import Output

_TIMES: Final = ("occurred", "valid_from", "valid_until", "expires")
_TURN: Final = 0.2
_MANY: Final = 100
"""So many new memories are worth to be indexed at once, rather than with the next recall."""


class Call:
    """One run of the program: what was typed, the book, and where answers go."""

    book: Book

    def __init__(self, args: Namespace) -> None:
        """Read the settings; the book is opened later, if it is needed."""
        self.args = args
        self.settings = Settings.load(args.home, space=args.space)
        self.progress = Teller(bar=intake.is_terminal(sys.stderr) and not args.json)

    @cached_property
    def out(self) -> Output:
        """Where people read the answer."""
        if not intake.is_terminal(sys.stdout):
            return plain.Plain()
        from commonbook.doors.screen import Screen

        return Screen(colour=self.settings.colour and not self.args.no_color)

    def tell(self, data: object, show: Callable[[Output], None], *, ok: bool = True) -> int:
        """Print an answer, as JSON or for people, and return the exit code."""
        self.progress.pause()
        if self.args.json:
            print(jsons.dumps(data, encoding=getattr(sys.stdout, "encoding", None)))
        else:
            show(self.out)
        return 0 if ok else 1

    def flush(self) -> None:
        """Hand over what was told so far."""
        if sys.stdout is not None:
            sys.stdout.flush()

    def index(self, stored: int) -> None:
        """Bring the index up to date if much was stored, so that the next recall need not."""
        if stored > _MANY:
            self.flush()
            # Everything is stored and told, whatever becomes of this.
            with suppress(CommonbookError):
                self.book.reindex(progress=self.progress)

    def turn(self) -> None:
        """Do a little of the work that is due, now that the answer is told: no worker need be running."""
        self.flush()
        # What was asked for is done and told, whatever becomes of this.
        with suppress(CommonbookError):
            self.book.work(seconds=_TURN)

    def id(self, part: str) -> str:
        """Return the id that was meant by some of its digits or by a file's name."""
        return part if re.fullmatch(UUID_PATTERN, part, re.IGNORECASE | re.ASCII) else self.book.find_id(part)


Command: TypeAlias = Callable[[Call], int]


def run(args: Namespace) -> int:
    """Carry out the command that was typed."""
    name = f"{args.command} {args.action}" if "action" in args else args.command
    if name in _WITHOUT_BOOK:
        return _WITHOUT_BOOK[name](Call(args))
    command = _COMMANDS[name]
    call = Call(args)
    with call.progress, open_book(call.settings, progress=call.progress) as book:
        call.book = _in_hands(book, call)
        return command(call)


def _in_hands(book: Book, call: Call) -> Book:
    """Return the book in the hands of whoever acts: of a key's principal, of the one named, or of the owner."""
    if call.settings.key is not None:
        book = book.with_key(call.settings.key)
    return book if call.args.actor is None else book.acting_as(call.args.actor)


# --- writing


def _remember(call: Call) -> int:
    args = call.args
    if args.batch is not None:
        from commonbook.doors.batch import remember_lines

        return remember_lines(call)
    text = intake.text_of(args, piped=True)
    if text is None:
        raise BadInput("there is nothing to remember", fix="give a text, - for standard input, or --file")
    said = call.book.remember(
        text,
        space=args.space,
        kind=args.kind or "note",
        title=args.title,
        tags=intake.tags(args.tag or ()),
        importance=_importance(args.importance) if args.importance is not None else None,
        **{name: getattr(args, name) for name in _TIMES},
        links=[_link_to(call, one) for one in args.link],
        replaces=call.id(args.replaces) if args.replaces is not None else None,
        key=args.key,
    )
    if not said.new:
        return call.tell(jsons.receipt(said), lambda out: showing.repeated(out, said))
    return call.tell(jsons.receipt(said), lambda out: showing.receipt(out, "Remembered", said))


def _edit(call: Call) -> int:
    args = call.args
    memory_id = call.id(args.id)
    text = intake.text_of(args, piped=False)
    changes = _changes(args)
    expected = args.expected_version
    if text is not None:
        changes["text"] = text
    if args.add_tag or args.remove_tag:
        changes["tags"], expected = _changed_tags(call, memory_id, changes.get("tags", UNSET), expected)
    if changes:
        said = call.book.edit(memory_id, **changes, expected_version=expected)
    elif intake.is_terminal(sys.stdin) and intake.is_terminal(sys.stdout):
        from commonbook.doors.editing import edit_by_hand

        said = edit_by_hand(call.book, memory_id, call.settings.editor or "vi", expected_version=expected)
    else:
        raise BadInput("nothing says what to change", fix="give a text, - for standard input, --file, or a field")
    code = call.tell(jsons.receipt(said), lambda out: showing.receipt(out, "Edited", said))
    if said.copies:
        # Where there are very many copies, some wait for a job.
        call.turn()
    return code


def _changes(args: Namespace) -> dict[str, Any]:
    """Return the fields that were typed; an empty value, or `none` where that is no text, takes one away."""
    changes: dict[str, Any] = {}
    if args.title is not None:
        changes["title"] = args.title or None
    if args.kind is not None:
        changes["kind"] = args.kind
    if args.tag is not None:
        changes["tags"] = intake.tags(args.tag)
    if args.importance is not None:
        changes["importance"] = None if _is_nothing(args.importance) else _importance(args.importance)
    for name in _TIMES:
        value = getattr(args, name)
        if value is not None:
            changes[name] = None if _is_nothing(value) else value
    return changes


def _changed_tags(
    call: Call, memory_id: str, tags: list[str] | Unset, expected: int | None
) -> tuple[list[str], int | None]:
    """Return the tags with some added and removed, and the version of the memory that this is right for."""
    if isinstance(tags, Unset):
        memory = call.book.get(memory_id)
        tags, expected = list(memory.tags), memory.version if expected is None else expected
    fewer = set(intake.tags(call.args.remove_tag))
    return [tag for tag in (*tags, *intake.tags(call.args.add_tag)) if tag not in fewer], expected


def _move(call: Call) -> int:
    args = call.args
    said = call.book.move(call.id(args.id), args.to, expected_version=args.expected_version)
    return call.tell(jsons.receipt(said), lambda out: showing.receipt(out, "Moved", said))


def _delete(call: Call) -> int:
    args = call.args
    chosen = _filter(args)
    if args.ids:
        if chosen != Filter():
            raise BadInput("both ids and a filter say what to delete", fix="give ids, or a filter, not both")
        ids = [call.id(part) for part in args.ids]
        said = call.book.delete(*ids, expected_version=args.expected_version, dry_run=args.dry_run)
    elif args.expected_version is not None:
        raise BadInput("--expected-version is of one memory", fix="give the memory's id with it")
    elif args.dry_run or args.yes:
        said = call.book.delete_where(chosen, dry_run=args.dry_run)
    else:
        found = call.book.delete_where(chosen, dry_run=True)
        # What was agreed to is what was counted, whatever has come since.
        said = call.book.delete(*(found.ids if _agreed(call, len(found.ids)) else ()))
    return call.tell(jsons.deleted(said), lambda out: showing.deleted(out, said))


def _agreed(call: Call, count: int) -> bool:
    if not intake.is_terminal(sys.stdin):
        raise BadInput(
            f"{count} memories would be deleted, and nobody is here to ask",
            fix="look at them with --dry-run, then delete them with --yes",
        )
    if not count:
        return False
    call.progress.pause()
    print(f"Delete {count} {'memory' if count == 1 else 'memories'}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _link(call: Call) -> int:
    args = call.args
    said = call.book.link(call.id(args.id), args.relation, call.id(args.target))
    return call.tell(jsons.receipt(said), lambda out: showing.receipt(out, "Linked", said))


def _unlink(call: Call) -> int:
    args = call.args
    said = call.book.unlink(call.id(args.id), args.relation, call.id(args.target))
    return call.tell(jsons.receipt(said), lambda out: showing.receipt(out, "Unlinked", said))


# --- reading


def _show(call: Call) -> int:
    from commonbook.doors import doubts

    memory = call.book.get(call.id(call.args.id))
    incoming = [link for link in call.book.links(memory.id) if link.target == memory.id]
    return call.tell(
        jsons.shown(memory, incoming),
        lambda out: showing.memory(out, memory, incoming, doubts.titles_in(call.book, memory)),
    )


def _list(call: Call) -> int:
    args = call.args
    page = call.book.list(_filter(args), limit=args.limit, after=args.after)
    return call.tell(jsons.page(page), lambda out: showing.page(out, page, whole_ids=args.deleted))


def _recall(call: Call) -> int:
    from commonbook.doors import hits

    args = call.args
    chosen = _filter(args)
    spaces = ([args.space] if args.space else []) + args.spaces
    said = call.book.recall(
        _question(args.query),
        spaces=spaces,
        k=args.k,
        kinds=chosen.kinds,
        tags=chosen.tags,
        since=chosen.since,
        until=chosen.until,
        as_of=args.as_of,
        min_score=args.min_score,
        budget_tokens=args.budget_tokens,
        include=[name.strip() for value in args.include for name in value.split(",")],
        # The words that matched are shown to people in any case.
        explain=args.explain or not args.json,
        progress=call.progress,
    )
    where = spaces or dict.fromkeys((call.book.default_space, PERSONAL))
    return call.tell(
        jsons.recalled(said, explain=args.explain),
        lambda out: hits.recalled(out, said, where=" and ".join(where), explain=args.explain),
    )


def _question(words: list[str]) -> str:
    return intake.decoded(intake.standard_input(), intake.STDIN) if words == ["-"] else " ".join(words)


def _history(call: Call) -> int:
    from commonbook.doors.diffs import diffs_of

    memory_id = call.id(call.args.id)
    revisions = call.book.history(memory_id)
    diffs = diffs_of(revisions) if call.args.diff else [None] * len(revisions)
    return call.tell(jsons.history(memory_id, revisions, diffs), lambda out: showing.history(out, revisions, diffs))


# --- sessions, sharing, reasoning and rights


def _session(call: Call) -> int:
    from commonbook.doors.sessions import ACTIONS

    return ACTIONS[call.args.action](call)


def _sharing(call: Call) -> int:
    from commonbook.doors.sharing import COMMANDS

    return COMMANDS[call.args.command](call)


def _reasoning(call: Call) -> int:
    from commonbook.doors.reasoning import COMMANDS

    return COMMANDS[call.args.command](call)


def _rights(call: Call) -> int:
    from commonbook.doors.rights import COMMANDS

    return COMMANDS[f"{call.args.command} {call.args.action}"](call)


def _worker(call: Call) -> int:
    from commonbook.doors.worker import work

    return work(call)


# --- spaces and the home


def _space(call: Call) -> int:
    from commonbook.doors.spaces import ACTIONS

    return ACTIONS[call.args.action](call)


def _import(call: Call) -> int:
    args = call.args
    said = call.book.import_folder(args.folder, space=args.space, dry_run=args.dry_run, progress=call.progress)
    did = "Would import" if args.dry_run else "Imported"
    code = call.tell(jsons.transfer(said), lambda out: showing.transfer(out, did, said))
    call.index(0 if args.dry_run else said.done + said.updated)
    return code


def _export(call: Call) -> int:
    said = call.book.export(call.args.target, space=call.args.space, progress=call.progress)
    return call.tell(jsons.transfer(said), lambda out: showing.transfer(out, "Exported", said))


def _rebuild(call: Call) -> int:
    said = call.book.rebuild(progress=call.progress)
    return call.tell(jsons.sync(said), lambda out: showing.sync(out, said))


def _reindex(call: Call) -> int:
    count = call.book.reindex(anew=call.args.anew, progress=call.progress)
    return call.tell({"memories": count}, lambda out: showing.reindexed(out, count))


def _doctor(call: Call) -> int:
    accepted = call.book.accept_deletions() if call.args.accept else None
    said = call.book.doctor(progress=call.progress)
    return call.tell(
        jsons.doctor(said, accepted), lambda out: showing.findings(out, said, fine="nothing is wrong"), ok=not said
    )


def _status(call: Call) -> int:
    said = call.book.status()
    return call.tell(jsons.status(said), lambda out: showing.status(out, said))


def _verify(call: Call) -> int:
    said = call.book.verify_log(space=call.args.space, progress=call.progress)
    return call.tell(jsons.log_report(said), lambda out: showing.log_report(out, said), ok=said.ok)


def _log(call: Call) -> int:
    args = call.args
    space = call.book.default_space if args.space is None else args.space
    said = call.book.log(space=space, after=args.after, limit=args.limit)
    return call.tell(jsons.log(space, said), lambda out: showing.log(out, said))


def _completion(call: Call) -> int:
    from commonbook.doors.completion import script

    made = script(call.args.shell)
    return call.tell({"shell": call.args.shell, "script": made}, lambda _out: print(made))


def _make_keys(call: Call) -> int:
    folder, key = os.path.abspath(call.args.folder), make_keys(call.args.folder)
    return call.tell({"folder": folder, "key_id": key}, lambda out: out.line(f"The key {key} is in {folder}."))


def _migrate(call: Call) -> int:
    with call.progress:
        said = move_book(call.settings, call.args.to, progress=call.progress)
    return call.tell(jsons.moved(said), lambda out: showing.moved(out, said))


_COMMANDS: Final[Mapping[str, Command]] = {
    "remember": _remember,
    "edit": _edit,
    "move": _move,
    "delete": _delete,
    "link": _link,
    "unlink": _unlink,
    "recall": _recall,
    "show": _show,
    "list": _list,
    "history": _history,
    "session append": _session,
    "session switch": _session,
    "session rewind": _session,
    "session close": _session,
    "session flush": _session,
    "session show": _session,
    "session list": _session,
    **dict.fromkeys(("share", "pull", "unshare", "refresh", "detach", "adopt", "lineage", "copies"), _sharing),
    **dict.fromkeys(("reflect", "supersede", "reinstate", "dependents", "inbox", "triage"), _reasoning),
    **dict.fromkeys(("grant add", "grant list", "grant revoke", "key create", "key list", "key revoke"), _rights),
    "worker": _worker,
    **agreement.ACTIONS,
    **dict.fromkeys(("space list", "space create", "space rename", "space depth"), _space),
    "import": _import,
    "export": _export,
    "rebuild": _rebuild,
    "reindex": _reindex,
    "doctor": _doctor,
    "status": _status,
    "audit verify": _verify,
    "audit list": _log,
}
_WITHOUT_BOOK: Final[Mapping[str, Command]] = {
    "space which": _space,
    "completion": _completion,
    "audit keys": _make_keys,
    "migrate": _migrate,
}


# --- words into values


def _filter(args: Namespace) -> Filter:
    """Return what was typed as a filter; without --space it means every space."""
    return Filter(
        space=args.space,
        kinds=tuple(args.kind),
        # An empty tag is left in, for the book to refuse: a variable that was not set must not mean every memory.
        tags=tuple(tag for value in args.tag for tag in value.split(",")),
        since=args.since,
        until=args.until,
        deleted=getattr(args, "deleted", False),
    )


def _importance(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadInput(f"importance {value!r} is not a number", fix="give a number from 0 to 1") from None


def _link_to(call: Call, typed: str) -> tuple[str, str]:
    relation, colon, target = typed.partition(":")
    if not colon:
        raise BadInput(f"{typed!r} is not a link", fix="write it as RELATION:ID, such as related_to:7f3a9c2e")
    return relation, call.id(target)


def _is_nothing(value: str) -> bool:
    return value.strip().lower() in ("", "none")
