"""Commands on memories: remember, edit, move, delete, undelete, link, recall, show, list, history."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import Ambiguous, BadInput, NotFound
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.input import text as input_text
from commonbook.interfaces.cli.output import memories, plain
from commonbook.interfaces.cli.output.plain import is_terminal
from commonbook.model.memory import UNSET, Filter, Unset
from commonbook.settings.settings import PERSONAL

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.interfaces.cli.output.plain import Output
    from commonbook.model.memory import Deleted, Memory, Receipt


_TIMES: Final = ("occurred", "valid_from", "valid_until", "expires")
_MAX_HITS: Final = 10
_MAX_PROMPT_HITS: Final = 50
_MAX_TITLES: Final = 20
"""So many titles are named before a confirmation."""


_MAX_USES: Final = 500
_MAX_NAMED: Final = 5
"""An error names at most so many memories."""
_PAGE: Final = 500


# --- writing


def _remember(call: Call) -> int:
    args = call.args
    if args.batch is not None:
        from commonbook.interfaces.cli.commands.batch import remember_lines

        return remember_lines(call)
    text = input_text.text_of(args, piped=True)
    if text is None:
        raise BadInput("there is nothing to remember", fix="give a text, - for standard input, or --file")
    receipt = call.book.remember(
        text,
        space=args.space,
        kind=args.kind or "note",
        title=args.title,
        tags=input_text.tags(args.tag or ()),
        importance=_importance(args.importance) if args.importance is not None else None,
        **{name: getattr(args, name) for name in _TIMES},
        links=[_parse_link(call, link) for link in args.link],
        replaces=call.resolve_id(args.replaces) if args.replaces is not None else None,
        key=args.key,
        metadata=input_text.metadata(args.meta or ()),
        mask=args.mask,
    )
    if not receipt.new:
        return call.print_answer(json_values.receipt_json(receipt), lambda out: memories.show_repeated(out, receipt))
    return call.print_answer(
        json_values.receipt_json(receipt), lambda out: memories.show_receipt(out, "Remembered", receipt)
    )


def _edit(call: Call) -> int:
    args = call.args
    memory_id = call.resolve_id(args.id)
    text = input_text.text_of(args, piped=False)
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
        from commonbook.interfaces.cli.commands.edit import edit_in_editor

        receipt = edit_in_editor(
            call.book, before, call.settings.editor or "vi", expected_version=expected, mask=args.mask
        )
    else:
        raise BadInput("there is nothing to change", fix="give a text, - for standard input, --file, or a field")
    verb = "Not changed:" if _is_as_before(before, receipt, to_revision=args.to_revision) else "Edited"
    code = call.print_answer(json_values.receipt_json(receipt), lambda out: memories.show_receipt(out, verb, receipt))
    if receipt.copies:
        # If there are very many copies, a job updates the rest.
        call.work_briefly()
    return code


def _is_as_before(before: Memory, receipt: Receipt, *, to_revision: int | None) -> bool:
    """Tell whether an edit changed nothing; one to the present revision takes a mark away without a new version."""
    return receipt.version == before.version and (to_revision is None or "reverted" not in before.marks)


def _changes(args: Namespace) -> dict[str, Any]:
    """Return the fields to change; an empty value, or `none` for a number or a time, clears a field."""
    changes: dict[str, Any] = {}
    if args.title is not None:
        changes["title"] = args.title or None
    if args.kind is not None:
        changes["kind"] = args.kind
    if args.tag is not None:
        changes["tags"] = input_text.tags(args.tag)
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
            fields |= input_text.metadata([value])
    return fields, memory.version if expected is None else expected


def _changed_tags(
    call: Call, memory_id: str, tags: list[str] | Unset, expected: int | None
) -> tuple[list[str], int | None]:
    """Return the tags after additions and removals, and the version that they were read from."""
    if isinstance(tags, Unset):
        memory = call.book.get(memory_id)
        tags, expected = list(memory.tags), memory.version if expected is None else expected
    removed = {tag.casefold() for tag in input_text.tags(call.args.remove_tag)}
    kept = [tag for tag in (*tags, *input_text.tags(call.args.add_tag)) if tag.casefold() not in removed]
    return kept, expected


def _move(call: Call) -> int:
    args = call.args
    receipt = call.book.move(call.resolve_id(args.id), args.to, expected_version=args.expected_version)
    return call.print_answer(
        json_values.receipt_json(receipt),
        lambda out: memories.show_receipt(out, "Moved", receipt, preposition="to"),
    )


def _delete(call: Call) -> int:
    args = call.args
    selection = _filter(args)
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
    return call.print_answer(json_values.deletion_json(deletion), lambda out: memories.show_deletion(out, deletion))


def _confirm_delete(call: Call, matches: Deleted) -> bool:
    """Name the memories that would be deleted, and ask on the terminal."""
    count = len(matches.ids)
    subject = f"{count} {'memory' if count == 1 else 'memories'}"
    if not is_terminal(sys.stdin):
        raise BadInput(
            f"{subject} would be deleted, and there is no terminal to ask for confirmation",
            fix="look at them with --dry-run, then delete them with --yes",
        )
    if not count:
        return False
    call.progress.pause()
    for title in matches.titles[:_MAX_TITLES]:
        print(f"  {plain.clean(title)}", file=sys.stderr)
    if count > _MAX_TITLES:
        print(f"  and {count - _MAX_TITLES} more: --dry-run lists all", file=sys.stderr)
    print(f"Delete {subject}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _undelete(call: Call) -> int:
    memory_id = _live_or_deleted_id(call, call.args.id)
    verb = "Not deleted:" if _is_live(call, memory_id) else "Undeleted"
    receipt = call.book.undelete(memory_id)
    code = call.print_answer(json_values.receipt_json(receipt), lambda out: memories.show_receipt(out, verb, receipt))
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


def _link(call: Call) -> int:
    args = call.args
    receipt = call.book.link(call.resolve_id(args.id), args.relation, call.resolve_id(args.target))
    return call.print_answer(
        json_values.receipt_json(receipt), lambda out: memories.show_receipt(out, "Linked", receipt)
    )


def _unlink(call: Call) -> int:
    args = call.args
    receipt = call.book.unlink(call.resolve_id(args.id), args.relation, call.resolve_id(args.target))
    return call.print_answer(
        json_values.receipt_json(receipt), lambda out: memories.show_receipt(out, "Unlinked", receipt)
    )


# --- reading


def _show(call: Call) -> int:
    from commonbook.interfaces.cli.output import reasoning

    if call.args.used:
        return _show_uses(call)
    memory = _live_memory(call, _live_or_deleted_id(call, call.args.id))
    links = call.book.links(memory.id)
    return call.print_answer(
        json_values.memory_with_links_json(memory, links),
        lambda out: memories.show_memory(out, memory, links, reasoning.titles_in(call.book, memory, links)),
    )


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
    return call.print_answer(json_values.uses_json(used), lambda out: sessions.show_uses(out, used))


def _links(call: Call) -> int:
    from commonbook.interfaces.cli.output import reasoning

    memory_id = call.resolve_id(call.args.id)
    links = call.book.links(memory_id)
    ends = {id_ for link in links for id_ in (link.source, link.target)}
    return call.print_answer(
        json_values.links_json(links),
        lambda out: memories.show_links(out, memory_id, links, reasoning.titles(call.book, ends)),
    )


def _list(call: Call) -> int:
    args = call.args
    page = call.book.list(_filter(args), limit=args.limit, after=args.after)
    notes = call.notes_on_spaces([args.space]) if args.space and not page.items else []
    return call.print_answer(
        _with_notes(json_values.page_json(page), notes),
        lambda out: memories.show_page(out, page, notes=notes),
    )


def _with_notes(data: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return an answer with further notes, if there are any."""
    return {**data, "notes": [*data.get("notes", ()), *notes]} if notes else data


def _recall(call: Call) -> int:
    from commonbook.interfaces.cli.output import hits

    args = call.args
    if args.prompt is not None and args.prompt < 1:
        raise BadInput(f"a prompt of {args.prompt} tokens has room for nothing", fix="give at least 1")
    selection = _filter(args)
    spaces = ([args.space] if args.space else []) + args.spaces
    result = call.book.recall(
        _query_text(args.query),
        spaces=spaces,
        k=_max_hits(args),
        kinds=selection.kinds,
        tags=selection.tags,
        session=args.session,
        author=args.author,
        metadata=selection.metadata,
        since=selection.since,
        until=selection.until,
        as_of=args.as_of,
        min_confidence=args.min_confidence,
        budget_tokens=args.budget_tokens,
        include=[name.strip() for value in args.include for name in value.split(",")],
        # Output for people always highlights the matched words.
        explain=args.explain or not args.json,
        progress=call.progress,
    )
    where = " and ".join(spaces or dict.fromkeys((call.book.default_space, PERSONAL)))
    notes = call.notes_on_spaces(spaces) if spaces and not result.hits else []
    data = _with_notes(json_values.recall_result_json(result, explain=args.explain), notes)
    if args.prompt is not None:
        prompt = result.as_prompt(max_tokens=args.prompt)
        show = partial(hits.show_prompt, prompt=prompt, result=result, where=where)
        data["prompt"] = prompt
    else:
        show = partial(
            hits.show_recall_result,
            result=result,
            where=where,
            explain=args.explain,
            min_confidence=args.min_confidence,
        )
    hints = call.wider_searches(spaces) if not args.json and not result.hits else []
    return call.print_answer(data, lambda out: _show_with_notes(out, show, [*notes, *hints]))


def _show_with_notes(out: Output, show: Callable[[Output], None], notes: list[str]) -> None:
    show(out)
    for note in notes:
        out.note(note)


def _max_hits(args: Namespace) -> int:
    """Return how many hits are wanted; a prompt is filled better with more."""
    default = _MAX_HITS if args.prompt is None else _MAX_PROMPT_HITS
    return default if args.k is None else int(args.k)


def _query_text(words: list[str]) -> str:
    return input_text.read_standard_input() if words == ["-"] else " ".join(words)


def _history(call: Call) -> int:
    from commonbook.interfaces.cli.output.memories import diffs_of

    memory_id = _live_or_deleted_id(call, call.args.id)
    revisions = call.book.history(memory_id)
    diffs = diffs_of(revisions) if call.args.diff else [None] * len(revisions)
    successor, why = _successor(call, memory_id)

    def show(out: Output) -> None:
        memories.show_history(out, revisions, diffs)
        if successor:
            memories.show_successor(out, successor, why)

    superseded_by = successor.id if successor else None
    data = json_values.history_json(memory_id, revisions, diffs)
    return call.print_answer({**data, "superseded_by": superseded_by, "superseded_why": why or None}, show)


def _successor(call: Call, memory_id: str) -> tuple[Memory | None, str]:
    """Return the memory that supersedes this one, as far as the actor may read it, and the reason."""
    # A deleted memory has a history, and no successor that counts.
    with suppress(NotFound):
        if superseded_by := call.book.get(memory_id).superseded_by:
            successor = call.book.get(superseded_by)
            reasons = [reason.why for reason in successor.supersede_reasons if reason.superseded == memory_id]
            return successor, "; ".join(reasons)
    return None, ""


# --- arguments into values


def _filter(args: Namespace) -> Filter:
    """Return the filter options as a filter; without --space it covers every space."""
    return Filter(
        space=args.space,
        kinds=tuple(args.kind),
        # An empty tag is passed on, so that the book refuses it: an unset variable must not mean every memory.
        tags=tuple(tag for value in args.tag for tag in value.split(",")),
        since=args.since,
        until=args.until,
        deleted=getattr(args, "deleted", False),
        metadata=input_text.metadata(args.meta),
    )


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


def _clears_field(value: str) -> bool:
    return value.strip().lower() in ("", "none")


COMMANDS: Final[Mapping[str, Command]] = {
    "remember": _remember,
    "edit": _edit,
    "move": _move,
    "delete": _delete,
    "undelete": _undelete,
    "link": _link,
    "unlink": _unlink,
    "links": _links,
    "recall": _recall,
    "show": _show,
    "list": _list,
    "history": _history,
}
