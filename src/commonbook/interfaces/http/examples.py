"""An example of the arguments of each verb, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ID: Final = "01a19a5c-7d1e-7c3a-9f61-0b2f4c6e8a10"
OTHER_ID: Final = "01a19a5c-8f20-7a44-8d72-1c3a5d7f9b21"
CODE: Final = "K3VQ7M-2JXW5T-R8LQ4N-6YZB2D"

EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "remember": {"text": "Alice owns the billing service", "space": "team/backend", "tags": ["billing"]},
    "remember_many": {"drafts": [{"text": "Tea at four"}, {"text": "Bob likes oolong", "kind": "preference"}]},
    "list": {"space": "team/backend", "kinds": ["decision"], "limit": 20},
    "get": {"memory_id": ID},
    "find_id": {"part": "8a10"},
    "edit": {"memory_id": ID, "text": "Carol owns the billing service", "expected_version": 1},
    "move": {"memory_id": ID, "space": "team/billing"},
    "delete": {"ids": [ID], "dry_run": True},
    "delete_where": {"chosen": {"space": "team/backend", "tags": ["scratch"]}, "dry_run": True},
    "undelete": {"memory_id": ID},
    "history": {"memory_id": ID},
    "link": {"source": ID, "relation": "related_to", "target": OTHER_ID},
    "unlink": {"source": ID, "relation": "related_to", "target": OTHER_ID},
    "links": {"memory_id": ID},
    "recall": {"query": "who owns billing?", "spaces": ["team/backend"], "k": 5},
    "prefetch": {"session": "support-17", "query": "who owns billing?"},
    "prefetched": {"session": "support-17", "query": "who owns billing?", "wait": 0.5},
    "append": {
        "session": "support-17",
        "messages": [{"text": "Who owns billing?", "role": "user", "client_id": "m-1"}],
        "space": "team/backend",
    },
    "messages": {"session": "support-17", "limit": 20},
    "sessions": {"space": "team/backend", "limit": 20},
    "switch": {"old": "support-17", "new": "support-18", "reason": "new"},
    "rewind": {"session": "support-17", "after": 4},
    "settle": {"session": "support-17"},
    "close_session": {"session": "support-17"},
    "move_session": {"session": "support-17", "to": "team/support"},
    "record_uses": {
        "session": "support-17",
        "passages": [
            {"id": ID, "hash": "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef", "revision": 2}
        ],
        "message": "m-1",
    },
    "uses": {"memory_id": ID},
    "session_uses": {"session": "support-17", "first": 1, "last": 20},
    "share": {"memory_id": ID, "to": "team/frontend", "refresh": "live"},
    "pull": {"memory_id": ID, "to": "personal"},
    "share_many": {"ids": [ID, OTHER_ID], "to": "team/frontend"},
    "share_with": {"memory_id": ID, "principal": "user:bob"},
    "unshare": {"copy_id": ID},
    "refresh": {"copy_id": ID},
    "set_refresh": {"copy_id": ID, "mode": "snapshot"},
    "detach": {"copy_id": ID},
    "adopt": {"copy_id": ID},
    "lineage": {"memory_id": ID, "depth": 8},
    "copies": {"memory_id": ID},
    "add_rule": {"space": "team/frontend", "from_space": "team/backend", "kinds": ["decision"], "approval": True},
    "rules": {"space": "team/frontend"},
    "remove_rule": {"rule_id": ID},
    "request_share": {"memory_id": ID, "to": "company"},
    "pending": {"space": "company"},
    "approve": {"request_id": ID, "note": "fits here"},
    "reject": {"request_id": ID, "note": "too early"},
    "reflect": {"text": "Billing moves to Carol", "on": [ID, OTHER_ID], "space": "team/backend"},
    "supersede": {"old": ID, "by": OTHER_ID, "reason": "Carol took over"},
    "reinstate": {"old": ID},
    "dependents": {"memory_id": ID},
    "inbox": {"space": "team/backend", "limit": 20},
    "triage": {"memory_id": ID, "verdict": "keep", "note": "still true"},
    "set_depth": {"space": "team/backend", "depth": 2},
    "set_review": {"space": "team/backend", "review": "agents"},
    "create_space": {"name": "team/backend"},
    "rename_space": {"old": "team/backend", "new": "team/platform"},
    "grant": {"principal": "agent:helper", "space": "team/backend", "role": "writer"},
    "revoke": {"principal": "agent:helper", "space": "team/backend"},
    "grants": {"space": "team/backend"},
    "create_key": {"principal": "agent:helper", "label": "helper", "limits": [["team/backend", "writer"]]},
    "revoke_key": {"key_id": ID},
    "create_login": {"key_id": ID},
    "exchange_login": {"code": CODE},
    "set_limit": {"action": "share", "per_minute": 20, "principal": "agent:helper"},
    "verify_log": {"space": "team/backend"},
    "log": {"space": "team/backend", "limit": 20},
    "reindex": {"anew": False},
    "work": {"seconds": 5},
    "import_folder": {"space": "notes", "dry_run": True},
    "export": {"space": "team/backend"},
}

BATCH: Final = """{"verb": "remember", "arguments": {"text": "Tea at four"}, "key": "note-1"}
{"verb": "edit", "arguments": {"memory_id": "01a19a5c-7d1e-7c3a-9f61-0b2f4c6e8a10", "tags": ["tea"]}}
"""
