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
    said = call.book.spaces()
    return call.tell(json_values.spaces(said), lambda out: memories.spaces(out, said))


def _create(call: Call) -> int:
    said = call.book.create_space(call.args.name)
    return call.tell(json_values.space(said), lambda out: memories.spaces(out, [said]))


def _rename(call: Call) -> int:
    said = call.book.rename_space(call.args.old, call.args.new)
    return call.tell(json_values.space(said), lambda out: memories.spaces(out, [said]))


def _which(call: Call) -> int:
    name = default_space(call.settings)
    return call.tell({"space": name}, lambda out: out.line(name))


def _depth(call: Call) -> int:
    """Show how deep reflections may go in a space, or set it; `allows` is what holds, as far as one may read."""
    from commonbook.model.reasoning import depth_cap

    args = call.args
    said = _named(call, args.name) if args.depth is None else call.book.set_depth(args.name, _read(args.depth))
    allows = depth_cap(said, {one.id: one for one in call.book.spaces()})
    where = "" if said.depth else " (as above it, or by default)"
    sentence = f"Reflections in {said.name} may stand {allows} deep{where}"
    return call.tell(
        {**json_values.space(said), "allows": allows}, lambda out: out.report(sentence, [(said.name, str(allows))])
    )


def _named(call: Call, name: str) -> Space:
    for space in call.book.spaces():
        if space.name == name:
            return space
    raise NotFound(f"there is no space {name!r} that you may read", fix="`commonbook space list` shows the spaces")


def _read(typed: str) -> int | None:
    if typed.strip().lower() == "default":
        return None
    try:
        return int(typed)
    except ValueError:
        raise BadInput(f"{typed!r} is not a whole number", fix="give 1 to 10, or `default`") from None


COMMANDS: Final[Mapping[str, Command]] = {
    "space list": _list,
    "space create": _create,
    "space rename": _rename,
    "space which": _which,
    "space depth": _depth,
}
