"""Decides the form of an answer for people: laid out for a terminal, or plain columns for a pipe or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.interfaces.cli.output import plain

if TYPE_CHECKING:
    from commonbook.interfaces.cli.output.plain import Output


def output_for(stream: object, *, colour: bool) -> Output:
    """Return the output for this stream."""
    if not plain.is_terminal(stream):
        return plain.Plain()
    from commonbook.interfaces.cli.output.terminal import Screen

    return Screen(colour=colour)
