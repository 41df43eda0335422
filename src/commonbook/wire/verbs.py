"""The table of verbs over HTTP: for each verb of `Book`, its method, its path, and whether it changes the book.

Arguments have the names that they have in `Book`. Those in braces stand in the path; they are ids. The others are query
parameters of a GET, and fields of the JSON body of any other method. The answer is the result of the verb as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Verb(NamedTuple):
    """A verb over HTTP.

    `changes` tells whether it changes the book: such a request may be repeated with an `Idempotency-Key`. `expanded` is
    the argument of a GET whose fields are query parameters themselves. `versioned` tells whether the answer has the
    version of one memory, which goes into the header `ETag`. `is_property` verbs are properties of `Book`. An `archive`
    verb has a zip archive as its body or answer, and all arguments in the query. A `without_key` verb needs no API key.
    A verb that writes `in_parts` makes several transactions, each of which can be repeated; all others make one.
    """

    name: str
    method: Method
    path: str
    group: str
    changes: bool = False
    expanded: str | None = None
    versioned: bool = False
    is_property: bool = False
    archive: bool = False
    without_key: bool = False
    in_parts: bool = False

    @property
    def path_arguments(self) -> tuple[str, ...]:
        """The names of the arguments that stand in the path."""
        return tuple(re.findall(r"\{(\w+)\}", self.path))

    @property
    def takes_body(self) -> bool:
        """Whether arguments that do not stand in the path are fields of a JSON body."""
        return self.method != "GET" and not self.archive


_MEMORY: Final = "/v1/memories/{memory_id}"
_COPY: Final = "/v1/memories/{copy_id}"

_TABLE: Final = (
    # Memories.
    Verb("remember", "POST", "/v1/memories", "memories", changes=True, versioned=True),
    Verb("remember_many", "POST", "/v1/remember_many", "memories", changes=True),
    Verb("list", "GET", "/v1/memories", "memories", expanded="chosen"),
    Verb("get", "GET", _MEMORY, "memories", versioned=True),
    Verb("find_id", "GET", "/v1/find_id", "memories"),
    Verb("edit", "PATCH", _MEMORY, "memories", changes=True, versioned=True),
    Verb("move", "POST", f"{_MEMORY}/move", "memories", changes=True, versioned=True),
    Verb("delete", "POST", "/v1/delete", "memories", changes=True),
    Verb("delete_where", "POST", "/v1/delete_where", "memories", changes=True),
    Verb("undelete", "POST", f"{_MEMORY}/undelete", "memories", changes=True, versioned=True),
    Verb("history", "GET", f"{_MEMORY}/history", "memories"),
    Verb("link", "POST", "/v1/memories/{source}/link", "memories", changes=True, versioned=True),
    Verb("unlink", "POST", "/v1/memories/{source}/unlink", "memories", changes=True, versioned=True),
    Verb("links", "GET", f"{_MEMORY}/links", "memories"),
    # Recall.
    Verb("recall", "POST", "/v1/recall", "recall"),
    Verb("prefetch", "POST", "/v1/prefetch", "recall"),
    Verb("prefetched", "POST", "/v1/prefetched", "recall"),
    # Sessions.
    Verb("append", "POST", "/v1/append", "sessions", changes=True),
    Verb("messages", "GET", "/v1/messages", "sessions"),
    Verb("sessions", "GET", "/v1/sessions", "sessions"),
    Verb("switch", "POST", "/v1/switch", "sessions", changes=True),
    Verb("rewind", "POST", "/v1/rewind", "sessions", changes=True),
    Verb("settle", "POST", "/v1/settle", "sessions", changes=True),
    Verb("close_session", "POST", "/v1/close_session", "sessions", changes=True),
    Verb("move_session", "POST", "/v1/move_session", "sessions", changes=True),
    Verb("record_uses", "POST", "/v1/record_uses", "sessions", changes=True),
    Verb("uses", "GET", f"{_MEMORY}/uses", "sessions"),
    Verb("session_uses", "GET", "/v1/session_uses", "sessions"),
    # Sharing.
    Verb("share", "POST", f"{_MEMORY}/share", "sharing", changes=True),
    Verb("pull", "POST", f"{_MEMORY}/pull", "sharing", changes=True),
    Verb("share_many", "POST", "/v1/share_many", "sharing", changes=True, in_parts=True),
    Verb("share_with", "POST", f"{_MEMORY}/share_with", "sharing", changes=True),
    Verb("unshare", "POST", f"{_COPY}/unshare", "sharing", changes=True, versioned=True),
    Verb("refresh", "POST", f"{_COPY}/refresh", "sharing", changes=True, versioned=True),
    Verb("set_refresh", "POST", f"{_COPY}/set_refresh", "sharing", changes=True, versioned=True),
    Verb("detach", "POST", f"{_COPY}/detach", "sharing", changes=True, versioned=True),
    Verb("adopt", "POST", f"{_COPY}/adopt", "sharing", changes=True, versioned=True),
    Verb("lineage", "GET", f"{_MEMORY}/lineage", "sharing"),
    Verb("copies", "GET", f"{_MEMORY}/copies", "sharing"),
    Verb("add_rule", "POST", "/v1/rules", "sharing", changes=True),
    Verb("rules", "GET", "/v1/rules", "sharing"),
    Verb("remove_rule", "DELETE", "/v1/rules/{rule_id}", "sharing", changes=True),
    Verb("request_share", "POST", f"{_MEMORY}/request_share", "sharing", changes=True),
    Verb("pending", "GET", "/v1/requests", "sharing"),
    Verb("approve", "POST", "/v1/requests/{request_id}/approve", "sharing", changes=True),
    Verb("reject", "POST", "/v1/requests/{request_id}/reject", "sharing", changes=True),
    # Reasoning.
    Verb("reflect", "POST", "/v1/reflect", "reasoning", changes=True, versioned=True),
    Verb("supersede", "POST", "/v1/memories/{old}/supersede", "reasoning", changes=True),
    Verb("reinstate", "POST", "/v1/memories/{old}/reinstate", "reasoning", changes=True),
    Verb("dependents", "GET", f"{_MEMORY}/dependents", "reasoning"),
    Verb("inbox", "GET", "/v1/inbox", "reasoning"),
    Verb("triage", "POST", f"{_MEMORY}/triage", "reasoning", changes=True, versioned=True),
    Verb("set_depth", "POST", "/v1/set_depth", "reasoning", changes=True),
    # Administration.
    Verb("actor", "GET", "/v1/actor", "administration", is_property=True),
    Verb("whoami", "GET", "/v1/whoami", "administration"),
    Verb("default_space", "GET", "/v1/default_space", "administration", is_property=True),
    Verb("space_for_writing", "POST", "/v1/space_for_writing", "administration"),
    Verb("spaces", "GET", "/v1/spaces", "administration"),
    Verb("create_space", "POST", "/v1/spaces", "administration", changes=True),
    Verb("rename_space", "POST", "/v1/rename_space", "administration", changes=True),
    Verb("set_review", "POST", "/v1/set_review", "administration", changes=True),
    Verb("grant", "POST", "/v1/grants", "administration", changes=True),
    Verb("revoke", "POST", "/v1/revoke", "administration", changes=True),
    Verb("grants", "GET", "/v1/grants", "administration"),
    Verb("create_key", "POST", "/v1/keys", "administration", changes=True),
    Verb("keys", "GET", "/v1/keys", "administration"),
    Verb("revoke_key", "DELETE", "/v1/keys/{key_id}", "administration", changes=True),
    Verb("create_login", "POST", "/v1/keys/{key_id}/login", "administration", changes=True),
    Verb("create_sign_in", "POST", "/v1/sign_in", "administration", changes=True),
    Verb("exchange_login", "POST", "/v1/login", "administration", without_key=True),
    Verb("set_limit", "PUT", "/v1/limits", "administration", changes=True),
    Verb("limits", "GET", "/v1/limits", "administration"),
    # Maintenance.
    Verb("home", "GET", "/v1/home", "maintenance", is_property=True),
    Verb("moved_to", "GET", "/v1/moved_to", "maintenance", is_property=True),
    Verb("schema_migration", "GET", "/v1/schema_migration", "maintenance", is_property=True),
    Verb("status", "GET", "/v1/status", "maintenance"),
    Verb("doctor", "POST", "/v1/doctor", "maintenance"),
    Verb("verify_log", "GET", "/v1/verify_log", "maintenance"),
    Verb("log", "GET", "/v1/log", "maintenance"),
    Verb("changes", "GET", "/v1/changes", "maintenance"),
    Verb("log_size", "GET", "/v1/log_size", "maintenance"),
    Verb("metrics", "GET", "/v1/metrics", "maintenance"),
    Verb("sync", "POST", "/v1/sync", "maintenance", changes=True, in_parts=True),
    Verb("rebuild", "POST", "/v1/rebuild", "maintenance", changes=True, in_parts=True),
    Verb("reindex", "POST", "/v1/reindex", "maintenance", changes=True, in_parts=True),
    Verb("accept_deletions", "POST", "/v1/accept_deletions", "maintenance", changes=True, in_parts=True),
    Verb("work", "POST", "/v1/work", "maintenance", changes=True, in_parts=True),
)

VERBS: Final[Mapping[str, Verb]] = {verb.name: verb for verb in _TABLE}
"""All verbs that are a request and an answer in JSON, by name."""

IMPORT: Final = Verb("import_folder", "POST", "/v1/import", "maintenance", changes=True, archive=True, in_parts=True)
"""The verb `import_folder`: the body is a zip archive in place of the folder, the other arguments are in the query."""

EXPORT: Final = Verb("export", "GET", "/v1/export", "maintenance", archive=True)
"""The verb `export`: the answer is a zip archive in place of the target."""

REPORT_MEMBER: Final = ".commonbook-report.json"
"""The last member of an exported archive: the report of the export, as JSON. Imports skip it, since it is hidden."""

DEFAULT_SPACE_HEADER: Final = "Commonbook-Space"
"""The header with the space of calls that name none, percent-encoded, in place of the default space of the key."""

NOT_SENT: Final = ("self", "progress", "noticed")
"""Arguments that stay in the process: callbacks cannot be sent."""

LEFT_OUT: Final[Mapping[str, str]] = {
    "acting_as": "a request acts for the principal of its key",
    "with_key": "the key is in the header Authorization",
    "watching": "a context manager; the server watches its own files",
    "working": "a context manager; the server runs its own worker",
    "close": "the server closes the book",
}
"""The public names of `Book` that are not served, each with the reason."""
