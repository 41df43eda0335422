"""The list of all reasons to write to a space that the principal of a call may not write to.

Every other change needs the right to write to the space that its row is in now: `WriteContext.log`, which every change
passes, refuses it without a reason of this list.
"""

from __future__ import annotations

from enum import Enum


class ForeignWrite(Enum):
    """A reason to write by other rights than those of the principal that made the call; the value says why."""

    SHARER = (
        "A copy follows its source in the name of the principal that shared it, or that approved the share, no matter"
        " who edits the source. The rights to read the source and to write to the space of the copy are checked each"
        " time."
    )
    RULE_CREATOR = (
        "A sharing rule copies, or asks for approval, in the name of the principal that created it, no matter who"
        " writes the memory or approves it. Both rights of the creator are checked each time."
    )
    HAND_EDIT = (
        "A person has saved the file of a memory that this call is about to change. The save comes first, in the name"
        " of the file system, whose right is that of the user who can write to the folder."
    )
    NOTICE = (
        "A notice is made beside a memory that depends on something superseded or deleted, wherever that memory is. The"
        " notice names the principal that caused it, which learns nothing of spaces that it may not read. Who decides"
        " about the memory removes it."
    )
    REINSTATE = (
        "Reinstating a memory removes the links by which others supersede it. The right to write to the reinstated one"
        " is enough, since the others lose nothing but that link."
    )
    REQUEST = (
        "A principal that may read a space asks its administrators to share a memory into it, or withdraws that. The"
        " log of the space has the request; no memory of it changes."
    )
    PROPOSAL = (
        "An agent proposes a memory in a new space below one that is under review. The space is made by the right that"
        " the agent has without the review; only the space of the proposals gets a memory."
    )
    REFUSAL = "An attempt on a memory that was refused is in the log of its space, in the name of the one who tried."
    OWN_KEY = (
        "A principal makes and revokes API keys of its own. That belongs to no space, and is in the log of the home,"
        " which its owner alone reads."
    )
    SYSTEM_SPACE = (
        "The program creates a space for its own use, such as the one that two principals share, or that of notices."
        " No caller chooses its name. Its log begins with its creation and its first grants."
    )
