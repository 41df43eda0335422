"""Arguments of the commands that take a book in, out or elsewhere: import, export, backup, restore, migrate."""

from __future__ import annotations

from collections.abc import Callable

from commonbook.interfaces.cli.parser import Parser


def import_arguments(to: Parser, *, add_no_mask: Callable[[Parser], None]) -> None:
    """Add the arguments of `import`."""
    to.add_argument("folder", metavar="FOLDER", help="such as an Obsidian vault")
    add_no_mask(to)
    to.add_argument("--folders-as-spaces", action="store_true", help="each folder with the name of a space is one")
    to.add_argument("--okf", action="store_true", help="read it as a bundle in the Open Knowledge Format")
    to.add_argument("--dry-run", action="store_true", help="only show what would be done")
    _path_filter(to)


def _path_filter(to: Parser) -> None:
    for name, what in (("include", "only files and folders"), ("exclude", "no files and folders")):
        summary = f"{what} that match, such as '*.pdf' or 'Work/*' (repeatable)"
        to.add_argument(f"--{name}", action="append", default=[], metavar="GLOB", help=summary)


def export_arguments(to: Parser) -> None:
    """Add the arguments of `export`."""
    to.add_argument("target", metavar="TARGET", help="a folder, or an archive (.zip, .tar.gz)")
    to.add_argument("--okf", action="store_true", help="as a bundle in the Open Knowledge Format, for other programs")
    _path_filter(to)


def backup_arguments(to: Parser) -> None:
    """Add the arguments of `backup`."""
    to.add_argument("target", metavar="TARGET", help="a new file (.tar, .tar.gz), or a new folder")


def restore_arguments(to: Parser) -> None:
    """Add the arguments of `restore`."""
    to.add_argument("backup", metavar="BACKUP", help="what `commonbook backup` has made")
    to.add_argument("folder", metavar="DIR", nargs="?", help="the new home; default: --home")


def migrate_arguments(to: Parser) -> None:
    """Add the arguments of `migrate`."""
    to.add_argument(
        "to",
        metavar="TO",
        nargs="?",
        help="an empty database (postgresql://…), with a new folder COMMONBOOK_KEYS for the keys; or a new home",
    )
    to.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    to.add_argument("--unlock", action="store_true", help="after a move that was killed: let this book be written to")
