"""The command `init`: show what making a folder a home will change, ask, and make it one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadInput, Conflict
from commonbook.interfaces import json_reports
from commonbook.interfaces.cli.output import home_plan
from commonbook.interfaces.cli.output.plain import is_terminal
from commonbook.model.reports import HomePlan
from commonbook.settings.settings import Settings

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.interfaces.cli.output.plain import Output


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
    return call.print_answer(
        json_reports.home_plan_json(plan, made=made), lambda out: _show(out, args, plan, made=made)
    )


def _refuse_space(args: Namespace, place: str, fix: str) -> None:
    if args.space is not None:
        raise Conflict(f"{place} is no folder that can become the space {args.space}", fix=fix)


def _show(out: Output, args: Namespace, plan: HomePlan, *, made: bool) -> None:
    if args.yes or args.dry_run:
        # Otherwise the plan was shown with the question.
        home_plan.show_home_plan(out, plan)
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
    home_plan.show_home_plan(call.out, plan)
    call.flush()
    print(f"Make {plan.home} a home? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


COMMANDS: Final[Mapping[str, Command]] = {"init": _init}
