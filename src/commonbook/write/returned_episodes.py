"""Takes rewound messages out of an episode that comes back into the space of its session.

While an episode is in another space, a rewind of its session does not reach it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.markdown import transcript
from commonbook.tables import sessions

if TYPE_CHECKING:
    from commonbook.model.memory import Memory
    from commonbook.ports.database import Reading


def text_without_rewound(tx: Reading, memory: Memory) -> str | None:
    """Return the text of a memory for the space that it is moved to; None if all messages in it were rewound there.

    Only an episode of a session of that space can have lost messages.
    """
    if memory.session is None:
        return memory.text
    numbers = sessions.messages_of_episodes(tx, {memory.id: memory.space.id}).get(memory.id, {})
    rewound = {message for message, number in numbers.items() if number is None}
    return transcript.without(memory.text, rewound) if rewound else memory.text
