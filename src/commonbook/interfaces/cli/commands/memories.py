"""Commands on memories: remember, show, edit, move, delete, undelete, list, history, link, unlink, links."""

from __future__ import annotations

import argparse
import os
import shlex
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from commonbook.errors import Ambiguous, BadInput, CommonbookError, NotFound, TooLarge
from commonbook.interfaces.cli.arguments import (
    ID_HELP,
    add_confirmation,
    add_expected_version,
    add_filter,
    add_id,
    add_list,
    add_no_mask,
    add_text,
    confirm,
    filter_of,
    json_object,
    metadata,
    number,
    open_file,
    read_text,
    standard_input,
    tags,
    text_of,
    without_final_break,
)
from commonbook.interfaces.cli.commands import SPACE_TO_WRITE_HELP, command
from commonbook.interfaces.cli.output import clean, counted, is_terminal, memories
from commonbook.values.memory import MAX_TEXT_BYTES, UNSET, Draft, Filter, Unset

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.output import Output
    from commonbook.interfaces.cli.parser import Parser
    from commonbook.values.memory import Deleted, Memory, Receipt

_TIMES: Final = {
    "occurred": "when it happened",
    "valid_from": "since when it is true",
    "valid_until": "until when it is true",
    "expires": "when recall begins to leave it out",
}
_MAX_TITLES: Final = 20
"""The number of titles that are named before a confirmation."""
_MAX_USES: Final = 500
_MAX_NAMED: Final = 5
"""The number of memories that an error names."""
_PAGE: Final = 500


def _add_fields(
    to: Parser,
    *,
    clears: str = "",
    tag: str = "a tag, or several with commas (repeatable)",
    meta: str = "metadata of your own (repeatable)",
) -> None:
    to.add_argument("--title", help="the title; else the text's first line")
    to.add_argument("--kind", help="note, fact, preference, decision, procedure, episode or reflection")
    to.add_argument("--tag", action="append", metavar="TAG", help=tag)
    to.add_argument("--importance", metavar="0..1", help=f"how much it matters{clears}")
    to.add_argument("--meta", action="append", metavar="NAME=VALUE", help=meta)
    for name, summary in _TIMES.items():
        to.add_argument(f"--{name.replace('_', '-')}", metavar="TIME", help=f"{summary}{clears}")


# --- remember


def _remember_arguments(to: Parser) -> None:
    add_text(to)
    _add_fields(to)
    add_no_mask(to)
    add_list(to, "--link", "RELATION:ID", "a link to another memory (repeatable)")
    to.add_argument("--replaces", metavar="ID", help="the memory that this one supersedes")
    to.add_argument("--key", help="an idempotency key: sent again, it is stored once")
    to.add_argument(
        "--batch", metavar="FILE", help="a file of JSON lines (or -), each an object with the fields of a memory"
    )


@command("remember", _remember_arguments, first_write=True, space_help=SPACE_TO_WRITE_HELP)
def _remember(call: Call) -> int:
    args = call.args
    if args.batch is not None:
        return _remember_lines(call)
    text = text_of(args, piped=True)
    if text is None:
        raise BadInput("there is nothing to remember", fix="give a text, - for standard input, or --file")
    receipt = call.book.remember(
        text,
        space=args.space,
        kind=args.kind or "note",
        title=args.title,
        tags=tags(args.tag or ()),
        importance=_importance(args.importance) if args.importance is not None else None,
        **{name: getattr(args, name) for name in _TIMES},
        links=[_parse_link(call, link) for link in args.link],
        replaces=call.resolve_id(args.replaces) if args.replaces is not None else None,
        key=args.key,
        metadata=metadata(args.meta or ()),
        mask=args.mask,
    )
    return call.print_answer(receipt, lambda out: memories.show_new(out, "Remembered", receipt))


def _importance(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadInput(f"importance {value!r} is not a number", fix="give a number from 0 to 1") from None


def _parse_link(call: Call, argument: str) -> tuple[str, str]:
    relation, colon, target = argument.partition(":")
    if not colon:
        raise BadInput(f"{argument!r} is not a link", fix="write it as RELATION:ID, such as related_to:7f3a9c2e")
    return relation, call.resolve_id(target)


# --- remember --batch

_BATCH_LINES: Final = 1000
# JSON can make a text six times as long, if every character is escaped.
_MAX_LINE_BYTES: Final = 6 * MAX_TEXT_BYTES + 1024 * 1024
_CHUNK_BYTES: Final = 2 * _MAX_LINE_BYTES
_NOT_WITH_BATCH: Final = (
    "text", "file", "title", "kind", "tag", "importance", "meta", *_TIMES, "link", "replaces", "key",
)  # fmt: skip


def _remember_lines(call: Call) -> int:
    """Remember every line of the file, and print each receipt when its transaction is durable."""
    if excluded := [name for name in _NOT_WITH_BATCH if getattr(call.args, name)]:
        raise BadInput(f"--batch takes no {excluded[0]}", fix="write the fields of each memory into its line")
    path = call.args.batch
    with nullcontext(standard_input()) if path == "-" else open_file(path) as file:
        total, done, new = _count(file), 0, 0
        for numbers, drafts in _chunks(file, mask=call.args.mask):
            for receipt in _remember_batch(call, numbers, drafts):
                call.print_answer(receipt, partial(memories.show_new, verb="Remembered", receipt=receipt))
                new += receipt.new
            call.flush()
            done += len(drafts)
            call.progress("remembering", done, total)
    call.reindex_if_many(new)
    return 0


def _remember_batch(call: Call, numbers: Sequence[int], drafts: Sequence[Draft]) -> list[Receipt]:
    try:
        return call.book.remember_many(drafts)
    except CommonbookError as error:
        # The book names the draft that it refused, if it was a single one; else the error concerns all these lines.
        item = getattr(error, "item", None)
        place = f"lines {numbers[0]} to {numbers[-1]}" if item is None else f"line {numbers[item]}"
        error.message = f"{place if len(numbers) > 1 else f'line {numbers[0]}'}: {error.message}"
        error.fix = _fix_with_resume(numbers[0], error.fix)
        raise


def _chunks(file: BinaryIO, *, mask: bool) -> Iterator[tuple[list[int], list[Draft]]]:
    """Yield batches of drafts with their line numbers, one batch for each transaction."""
    numbers: list[int] = []
    drafts: list[Draft] = []
    size = number = 0
    while line := _line(file, number + 1, numbers):
        number += 1
        if line.isspace():
            continue
        try:
            drafts.append(_draft(line, mask=mask))
        except CommonbookError as error:
            error.message = f"line {number}: {error.message}"
            error.fix = _fix_with_resume((numbers or [number])[0], error.fix)
            raise
        numbers.append(number)
        size += len(line)
        if len(drafts) == _BATCH_LINES or size > _CHUNK_BYTES:
            yield numbers, drafts
            numbers, drafts, size = [], [], 0
    if drafts:
        yield numbers, drafts


def _line(file: BinaryIO, number: int, waiting: Sequence[int]) -> bytes:
    try:
        line = file.readline(_MAX_LINE_BYTES + 1)
    except OSError as error:
        raise BadInput(f"the lines cannot be read: {error.strerror}", fix="name a file of JSON lines") from error
    if len(line) > _MAX_LINE_BYTES:
        fix = _fix_with_resume((waiting or [number])[0], "split the text into several memories")
        raise TooLarge(f"line {number}: it is longer than any memory in JSON", fix=fix)
    return line


def _fix_with_resume(first_line: int, fix: str) -> str:
    stored = f"lines 1 to {first_line - 1} are stored, " if first_line > 1 else "nothing is stored, "
    return f"{fix}; {stored}so send the file again from line {first_line}"


def _draft(line: bytes, *, mask: bool) -> Draft:
    """Return the draft in a line of JSON; only types are checked here, the book checks the values."""
    from commonbook.values.encoding import Malformed, decode_fields, fields_of

    given = {name: value for name, value in json_object(line).items() if value is not None}
    if isinstance(links := given.get("links"), list):
        given["links"] = [_link_pair(link) for link in links]
    fields = [field for field in fields_of(Draft) if field.name != "mask"]
    try:
        return Draft(**decode_fields(fields, given), mask=mask)
    except Malformed as error:
        raise BadInput(
            f"it is not a memory: {error}", fix='write an object such as {"text": "…", "tags": []}'
        ) from None


def _link_pair(link: object) -> object:
    """Return a link as a pair; it may be written as `show --json` prints it."""
    return [link.get("relation"), link.get("target")] if isinstance(link, dict) else link


def _count(file: BinaryIO) -> int:
    """Return the number of lines of a regular file, or 0 if it is not known in advance."""
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or file.tell():
            return 0
    except (OSError, ValueError):
        return 0
    count = 0
    while block := file.read(1 << 20):
        count += block.count(b"\n")
    file.seek(0)
    return count


# --- edit


def _edit_arguments(to: Parser) -> None:
    add_id(to)
    add_text(to)
    _add_fields(
        to,
        clears=" (none clears it)",
        tag="these tags in place of all others: one, or several with commas (repeatable)",
        meta="set this metadata, keep the rest; NAME= removes it, none removes all",
    )
    add_list(to, "--add-tag", "TAG", "add a tag (repeatable)")
    add_list(to, "--remove-tag", "TAG", "remove a tag (repeatable)")
    add_no_mask(to)
    to.add_argument("--to-revision", type=number, metavar="N", help="go back to the title and text of revision N")
    add_expected_version(to)


@command("edit", _edit_arguments)
def _edit(call: Call) -> int:
    args = call.args
    memory_id = call.resolve_id(args.id)
    text = text_of(args, piped=False)
    changes = _changes(args)
    expected = args.expected_version
    if text is not None:
        changes["text"] = text
    if args.meta and "metadata" not in changes:
        changes["metadata"], expected = _changed_metadata(call, memory_id, expected)
    if args.add_tag or args.remove_tag:
        changes["tags"], expected = _changed_tags(call, memory_id, changes.get("tags", UNSET), expected)
    if args.to_revision is not None:
        changes["to_revision"] = args.to_revision
    before = call.book.get(memory_id)
    if changes:
        receipt = call.book.edit(memory_id, **changes, expected_version=expected, mask=args.mask)
    elif is_terminal(sys.stdin) and is_terminal(sys.stdout):
        receipt = _edit_in_editor(call, before, expected_version=expected)
    else:
        raise BadInput("there is nothing to change", fix="give a text, - for standard input, --file, or a field")
    verb = "Not changed:" if _is_as_before(before, receipt, to_revision=args.to_revision) else "Edited"
    code = call.print_answer(receipt, lambda out: memories.show_receipt(out, verb, receipt))
    if receipt.copies:
        # If there are very many copies, a job updates the rest.
        call.work_briefly()
    return code


def _is_as_before(before: Memory, receipt: Receipt, *, to_revision: int | None) -> bool:
    """Return whether an edit changed nothing; one to the present revision takes a mark away without a new version."""
    return receipt.version == before.version and (to_revision is None or "reverted" not in before.marks)


def _changes(args: Namespace) -> dict[str, Any]:
    """Return the fields to change; an empty value, or `none` for a number or a time, clears a field."""
    changes: dict[str, Any] = {}
    if args.title is not None:
        changes["title"] = args.title or None
    if args.kind is not None:
        changes["kind"] = args.kind
    if args.tag is not None:
        changes["tags"] = tags(args.tag)
    if args.importance is not None:
        changes["importance"] = None if _clears_field(args.importance) else _importance(args.importance)
    if args.meta in (["none"], [""]):
        changes["metadata"] = None
    for name in _TIMES:
        value = getattr(args, name)
        if value is not None:
            changes[name] = None if _clears_field(value) else value
    return changes


def _changed_metadata(call: Call, memory_id: str, expected: int | None) -> tuple[dict[str, Any], int | None]:
    """Return the metadata with the given fields set, or removed by an empty value, and the version it was read from."""
    memory = call.book.get(memory_id)
    fields: dict[str, Any] = dict(memory.metadata)
    for value in call.args.meta:
        name, equals, word = value.partition("=")
        if equals and not word:
            fields.pop(name.strip(), None)
        else:
            fields |= metadata([value])
    return fields, memory.version if expected is None else expected


def _changed_tags(
    call: Call, memory_id: str, before: list[str] | Unset, expected: int | None
) -> tuple[list[str], int | None]:
    """Return the tags after additions and removals, and the version that they were read from."""
    if isinstance(before, Unset):
        memory = call.book.get(memory_id)
        before, expected = list(memory.tags), memory.version if expected is None else expected
    removed = {tag.casefold() for tag in tags(call.args.remove_tag)}
    kept = [tag for tag in (*before, *tags(call.args.add_tag)) if tag.casefold() not in removed]
    return kept, expected


def _clears_field(value: str) -> bool:
    return value.strip().lower() in ("", "none")


def _edit_in_editor(call: Call, memory: Memory, *, expected_version: int | None) -> Receipt:
    """Open the text of a memory in an editor, and save it with optimistic locking on the version.

    The typed text stays in a file if it cannot be saved.
    """
    path = _write_draft(memory.text)
    try:
        _open_editor(call.settings.editor or "vi", path)
        with open_file(path) as file:
            text = read_text(file, path)
        # Editors end a file with a new line, whether or not the text had one.
        if text.endswith("\n") and not memory.text.endswith("\n"):
            text = without_final_break(text)
        version = memory.version if expected_version is None else expected_version
        receipt = call.book.edit(memory.id, text=text, expected_version=version, mask=call.args.mask)
    except CommonbookError as error:
        error.fix = f"{error.fix}; your text is kept in {path}"
        raise
    except BaseException:
        print(f"commonbook: your text is kept in {path}", file=sys.stderr)
        raise
    os.unlink(path)
    return receipt


def _write_draft(text: str) -> str:
    import tempfile

    handle, path = tempfile.mkstemp(prefix="commonbook-", suffix=".md")
    with open(handle, "wb") as file:
        file.write(text.encode())
    return path


def _open_editor(editor: str, path: str) -> None:
    import subprocess

    fix = "set EDITOR or VISUAL to a command that edits a file and waits for you"
    try:
        command = shlex.split(editor)
        code = subprocess.run([*command, path], check=False).returncode  # noqa: S603 - the user's own command
    except (OSError, ValueError) as error:
        raise BadInput(f"the editor {editor!r} cannot be started: {error}", fix=fix) from error
    if code:
        raise BadInput(f"the editor {editor!r} ended with {code}, so nothing was saved", fix=fix)


# --- move, delete, undelete


def _move_arguments(to: Parser) -> None:
    add_id(to)
    to.add_argument("to", metavar="SPACE", help="the space to move it to")
    add_expected_version(to)


@command("move", _move_arguments)
def _move(call: Call) -> int:
    args = call.args
    receipt = call.book.move(call.resolve_id(args.id), args.to, expected_version=args.expected_version)
    return call.print_answer(receipt, lambda out: memories.show_receipt(out, "Moved", receipt, preposition="to"))


def _delete_arguments(to: Parser) -> None:
    to.add_argument("ids", metavar="ID", nargs="*", help=ID_HELP)
    add_filter(to)
    add_confirmation(to, "only show which memories would be deleted")
    add_expected_version(to)


@command("delete", _delete_arguments)
def _delete(call: Call) -> int:
    args = call.args
    selection = filter_of(args)
    if args.ids:
        if selection != Filter():
            raise BadInput("both ids and a filter are given", fix="give ids, or a filter, not both")
        ids = [call.resolve_id(part) for part in args.ids]
        # A script names its ids and is not asked.
        asks = not args.dry_run and not args.yes and is_terminal(sys.stdin)
        if asks and not _confirm_delete(call, call.book.delete(*ids, dry_run=True)):
            ids = []
        deletion = call.book.delete(*ids, expected_version=args.expected_version, dry_run=args.dry_run)
    elif args.expected_version is not None:
        raise BadInput("--expected-version needs a single memory", fix="give the id of the memory")
    elif args.dry_run or args.yes:
        deletion = call.book.delete_where(selection, dry_run=args.dry_run)
    else:
        matches = call.book.delete_where(selection, dry_run=True)
        # Delete exactly the memories that were counted, not those that came since.
        deletion = call.book.delete(*(matches.ids if _confirm_delete(call, matches) else ()))
    return call.print_answer(deletion, lambda out: memories.show_deletion(out, deletion))


def _confirm_delete(call: Call, matches: Deleted) -> bool:
    """Name the memories that would be deleted, and ask on the terminal."""
    count = len(matches.ids)
    subject = counted(count, "memory")
    if not is_terminal(sys.stdin):
        raise BadInput(
            f"{subject} would be deleted, and there is no terminal to ask for confirmation",
            fix="look at them with --dry-run, then delete them with --yes",
        )
    if not count:
        return False
    call.progress.pause()
    for title in matches.titles[:_MAX_TITLES]:
        print(f"  {clean(title)}", file=sys.stderr)
    if count > _MAX_TITLES:
        print(f"  and {count - _MAX_TITLES} more: --dry-run lists all", file=sys.stderr)
    return confirm(f"Delete {subject}?")


@command("undelete", add_id)
def _undelete(call: Call) -> int:
    memory_id = _live_or_deleted_id(call, call.args.id)
    verb = "Not deleted:" if _is_live(call, memory_id) else "Undeleted"
    receipt = call.book.undelete(memory_id)
    code = call.print_answer(receipt, lambda out: memories.show_receipt(out, verb, receipt))
    if receipt.copies:
        call.work_briefly()
    return code


def _is_live(call: Call, memory_id: str) -> bool:
    try:
        return call.book.get(memory_id).deleted is None
    except NotFound:
        return False


def _live_or_deleted_id(call: Call, part: str) -> str:
    """Return the id of a memory, deleted or not, by its id, some of its digits, its title or the name of its file."""
    try:
        return call.resolve_id(part)
    except NotFound as error:
        named = _deleted_by_name(call, part)
        if not named:
            fix = "`commonbook list` shows what there is, `commonbook list --deleted` what was deleted"
            raise NotFound(error.message, fix=fix) from None
    if len(named) > 1:
        raise Ambiguous(
            f"several deleted memories have that name: {', '.join(named[:_MAX_NAMED])}", fix="give the id of one"
        )
    return named[0]


def _deleted_by_name(call: Call, name: str) -> list[str]:
    """Return the ids of the deleted memories with this title, file name or path, the newest first."""
    wanted, ids, after = name.strip().casefold(), [], None
    while True:
        page = call.book.list(Filter(deleted=True), limit=_PAGE, after=after)
        for memory in page.items:
            path = memory.path.casefold()
            file = path.rpartition("/")[2]
            if wanted in (memory.title.casefold(), path, file, file.removesuffix(".md")):
                ids.append(memory.id)
        if page.next is None:
            return ids
        after = page.next


# --- links


def _link_arguments(to: Parser) -> None:
    add_id(to)
    to.add_argument("relation", metavar="RELATION", help="such as related_to, derived_from, contradicts or supersedes")
    to.add_argument("target", metavar="OTHER", help="the other memory, in the same way")


@command("link", _link_arguments)
def _link(call: Call) -> int:
    args = call.args
    receipt = call.book.link(call.resolve_id(args.id), args.relation, call.resolve_id(args.target))
    return call.print_answer(receipt, lambda out: memories.show_receipt(out, "Linked", receipt))


@command("unlink", _link_arguments)
def _unlink(call: Call) -> int:
    args = call.args
    receipt = call.book.unlink(call.resolve_id(args.id), args.relation, call.resolve_id(args.target))
    return call.print_answer(receipt, lambda out: memories.show_receipt(out, "Unlinked", receipt))


@command("links", add_id)
def _links(call: Call) -> int:
    from commonbook.interfaces.cli.output import reasoning

    memory_id = call.resolve_id(call.args.id)
    links = call.book.links(memory_id)
    ends = {id_ for link in links for id_ in (link.source, link.target)}
    return call.print_answer(
        links, lambda out: memories.show_links(out, memory_id, links, reasoning.titles(call.book, ends))
    )


# --- reading


def _show_arguments(to: Parser) -> None:
    add_id(to)
    to.add_argument("--used", action="store_true", help="show which sessions and turns it was put into by hooks")


@command("show", _show_arguments)
def _show(call: Call) -> int:
    if call.args.used:
        return _show_uses(call)
    memory = _live_memory(call, _live_or_deleted_id(call, call.args.id))
    return call.print_answer(memory, lambda out: _show_for_people(call, out, memory))


def _show_for_people(call: Call, out: Output, memory: Memory) -> None:
    """Show a memory with its links in both directions, and the titles of the memories that it names."""
    from commonbook.interfaces.cli.output import reasoning

    links = call.book.links(memory.id)
    memories.show_memory(out, memory, links, reasoning.titles_in(call.book, memory, links))


def _live_memory(call: Call, memory_id: str) -> Memory:
    """Return a memory; of a deleted one the error says so."""
    try:
        return call.book.get(memory_id)
    except NotFound:
        title = _deleted_title(call, memory_id)
        if title is None:
            raise
    fix = f"`commonbook undelete {memory_id}` brings it back, `commonbook history {memory_id}` shows it"
    raise NotFound(f"the memory {title!r} was deleted", fix=fix)


def _deleted_title(call: Call, memory_id: str) -> str | None:
    with suppress(NotFound):
        last = call.book.history(memory_id)[-1]
        return last.title if last.readable else None
    return None


def _show_uses(call: Call) -> int:
    from commonbook.interfaces.cli.output import sessions

    used = call.book.uses(call.resolve_id(call.args.id), limit=_MAX_USES)
    return call.print_answer(used, lambda out: sessions.show_uses(out, used))


def _list_arguments(to: Parser) -> None:
    add_filter(to)
    to.add_argument("--deleted", action="store_true", help="list deleted memories")
    to.add_argument("--limit", type=int, default=50, metavar="N", help="how many (50)")
    to.add_argument("--after", metavar="CURSOR", help="continue after a page: its `next`")


@command("list", _list_arguments)
def _list(call: Call) -> int:
    args = call.args
    page = call.book.list(filter_of(args), limit=args.limit, after=args.after)
    notes = call.notes_on_spaces([args.space]) if args.space and not page.items else []
    answer = {**page._asdict(), "notes": notes} if notes else page
    return call.print_answer(answer, lambda out: memories.show_page(out, page, notes=notes))


def _history_arguments(to: Parser) -> None:
    add_id(to)
    to.add_argument(
        "--diff", action=argparse.BooleanOptionalAction, default=True, help="show what each revision changed"
    )


@command("history", _history_arguments)
def _history(call: Call) -> int:
    memory_id = _live_or_deleted_id(call, call.args.id)
    revisions = call.book.history(memory_id)

    def show(out: Output) -> None:
        memories.show_history(out, revisions, with_diffs=call.args.diff)
        successor, why = _successor(call, memory_id)
        if successor:
            memories.show_successor(out, successor, why)

    return call.print_answer(revisions, show)


def _successor(call: Call, memory_id: str) -> tuple[Memory | None, str]:
    """Return the memory that supersedes this one, as far as the actor may read it, and the reason."""
    # A deleted memory has a history, and no successor that counts.
    with suppress(NotFound):
        if superseded_by := call.book.get(memory_id).superseded_by:
            successor = call.book.get(superseded_by)
            reasons = [reason.why for reason in successor.supersede_reasons if reason.superseded == memory_id]
            return successor, "; ".join(reasons)
    return None, ""
