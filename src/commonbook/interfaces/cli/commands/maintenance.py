"""Commands about the whole home: import, export, rebuild, reindex, doctor, status, audit, migrate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from commonbook.compose.migration import make_keys, migrate_book
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.output import memories

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command


def _import(call: Call) -> int:
    args = call.args
    said = call.book.import_folder(args.folder, space=args.space, dry_run=args.dry_run, progress=call.progress)
    did = "Would import" if args.dry_run else "Imported"
    code = call.tell(json_values.transfer(said), lambda out: memories.transfer(out, did, said))
    call.index(0 if args.dry_run else said.done + said.updated)
    return code


def _export(call: Call) -> int:
    said = call.book.export(call.args.target, space=call.args.space, progress=call.progress)
    return call.tell(json_values.transfer(said), lambda out: memories.transfer(out, "Exported", said))


def _rebuild(call: Call) -> int:
    said = call.book.rebuild(progress=call.progress)
    return call.tell(json_values.sync(said), lambda out: memories.sync(out, said))


def _reindex(call: Call) -> int:
    count = call.book.reindex(anew=call.args.anew, progress=call.progress)
    return call.tell({"memories": count}, lambda out: memories.reindexed(out, count))


def _doctor(call: Call) -> int:
    accepted = call.book.accept_deletions() if call.args.accept else None
    said = call.book.doctor(progress=call.progress)
    return call.tell(
        json_values.doctor(said, accepted),
        lambda out: memories.findings(out, said, fine="nothing is wrong"),
        ok=not said,
    )


def _status(call: Call) -> int:
    said = call.book.status()
    return call.tell(json_values.status(said), lambda out: memories.status(out, said))


def _verify(call: Call) -> int:
    said = call.book.verify_log(space=call.args.space, progress=call.progress)
    return call.tell(json_values.log_report(said), lambda out: memories.log_report(out, said), ok=said.ok)


def _log(call: Call) -> int:
    args = call.args
    space = call.book.default_space if args.space is None else args.space
    said = call.book.log(space=space, after=args.after, limit=args.limit)
    return call.tell(json_values.log(space, said), lambda out: memories.log(out, said))


def _make_keys(call: Call) -> int:
    folder, key = os.path.abspath(call.args.folder), make_keys(call.args.folder)
    return call.tell({"folder": folder, "key_id": key}, lambda out: out.line(f"The key {key} is in {folder}."))


def _migrate(call: Call) -> int:
    with call.progress:
        said = migrate_book(call.settings, call.args.to, progress=call.progress)
    return call.tell(json_values.moved(said), lambda out: memories.moved(out, said))


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
    "migrate": _migrate,
}
