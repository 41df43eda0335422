"""Commands about the whole home: import, export, rebuild, reindex, doctor, status, audit, backup, restore, migrate,
database.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import BadInput, NotAllowed, NotFound
from commonbook.interfaces import json_reports
from commonbook.interfaces.cli.output import memories
from commonbook.interfaces.cli.output.plain import clean, is_terminal
from commonbook.settings.settings import Settings

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.interfaces.cli.output.plain import Output
    from commonbook.model.reports import LogEntry


def _import(call: Call) -> int:
    args = call.args
    report = call.book.import_folder(
        args.folder,
        space=args.space,
        folders_as_spaces=args.folders_as_spaces,
        include=args.include,
        exclude=args.exclude,
        okf=args.okf,
        dry_run=args.dry_run,
        mask=args.mask,
        progress=call.progress,
    )
    verb = "Would import" if args.dry_run else "Imported"
    code = call.print_answer(
        json_reports.transfer_report_json(report), lambda out: memories.show_transfer_report(out, verb, report)
    )
    call.reindex_if_many(0 if args.dry_run else report.done + report.updated)
    return code


def _export(call: Call) -> int:
    args = call.args
    report = call.book.export(
        args.target,
        space=args.space,
        okf=args.okf,
        include=args.include,
        exclude=args.exclude,
        progress=call.progress,
    )
    return call.print_answer(
        json_reports.transfer_report_json(report), lambda out: memories.show_transfer_report(out, "Exported", report)
    )


def _rebuild(call: Call) -> int:
    report = call.book.rebuild(progress=call.progress)
    return call.print_answer(json_reports.sync_report_json(report), lambda out: memories.show_sync_report(out, report))


def _reindex(call: Call) -> int:
    count = call.book.reindex(anew=call.args.anew, progress=call.progress)
    return call.print_answer({"memories": count}, lambda out: memories.show_reindexed(out, count))


def _doctor(call: Call) -> int:
    accepted = call.book.accept_deletions() if call.args.accept else None
    findings = call.book.doctor(progress=call.progress)
    return call.print_answer(
        json_reports.doctor_json(findings, accepted),
        lambda out: memories.show_findings(out, findings, fine="nothing is wrong"),
        ok=not findings,
    )


def _status(call: Call) -> int:
    status, hooks = call.book.status(), _hook_reports(call)
    data = {**json_reports.status_json(status), **({"hooks": hooks} if hooks else {})}

    def show(out: Output) -> None:
        memories.show_status(out, status)
        for client, report in hooks.items():
            out.line(_hook_line(client, report))

    return call.print_answer(data, show)


def _hook_reports(call: Call) -> dict[str, dict[str, Any]]:
    """Return what the hooks of agents did in this home, for its owner, or on this machine for a server."""
    folder = os.path.join(call.settings.home, ".commonbook")
    is_owner = call.args.actor is None and call.settings.key is None
    if call.args.url is not None:
        from commonbook.settings.remote import RemoteSettings

        folder, is_owner = RemoteSettings.load().outboxes, True
    if not is_owner or not os.path.isdir(os.path.join(folder, "hooks")):
        return {}
    from commonbook.interfaces.agents.hooks.folder import reports

    return reports(folder)


def _hook_line(client: str, report: Mapping[str, Any]) -> str:
    done = f"{report.get('events', 0)} events, {report.get('stored', 0)} messages stored"
    used = f"{report.get('injected', 0)} passages added to prompts"
    trouble = [f"{report['cut']} cut off by the deadline"] if report.get("cut") else []
    trouble += [f"{report[name]} {name}" for name in ("failed", "waiting", "refused") if report.get(name)]
    last = f"; last {report.get('last', '')} at {report.get('at', '')}"
    error = f"; last error: {report['error']}" if report.get("error") else ""
    return f"hooks of {client}: {', '.join([done, used, *trouble])}{last}{error}"


def _verify(call: Call) -> int:
    report = call.book.verify_log(space=call.args.space, progress=call.progress)
    return call.print_answer(
        json_reports.log_report_json(report), lambda out: memories.show_log_report(out, report), ok=report.ok
    )


def _log(call: Call) -> int:
    args = call.args
    space = call.book.default_space if args.space is None else args.space
    entries = call.book.log(space=space, after=args.after, limit=args.limit)
    return call.print_answer(
        json_reports.log_json(space, entries), lambda out: _show_log(call, out, space=space, entries=entries)
    )


def _show_log(call: Call, out: Output, *, space: str, entries: Sequence[LogEntry]) -> None:
    """Show a page of the log; on a terminal with the titles of memories, and how to see the rest."""
    from commonbook.interfaces.cli.output import log_entries

    if is_terminal(sys.stdout):
        log_entries.show_for_people(out, entries, _titles(call, log_entries.memory_ids(entries)))
        if call.args.space is None:
            out.note(f"this is the log of {space}; --space names another")
    else:
        log_entries.show_stored(out, entries)
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


def _make_keys(call: Call) -> int:
    from commonbook.compose.migration import make_keys

    folder, key = os.path.abspath(call.args.folder), make_keys(call.args.folder)
    return call.print_answer({"folder": folder, "key_id": key}, lambda out: out.line(f"The key {key} is in {folder}."))


def _backup(call: Call) -> int:
    from commonbook.compose.backup import backup_home

    _require_owner(call)
    with call.progress:
        report = backup_home(call.settings, call.args.target, progress=call.progress)
    return call.print_answer(
        json_reports.backup_report_json(report), lambda out: memories.show_backup_report(out, report)
    )


def _restore(call: Call) -> int:
    from commonbook.compose.backup import restore_home

    _require_owner(call)
    settings = call.settings if call.args.folder is None else Settings.load(call.args.folder)
    with call.progress:
        report = restore_home(settings, call.args.backup, progress=call.progress)
    return call.print_answer(
        json_reports.restore_report_json(report),
        lambda out: memories.show_restore_report(out, report),
        ok=not report.findings,
    )


def _require_owner(call: Call, why: str = "a backup has everything, also what others may not read") -> None:
    if call.args.actor is not None or call.settings.key is not None:
        raise NotAllowed(why, fix="leave out --as and the key")


def _database_index(call: Call) -> int:
    from commonbook.compose.vector_index import drop_vector_index, make_vector_index

    _require_owner(call, "the owner of the book decides about its database")
    space, drop = call.args.name, call.args.drop
    with call.progress:
        if drop:
            drop_vector_index(call.settings, space)
        else:
            make_vector_index(call.settings, space, call.progress)
    what = "has no vector index any more" if drop else "is searched by a vector index"
    return call.print_answer({"space": space, "indexed": not drop}, lambda out: out.line(f"The space {space} {what}."))


def _migrate(call: Call) -> int:
    from commonbook.compose.migration import migrate_book, unlock_book

    if call.args.unlock:
        unlocked = unlock_book(call.settings)
        text = "The book can be written to again." if unlocked else "The book is not being moved."
        return call.print_answer({"unlocked": unlocked}, lambda out: out.line(text))
    if call.args.to is None:
        raise BadInput("the place to move to is missing", fix="`commonbook migrate TO`")
    # A script is not asked.
    if not call.args.yes and is_terminal(sys.stdin) and not _confirm_migration(call):
        return call.print_answer({"to": call.args.to, "migrated": False}, lambda out: out.line("Nothing was moved."))
    with call.progress:
        report = migrate_book(call.settings, call.args.to, progress=call.progress)
    return call.print_answer(
        json_reports.migration_report_json(report), lambda out: memories.show_migration_report(out, report)
    )


def _confirm_migration(call: Call) -> bool:
    call.progress.pause()
    question = f"Move the book to {call.args.to}? This one becomes read-only, for good. [y/N] "
    print(clean(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


COMMANDS: Final[Mapping[str, Command]] = {
    "import": _import,
    "export": _export,
    "rebuild": _rebuild,
    "reindex": _reindex,
    "doctor": _doctor,
    "status": _status,
    "audit verify": _verify,
    "audit list": _log,
    "audit keys": _make_keys,
    "backup": _backup,
    "restore": _restore,
    "migrate": _migrate,
    "database index": _database_index,
}
