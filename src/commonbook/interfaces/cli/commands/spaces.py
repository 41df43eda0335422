"""The commands on spaces: list, create, rename, which and depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadInput, NotFound
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.output import memories
from commonbook.settings.default_space import default_space

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.model.spaces import Space


def _list(call: Call) -> int:
    spaces = call.book.spaces()
    return call.print_answer(json_values.spaces_json(spaces), lambda out: memories.show_spaces(out, spaces))


def _create(call: Call) -> int:
    space = call.book.create_space(call.args.name)
    return call.print_answer(json_values.space_json(space), lambda out: memories.show_spaces(out, [space]))


def _rename(call: Call) -> int:
    space = call.book.rename_space(call.args.old, call.args.new)
    return call.print_answer(json_values.space_json(space), lambda out: memories.show_spaces(out, [space]))


def _which(call: Call) -> int:
    name = default_space(call.settings)
    return call.print_answer({"space": name}, lambda out: out.line(name))


def _depth(call: Call) -> int:
    """Show or set the maximum depth of reflections in a space.

    `effective_depth` is the limit that applies: its own, or that of the nearest readable space above it.
    """
    from commonbook.model.reasoning import depth_cap

    args = call.args
    space = (
        _find_space(call, args.name) if args.depth is None else call.book.set_depth(args.name, _parse_depth(args.depth))
    )
    effective_depth = depth_cap(space, {other.id: other for other in call.book.spaces()})
    origin = "" if space.depth else " (inherited from the space above it, or the default)"
    levels = "level" if effective_depth == 1 else "levels"
    sentence = f"Reflections in {space.name} may be {effective_depth} {levels} deep{origin}"
    return call.print_answer(
        {**json_values.space_json(space), "effective_depth": effective_depth},
        lambda out: out.report(sentence, [(space.name, str(effective_depth))]),
    )


def _find_space(call: Call, name: str) -> Space:
    for space in call.book.spaces():
        if space.name == name:
            return space
    raise NotFound(f"there is no space {name!r} that you may read", fix="`commonbook space list` shows the spaces")


def _parse_depth(argument: str) -> int | None:
    if argument.strip().lower() == "default":
        return None
    try:
        return int(argument)
    except ValueError:
        raise BadInput(f"{argument!r} is not a whole number", fix="give 1 to 10, or `default`") from None


COMMANDS: Final[Mapping[str, Command]] = {
    "space list": _list,
    "space create": _create,
    "space rename": _rename,
    "space which": _which,
    "space depth": _depth,
}
