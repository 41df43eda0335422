"""Takes rewound messages out of texts that a verb brings back: of an episode, or of a copy of one.

While an episode is in another space than its session, a rewind of the session reaches it only by those who may write
there. What was rewound before it went there is not in its text, and does not come back there either.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from commonbook.core.log import chain
from commonbook.core.markdown import transcript
from commonbook.core.tables import memories, sessions
from commonbook.errors import Conflict

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.values.spaces import SpaceScope
    from commonbook.values.stored_memory import StoredMemory


def rewound_in(tx: Reading, spaces: SpaceScope, memory: StoredMemory) -> frozenset[str]:
    """Return the messages of an episode that were rewound; of a copy, also a detached one, those of its root.

    `spaces` are all spaces of the book.
    """
    origin = _origin(tx, spaces, memory)
    return _rewound_of(tx, origin) if origin else frozenset()


def _origin(tx: Reading, spaces: SpaceScope, memory: StoredMemory) -> StoredMemory | None:
    """Return the root of a copy, without its text, or the memory itself; None if the root is not known."""
    if memory.shared is None:
        return memory
    found = {} if memory.shared.claimed else memories.get_headers(tx, spaces, [memory.shared.root])
    return found.get(memory.shared.root)


def text_without_rewound(tx: Reading, spaces: SpaceScope, memory: StoredMemory, text: str) -> str:
    """Return a text that a verb brings back into a memory without rewound messages; Conflict if it has no others.

    Where the episode is away from its session, these are the messages that it does not have any more.
    """
    origin = _origin(tx, spaces, memory)
    rewound = _rewound_of(tx, origin) | _lost_before_move(tx, spaces, origin) if origin else frozenset()
    remaining = transcript.without(text, rewound) if rewound else text
    if remaining is None:
        raise Conflict(
            f"all messages of the episode {memory.id} were rewound",
            fix="`commonbook session show` still has them; append again what should stay",
        )
    return remaining


def _lost_before_move(tx: Reading, spaces: SpaceScope, episode: StoredMemory) -> frozenset[str]:
    """Return the rewound messages that are not in the text of an episode which is away from its session.

    An episode that a rewind deleted has lost all of them, although its tombstone keeps the last text.
    """
    rewound = sessions.rewound_elsewhere(tx, episode.id, episode.space.id) if episode.session else frozenset()
    present = memories.find(tx, spaces, episode.id) if rewound else None
    if present is None or (present.deleted is not None and _was_deleted_by_rewind(tx, present.id)):
        return rewound
    return rewound - {message.id for message in transcript.parse(present.text).messages}


def _was_deleted_by_rewind(tx: Reading, memory_id: str) -> bool:
    entries = chain.deletions_of(tx, memory_id)
    return bool(entries) and json.loads(entries[-1].payload).get("how") == "rewind"


def text_after_move(tx: Reading, old: StoredMemory, new: StoredMemory, *, by_hand: bool) -> str:
    """Return the text of a memory for the space that it is moved to, without messages that were rewound.

    An episode that comes to its session loses what was rewound meanwhile. One that leaves its session loses lines that
    an old save of its file has put back: recall goes by the session only while the episode is beside it. Conflict if
    there are no others, unless a person moved its file (`by_hand`): then it stays as it is. A deleted one keeps its
    text, which leaves out rewound messages when the memory is brought back.
    """
    if new.deleted is not None:
        return new.text
    rewound = _rewound_of(tx, old) | _rewound_of(tx, new)
    text = transcript.without(new.text, rewound) if rewound else new.text
    if text is None and not by_hand:
        raise Conflict(f"every message of the episode {new.id} was rewound", fix="delete it, or leave it where it is")
    return new.text if text is None else text


def remaining_text(tx: Reading, memory: StoredMemory) -> str | None:
    """Return the text of a memory without messages that were rewound in its space; None if it has no others."""
    rewound = _rewound_of(tx, memory)
    return transcript.without(memory.text, rewound) if rewound else memory.text


def _rewound_of(tx: Reading, episode: StoredMemory) -> frozenset[str]:
    if episode.session is None:
        return frozenset()
    numbers = sessions.messages_of_episodes(tx, {episode.id: episode.space.id}).get(episode.id, {})
    return frozenset(message for message, number in numbers.items() if number is None)
