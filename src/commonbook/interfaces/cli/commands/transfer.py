"""Commands that take a book in, out or elsewhere: import, export, backup, restore, migrate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from commonbook.core.settings.settings import Settings
from commonbook.errors import BadInput
from commonbook.interfaces.cli.arguments import add_list, add_no_mask, add_yes, confirm
from commonbook.interfaces.cli.commands import SPACE_TO_WRITE_HELP, command
from commonbook.interfaces.cli.output import clean, is_terminal, reports

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.parser import Parser

_BACKUP_HAS_ALL = "a backup has everything, also what others may not read"


def _add_path_filter(to: Parser) -> None:
    for name, what in (("include", "only files and folders"), ("exclude", "no files and folders")):
        add_list(to, f"--{name}", "GLOB", f"{what} that match, such as '*.pdf' or 'Work/*' (repeatable)")


def _import_arguments(to: Parser) -> None:
    to.add_argument("folder", metavar="FOLDER", help="such as an Obsidian vault")
    add_no_mask(to)
    to.add_argument("--folders-as-spaces", action="store_true", help="each folder with the name of a space is one")
    to.add_argument("--okf", action="store_true", help="read it as a bundle in the Open Knowledge Format")
    to.add_argument("--dry-run", action="store_true", help="only show what would be done")
    _add_path_filter(to)


@command("import", _import_arguments, first_write=True, space_help=SPACE_TO_WRITE_HELP)
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
    code = call.print_answer(report, lambda out: reports.show_transfer_report(out, verb, report))
    call.reindex_if_many(0 if args.dry_run else report.done + report.updated)
    return code


def _export_arguments(to: Parser) -> None:
    to.add_argument("target", metavar="TARGET", help="a folder, or an archive (.zip, .tar.gz)")
    to.add_argument("--okf", action="store_true", help="as a bundle in the Open Knowledge Format, for other programs")
    _add_path_filter(to)


@command("export", _export_arguments)
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
    return call.print_answer(report, lambda out: reports.show_transfer_report(out, "Exported", report))


def _backup_arguments(to: Parser) -> None:
    to.add_argument("target", metavar="TARGET", help="a new file (.tar, .tar.gz), or a new folder")


@command("backup", _backup_arguments, book="none", local=True)
def _backup(call: Call) -> int:
    from commonbook.compose.backup import backup_home

    call.require_owner(_BACKUP_HAS_ALL)
    with call.progress:
        report = backup_home(call.settings, call.args.target, progress=call.progress)
    return call.print_answer(report, lambda out: reports.show_backup_report(out, report))


def _restore_arguments(to: Parser) -> None:
    to.add_argument("backup", metavar="BACKUP", help="what `commonbook backup` has made")
    to.add_argument("folder", metavar="DIR", nargs="?", help="the new home; default: --home")


@command("restore", _restore_arguments, book="none", local=True)
def _restore(call: Call) -> int:
    from commonbook.compose.backup import restore_home

    call.require_owner(_BACKUP_HAS_ALL)
    settings = call.settings if call.args.folder is None else Settings.load(call.args.folder)
    with call.progress:
        report = restore_home(settings, call.args.backup, progress=call.progress)
    return call.print_answer(report, lambda out: reports.show_restore_report(out, report), ok=not report.findings)


def _migrate_arguments(to: Parser) -> None:
    to.add_argument(
        "to",
        metavar="TO",
        nargs="?",
        help="an empty database (postgresql://…), with a new folder COMMONBOOK_KEYS for the keys; or a new home",
    )
    add_yes(to)
    to.add_argument("--unlock", action="store_true", help="after a move that was killed: let this book be written to")


@command("migrate", _migrate_arguments, book="none", local=True)
def _migrate(call: Call) -> int:
    from commonbook.compose.databases import migrate_book, unlock_book

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
    return call.print_answer(report, lambda out: reports.show_migration_report(out, report))


def _confirm_migration(call: Call) -> bool:
    call.progress.pause()
    return confirm(clean(f"Move the book to {call.args.to}? This one becomes read-only, for good."))
