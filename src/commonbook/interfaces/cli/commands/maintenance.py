"""Commands about the whole book: status, doctor, rebuild, reindex, audit, database."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from commonbook.errors import NotFound
from commonbook.interfaces.cli.arguments import amount, number
from commonbook.interfaces.cli.commands import command
from commonbook.interfaces.cli.output import is_terminal, reports

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.output import Output
    from commonbook.interfaces.cli.parser import Parser
    from commonbook.values.reports import LogEntry


@command("rebuild")
def _rebuild(call: Call) -> int:
    report = call.book.rebuild(progress=call.progress)
    return call.print_answer(report, lambda out: reports.show_sync_report(out, report))


def _reindex_arguments(to: Parser) -> None:
    to.add_argument("--anew", action="store_true", help="delete the index and build it again")


@command("reindex", _reindex_arguments)
def _reindex(call: Call) -> int:
    count = call.book.reindex(anew=call.args.anew, progress=call.progress)
    return call.print_answer(count, lambda out: reports.show_reindexed(out, count))


def _doctor_arguments(to: Parser) -> None:
    to.add_argument("--accept", action="store_true", help="delete the memories whose files were removed")


@command("doctor", _doctor_arguments)
def _doctor(call: Call) -> int:
    if call.args.accept:
        call.book.accept_deletions()
    findings = call.book.doctor(progress=call.progress)
    return call.print_answer(
        findings, lambda out: reports.show_findings(out, findings, fine="nothing is wrong"), ok=not findings
    )


@command("status")
def _status(call: Call) -> int:
    status, hooks = call.book.status(), _hook_reports(call)

    def show(out: Output) -> None:
        reports.show_status(out, status, server=call.url)
        call.note_home(out)
        for client, report in hooks.items():
            out.line(_hook_line(client, report))

    return call.print_answer({**status._asdict(), "hooks": hooks} if hooks else status, show)


def _hook_reports(call: Call) -> dict[str, dict[str, Any]]:
    """Return what the hooks of agents did in this home, for its owner, or on this machine for a server."""
    folder = os.path.join(call.settings.home, ".commonbook")
    is_owner = call.args.actor is None and call.settings.key is None
    if call.url is not None:
        from commonbook.core.settings.remote import RemoteSettings

        folder, is_owner = RemoteSettings.load().outboxes, True
    if not is_owner or not os.path.isdir(os.path.join(folder, "hooks")):
        return {}
    from commonbook.interfaces.agents.hooks import folder as hook_folder

    return hook_folder.reports(folder)


def _hook_line(client: str, report: Mapping[str, Any]) -> str:
    done = f"{report.get('events', 0)} events, {report.get('stored', 0)} messages stored"
    used = f"{report.get('injected', 0)} passages added to prompts"
    trouble = [f"{report['cut']} cut off by the deadline"] if report.get("cut") else []
    trouble += [f"{report[name]} {name}" for name in ("failed", "waiting", "refused") if report.get(name)]
    last = f"; last {report.get('last', '')} at {report.get('at', '')}"
    error = f"; last error: {report['error']}" if report.get("error") else ""
    return f"hooks of {client}: {', '.join([done, used, *trouble])}{last}{error}"


# --- the log


@command("audit verify", summary="verify the hash chain and the signatures of the log of --space, or of all spaces")
def _verify(call: Call) -> int:
    report = call.book.verify_log(space=call.args.space, progress=call.progress)
    return call.print_answer(report, lambda out: reports.show_log_report(out, report), ok=report.ok)


def _list_log_arguments(to: Parser) -> None:
    to.add_argument("--after", type=number, default=0, metavar="N", help="only entries after number N")
    to.add_argument("--limit", type=amount, default=100, metavar="N", help="how many (100)")


@command("audit list", _list_log_arguments, summary="list the entries of a space's log")
def _list_log(call: Call) -> int:
    args = call.args
    space = call.book.default_space if args.space is None else args.space
    entries = call.book.log(space=space, after=args.after, limit=args.limit)
    return call.print_answer(entries, lambda out: _show_log(call, out, space=space, entries=entries))


def _show_log(call: Call, out: Output, *, space: str, entries: Sequence[LogEntry]) -> None:
    """Show a page of the log; on a terminal with the titles of memories, and how to see the rest."""
    if is_terminal(sys.stdout):
        reports.show_entries(out, entries, _titles(call, reports.memory_ids(entries)))
        if call.args.space is None:
            out.note(f"this is the log of {space}; --space names another")
    else:
        reports.show_stored_entries(out, entries)
    if entries and call.book.log(space=space, after=entries[-1].seq, limit=1):
        out.note(f"there are more: --after {entries[-1].seq}")


def _titles(call: Call, ids: set[str]) -> dict[str, str]:
    """Return the titles of memories by id, also of deleted ones, as far as the actor may read them."""
    from commonbook.interfaces.cli.output import reasoning

    titles = reasoning.titles(call.book, ids)
    for id_ in ids - titles.keys():
        with suppress(NotFound):
            last = call.book.history(id_)[-1]
            titles |= {id_: last.title} if last.readable else {}
    return titles


def _keys_arguments(to: Parser) -> None:
    to.add_argument(
        "folder", metavar="FOLDER", help="the folder for the keys; every server needs it as COMMONBOOK_KEYS"
    )


@command(
    "audit keys",
    _keys_arguments,
    summary="create the signing keys for a book on PostgreSQL, once for all its servers",
    book="none",
    local=True,
)
def _make_keys(call: Call) -> int:
    from commonbook.compose.databases import make_keys

    folder, key = os.path.abspath(call.args.folder), make_keys(call.args.folder)
    return call.print_answer({"folder": folder, "key_id": key}, lambda out: out.line(f"The key {key} is in {folder}."))


# --- the database


def _index_arguments(to: Parser) -> None:
    to.add_argument("name", metavar="SPACE", help="a space of more than 200,000 passages")
    to.add_argument("--drop", action="store_true", help="drop the index: all vectors are compared again")


@command(
    "database index",
    _index_arguments,
    summary="search a space by a vector index, in place of comparing all its vectors",
    book="none",
    local=True,
)
def _database_index(call: Call) -> int:
    from commonbook.compose.databases import drop_vector_index, make_vector_index

    call.require_owner("the owner of the book decides about its database")
    space, drop = call.args.name, call.args.drop
    with call.progress:
        if drop:
            drop_vector_index(call.settings, space)
        else:
            make_vector_index(call.settings, space, call.progress)
    what = "has no vector index any more" if drop else "is searched by a vector index"
    return call.print_answer({"space": space, "indexed": not drop}, lambda out: out.line(f"The space {space} {what}."))
