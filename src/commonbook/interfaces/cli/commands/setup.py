"""Commands that set up this machine: `init` makes a folder a home, `completion` completes commands in a shell."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from commonbook.core.settings.settings import Settings
from commonbook.errors import BadInput, Conflict
from commonbook.interfaces.cli.arguments import add_confirmation, confirm
from commonbook.interfaces.cli.commands import command, make_parser
from commonbook.interfaces.cli.output import is_terminal, reports
from commonbook.interfaces.cli.parser import every_parser
from commonbook.values.reports import HomePlan

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.output import Output
    from commonbook.interfaces.cli.parser import Parser

_FILES: Final = ("FILE",)
_FOLDERS: Final = ("DIR", "FOLDER", "TARGET")


def _init_arguments(to: Parser) -> None:
    to.add_argument("folder", metavar="DIR", nargs="?", help="the folder; it is created if it does not exist")
    add_confirmation(to, "only show what would be done")
    to.add_argument("--trust", action="store_true", help="use the database, keys and settings that the folder brings")


@command("init", _init_arguments, book="none", local=True)
def _init(call: Call) -> int:
    from commonbook.compose import new_home

    args, settings = call.args, _settings(call)
    if settings.database is not None:
        _refuse_space(args, settings.database.place, "`commonbook space create` makes a space")
        plan = HomePlan(settings.database.place)
    elif new_home.is_home_already(settings):
        _refuse_space(args, settings.home, "`commonbook space create` makes one of its folders a space")
        answer = {"home": settings.home, "made": False}
        return call.print_answer(answer, lambda out: out.line(f"{settings.home} is a home already"))
    else:
        with call.progress:
            plan = new_home.plan_home(settings, space=args.space, trust=args.trust, progress=call.progress)
    made = not args.dry_run and (args.yes or _confirm(call, plan))
    if made:
        with call.progress:
            new_home.make_home(settings, space=args.space, trust=args.trust, progress=call.progress)
    return call.print_answer({**plan._asdict(), "made": made}, lambda out: _show(out, args, plan, made=made))


def _refuse_space(args: Namespace, place: str, fix: str) -> None:
    if args.space is not None:
        raise Conflict(f"{place} is no folder that can become the space {args.space}", fix=fix)


def _show(out: Output, args: Namespace, plan: HomePlan, *, made: bool) -> None:
    if args.yes or args.dry_run:
        # Otherwise the plan was shown with the question.
        reports.show_home_plan(out, plan)
    if made:
        out.line(f"{plan.home} is a home now", "green")
    else:
        out.line("Nothing was changed")


def _settings(call: Call) -> Settings:
    """Return the settings of the folder to make a home: the argument, else the home of every other command."""
    if call.args.folder is None:
        return call.settings
    if call.args.home is not None:
        raise BadInput("the folder is given twice", fix="give DIR or --home, not both")
    return Settings.load(call.args.folder, space=call.args.space)


def _confirm(call: Call, plan: HomePlan) -> bool:
    if call.args.json or not is_terminal(sys.stdin):
        raise BadInput(
            f"{plan.home} would become a home of {plan.notes} notes, and there is no terminal to ask for confirmation",
            fix="look at the changes with --dry-run, then make them with --yes",
        )
    call.progress.pause()
    reports.show_home_plan(call.out, plan)
    call.flush()
    return confirm(f"Make {plan.home} a home?")


# --- completion


def _completion_arguments(to: Parser) -> None:
    to.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="your shell")


@command("completion", _completion_arguments, book="none", local=True)
def _completion(call: Call) -> int:
    text = _script(call.args.shell)
    return call.print_answer({"shell": call.args.shell, "script": text}, lambda _out: print(text))


def _script(shell: str) -> str:
    """Return the script for a shell."""
    import shtab

    top = make_parser()
    for parser in every_parser(top):
        for action in parser._actions:  # noqa: SLF001 - argparse has no public access to them
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar in _FOLDERS:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return str(shtab.complete(top, shell))
