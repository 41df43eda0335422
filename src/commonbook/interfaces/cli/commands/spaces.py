"""The commands on spaces: list, create, rename, which, depth, review, and trust in the project file that names one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.core.settings.project_files import default_space, trust, untrusted_file
from commonbook.errors import NotFound
from commonbook.interfaces.cli.arguments import number_or
from commonbook.interfaces.cli.commands import command
from commonbook.interfaces.cli.output.memories import show_spaces

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.parser import Parser
    from commonbook.values.spaces import Review, Space


@command("space list", summary="list the spaces")
def _list(call: Call) -> int:
    spaces = call.book.spaces()
    return call.print_answer(spaces, lambda out: show_spaces(out, spaces))


def _add_name(to: Parser) -> None:
    to.add_argument("name", metavar="NAME")


@command("space create", _add_name, summary="create a space", first_write=True)
def _create(call: Call) -> int:
    space = call.book.create_space(call.args.name)
    return call.print_answer(space, lambda out: show_spaces(out, [space]))


def _rename_arguments(to: Parser) -> None:
    to.add_argument("old", metavar="OLD")
    to.add_argument("new", metavar="NEW")


@command("space rename", _rename_arguments, summary="rename a space, and all spaces below it")
def _rename(call: Call) -> int:
    space = call.book.rename_space(call.args.old, call.args.new)
    return call.print_answer(space, lambda out: show_spaces(out, [space]))


@command("space which", summary="show the default space of this folder", book="if there", local=True)
def _which(call: Call) -> int:
    """Print the default space; a project file that is not trusted is named on standard error."""
    book, file = getattr(call, "book", None), untrusted_file(call.settings)
    name = default_space(call.settings) if book is None else book.default_space
    untrusted = {} if file is None else {"untrusted": {"path": file.path, "space": file.space}}
    code = call.print_answer({"space": name, **untrusted}, lambda out: out.line(name))
    if file is not None and not call.args.json:
        call.out.note(f"{file.path} names {file.space}, but is not trusted: see `commonbook trust`")
    return code


def _depth_arguments(to: Parser) -> None:
    _add_name(to)
    to.add_argument("depth", metavar="N", nargs="?", help="1 to 10; `default` inherits it from the space above")


@command("space depth", _depth_arguments, summary="show or set how many levels deep reflections may be in a space")
def _depth(call: Call) -> int:
    """Show or set the maximum depth of reflections in a space.

    `effective_depth` is the limit that applies: its own, or the limit of the nearest readable space above it.
    """
    from commonbook.values.reasoning import depth_cap

    args = call.args
    if args.depth is None:
        space = _find_space(call, args.name)
    else:
        depth = number_or("default", args.depth, fix="give 1 to 10, or `default`")
        space = call.book.set_depth(args.name, depth)
    effective_depth = depth_cap(space, {other.id: other for other in call.book.spaces()})
    origin = "" if space.depth else " (inherited from the space above it, or the default)"
    levels = "level" if effective_depth == 1 else "levels"
    sentence = f"Reflections in {space.name} may be {effective_depth} {levels} deep{origin}"
    return call.print_answer(
        {**space._asdict(), "effective_depth": effective_depth},
        lambda out: out.report(sentence, [(space.name, str(effective_depth))]),
    )


def _review_arguments(to: Parser) -> None:
    _add_name(to)
    to.add_argument("review", metavar="WHOSE", nargs="?", choices=("agents", "none"), help="agents, or none")


@command(
    "space review", _review_arguments, summary="show or set whose memories wait for approval in a space and below it"
)
def _review(call: Call) -> int:
    """Show or set whose memories are reviewed in a space; `reviewed` is true also by a review of a space above it."""
    from commonbook.values.spaces import is_reviewed

    args = call.args
    review: Review | None = "agents" if args.review == "agents" else None
    space = _find_space(call, args.name) if args.review is None else call.book.set_review(args.name, review)
    reviewed = is_reviewed(space.name, {other.id: other for other in call.book.spaces()})
    which = "are proposed, and wait for approval" if reviewed else "are stored at once"
    return call.print_answer(
        {**space._asdict(), "reviewed": reviewed},
        lambda out: out.report(
            f"Memories of agents in {space.name} {which}", [(space.name, "agents" if reviewed else "none")]
        ),
    )


def _find_space(call: Call, name: str) -> Space:
    for space in call.book.spaces():
        if space.name == name:
            return space
    raise NotFound(f"there is no space {name!r} that you may read", fix="`commonbook space list` shows the spaces")


def _trust_arguments(to: Parser) -> None:
    to.add_argument("file", metavar="FILE", nargs="?", help="a `.commonbook.toml` or its folder; default: the nearest")
    to.add_argument("--no-longer", action="store_true", help="do not trust it any more")


@command("trust", _trust_arguments, first_write=True, local=True)
def _trust(call: Call) -> int:
    file = trust(call.settings, call.args.file, trusted=not call.args.no_longer)
    shown = {"path": file.path, "space": file.space, "capture": "on" if file.captures else "off"}
    says = f"space {file.space or 'of the repository'}, capture {shown['capture']}"
    sentence = f"{file.path} is {'trusted as it is now' if file.trusted else 'not trusted'}: {says}"
    return call.print_answer(
        {**shown, "trusted": file.trusted}, lambda out: out.report(sentence, [(file.path, str(file.trusted).lower())])
    )
