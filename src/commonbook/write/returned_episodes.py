"""Takes rewound messages out of an episode that comes back into the space of its session.

While an episode is in another space, a rewind of its session does not reach it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.errors import Conflict
from commonbook.markdown import transcript
from commonbook.tables import sessions

if TYPE_CHECKING:
    from commonbook.model.memory import Memory
    from commonbook.ports.database import Reading


def text_without_rewound(tx: Reading, memory: Memory, *, by_hand: bool) -> str:
    """Return the text of a memory for the space that it is moved to.

    Only an episode of a session of that space can have lost messages. Conflict if it has no others, unless a person
    moved its file (`by_hand`): then it stays as it is, and recall goes by the session.
    """
    if memory.session is None:
        return memory.text
    numbers = sessions.messages_of_episodes(tx, {memory.id: memory.space.id}).get(memory.id, {})
    rewound = {message for message, number in numbers.items() if number is None}
    text = transcript.without(memory.text, rewound) if rewound else memory.text
    if text is None and not by_hand:
        raise Conflict(
            f"every message of the episode {memory.id} was rewound in the space {memory.space.name!r}",
            fix="delete it, or leave it where it is",
        )
    return memory.text if text is None else text
