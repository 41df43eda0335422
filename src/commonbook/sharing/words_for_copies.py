"""The words that a source gives to its copies: of an episode, those of the messages that were not rewound.

A person's save may put rewound messages back into the file of an episode. They stay there, and reach no copy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from commonbook.errors import Conflict
from commonbook.markdown import transcript
from commonbook.model.memory import LAZY, LIVE
from commonbook.model.stored_memory import StoredMemory
from commonbook.sharing import freshness
from commonbook.write import rewound_messages, store_version
from commonbook.write.context import WriteContext

_FOLLOWING: Final = (LIVE, LAZY)


class GivenWords(NamedTuple):
    """A source as its copies take it over, None if all of its messages were rewound; and the modes that do so at once.

    A lazy copy mostly waits until it is opened. But a rewind removes words from recall at once.
    """

    source: StoredMemory | None
    modes: tuple[str, ...] = (LIVE,)


def of_source(ctx: WriteContext, source: StoredMemory) -> GivenWords:
    """Return the words that a source gives; a copy that follows an episode gives no rewound message either.

    A snapshot, and a copy that was edited or detached, has words of its own.
    """
    if source.shared is None:
        has_messages = source.session is not None
    else:
        has_messages = source.shared.mode in _FOLLOWING and not freshness.was_edited(source)
    rewound = rewound_messages.rewound_in(ctx.tx, ctx.spaces, source) if has_messages else frozenset()
    if not rewound:
        return GivenWords(source)
    text = transcript.without(source.text, rewound)
    if text == source.text or text is None:
        return GivenWords(source if text else None, _FOLLOWING)
    return GivenWords(store_version.with_hashes(ctx, source._replace(text=text)), _FOLLOWING)


def require_given(ctx: WriteContext, source: StoredMemory) -> StoredMemory:
    """Return a source as a copy takes it over; Conflict if all of its messages were rewound."""
    given = of_source(ctx, source).source
    if given is None:
        raise Conflict(
            f"all messages of the episode {source.id} were rewound",
            fix="`commonbook session show` still has them; append again what should stay, and share that",
        )
    return given
