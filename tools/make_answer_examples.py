"""Write the examples of answers of the OpenAPI document: `python tools/make_answer_examples.py`.

A scenario calls every verb over HTTP on a new book, and keeps an answer of each. Ids, times, hashes and secrets differ
at each run: they are replaced by fixed ones, the same ones by the same.
"""

from __future__ import annotations

import io
import json
import math
import re
import tempfile
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

import commonbook
from commonbook.interfaces.http.app import make_app
from commonbook.interfaces.http.examples import BATCH, CODE, ID, OTHER_ID
from commonbook.model.ids import UUID_PATTERN, format_time
from commonbook.wire.requests import request_of
from commonbook.wire.verbs import BATCH_PATH, IMPORT, VERBS

FILE = Path(__file__).parents[1] / "src" / "commonbook" / "interfaces" / "http" / "answer_examples.json"

MAX_ITEMS = 2
"""The greatest length of a list of results."""

TIME = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
"""The time at which everything happens in the examples."""

HOME = "/home/ana/commonbook"
FIXED = {
    "secret": "cbk_EXAMPLE",
    "confidence": 0.93,
    "took_ms": 3.2,
    "queue_age_seconds": 0.0,
    "program": "0.1.0",
    "database_bytes": 8388608,
    "markdown_bytes": 4096,
}
"""The fields that have the same value in all examples."""

NEW_TEXT = "Carol owns the billing service"
SPACE, OTHER_SPACE, SESSION = "team/backend", "team/frontend", "support-17"


class Scenario:
    """Calls verbs of a book over HTTP, and keeps the answers that are shown."""

    def __init__(self, app: Starlette, secret: str, answers: dict[str, Any]) -> None:
        """Call the verbs of this app by the key with this secret, and keep the answers here."""
        self._app = app
        self._client = TestClient(app, headers={"Authorization": f"Bearer {secret}"})
        self.answers = answers

    def with_key(self, secret: str) -> Scenario:
        """Return a scenario by another key, which keeps its answers in the same place."""
        return Scenario(self._app, secret, self.answers)

    def call(self, verb: str, **arguments: object) -> Any:  # noqa: ANN401 - the answer of the verb
        """Call a verb, and return its answer."""
        request = request_of(VERBS[verb], arguments)
        response = self._client.request(request.method, request.path, params=request.query, content=request.body)
        if response.status_code != 200:
            raise RuntimeError(f"{verb}: {response.text}")
        return response.json()

    def show(self, verb: str, **arguments: object) -> Any:  # noqa: ANN401 - the answer of the verb
        """Call a verb, and keep its answer as an example."""
        self.answers[verb] = self.call(verb, **arguments)
        return self.answers[verb]

    def post(self, path: str, body: bytes, media_type: str, **query: str) -> str:
        """Send a body that is not JSON, and return the text of the answer."""
        response = self._client.post(path, params=query, content=body, headers={"Content-Type": media_type})
        if response.status_code != 200:
            raise RuntimeError(f"{path}: {response.text}")
        return response.text


def _memories(scenario: Scenario) -> None:
    text = "Alice owns the billing service"
    first = scenario.show("remember", text=text, space=SPACE, kind="fact", tags=["billing"])["id"]
    second = scenario.call("remember", text="Invoices are sent on the first of a month", space=SPACE)["id"]
    scenario.show("remember_many", drafts=[{"text": "Bob likes oolong", "kind": "preference", "space": "personal"}])
    scenario.show("find_id", part=first)
    scenario.show("link", source=first, relation="related_to", target=second)
    scenario.show("links", memory_id=first)
    scenario.show("get", memory_id=first)
    scenario.show("list", chosen=commonbook.Filter(space=SPACE, kinds=("fact",)))
    scenario.show("unlink", source=first, relation="related_to", target=second)
    scenario.show("edit", memory_id=first, text=NEW_TEXT, expected_version=3)
    scenario.show("history", memory_id=first)
    scenario.show("delete", ids=[second], dry_run=True)
    scenario.show("delete_where", chosen={"space": SPACE, "tags": ["billing"]}, dry_run=True)
    scenario.call("delete", ids=[second])
    scenario.show("undelete", memory_id=second)
    scenario.show("move", memory_id=second, space="team/billing")
    scenario.call("move", memory_id=second, space=SPACE)


def _recall(scenario: Scenario) -> None:
    wanted = {"query": "who owns the billing service?", "spaces": [SPACE], "k": 1}
    (hit,) = scenario.show("recall", **wanted)["hits"]
    message = {"text": "Who owns billing?", "role": "user", "client_id": "m-1"}
    scenario.show("append", session=SESSION, messages=[message], space=SPACE)
    passage = {"id": hit["id"], "hash": sha256(hit["text"].encode()).hexdigest(), "revision": 2}
    scenario.show("record_uses", session=SESSION, space=SPACE, passages=[passage], message="m-1")
    scenario.show("uses", memory_id=hit["id"])
    scenario.show("session_uses", session=SESSION, space=SPACE)
    scenario.show("prefetch", session=SESSION, space=SPACE, **wanted)
    scenario.show("prefetched", session=SESSION, space=SPACE, query=wanted["query"], wait=60)


def _sessions(scenario: Scenario) -> None:
    more = [{"text": "Carol owns it.", "role": "assistant"}, {"text": "Wrong window", "role": "user"}]
    scenario.call("append", session=SESSION, messages=more, space=SPACE)
    scenario.show("rewind", session=SESSION, after=2, space=SPACE)
    scenario.show("messages", session=SESSION, space=SPACE, limit=1)
    scenario.show("settle", session=SESSION, space=SPACE)
    scenario.show("sessions", space=SPACE)
    scenario.call("append", session=SESSION, messages=["Thanks."], space=SPACE)
    scenario.show("switch", old=SESSION, new="support-18", reason="new", space=SPACE)
    scenario.call("append", session="support-18", messages=["One more question"], space=SPACE)
    scenario.show("close_session", session="support-18", space=SPACE)
    scenario.show("move_session", session="support-18", to="team/support", space=SPACE)


def _sharing(scenario: Scenario, first: str, second: str) -> None:
    copy = scenario.show("share", memory_id=first, to=OTHER_SPACE, refresh="live")["id"]
    scenario.show("lineage", memory_id=copy)
    scenario.show("copies", memory_id=first)
    scenario.show("set_refresh", copy_id=copy, mode="snapshot")
    scenario.call("edit", memory_id=first, text="Carol owns the billing service, Dave stands in for her")
    scenario.show("refresh", copy_id=copy)
    scenario.call("edit", memory_id=copy, text="Carol owns billing")
    scenario.show("adopt", copy_id=copy)
    scenario.show("detach", copy_id=copy)
    pulled = scenario.show("pull", memory_id=first, to="personal")["id"]
    scenario.show("unshare", copy_id=pulled)
    scenario.show("share_many", ids=[first, second], to="team/support")
    scenario.call("grant", principal="user:bob", space="people/bob", role="writer")
    scenario.show("share_with", memory_id=first, principal="user:bob")


def _rules(scenario: Scenario, bob: Scenario, first: str, second: str) -> None:
    rule = scenario.show("add_rule", space=OTHER_SPACE, from_space=SPACE, kinds=["decision"], approval=True)
    scenario.show("rules", space=OTHER_SPACE)
    scenario.show("remove_rule", rule_id=rule["id"])
    requests = [bob.show("request_share", memory_id=memory, to="company")["id"] for memory in (second, first)]
    scenario.show("pending", space="company")
    # The author of the text does not decide.
    scenario.call("grant", principal="user:carol", space="company", role="admin")
    carol = scenario.with_key(scenario.call("create_key", principal="user:carol")["secret"])
    carol.show("approve", request_id=requests[0], note="fits here")
    carol.show("reject", request_id=requests[1], note="too early")


def _reasoning(scenario: Scenario, first: str, second: str) -> None:
    scenario.show("reflect", text="Questions about invoices go to Carol", on=[first, second], space=SPACE)
    scenario.show("dependents", memory_id=first)
    new = scenario.call("remember", text="Erin owns the billing service", space=SPACE)["id"]
    scenario.show("supersede", old=first, by=new, reason="Erin took over")
    inbox = scenario.show("inbox", space=SPACE)
    scenario.show("triage", memory_id=inbox["items"][0]["id"], verdict="keep", note="still true")
    scenario.show("reinstate", old=first)


def _spaces(scenario: Scenario, bob: Scenario) -> None:
    for verb in ("actor", "default_space", "space_for_writing"):
        scenario.show(verb)
    position = scenario.call("changes")["next"]
    scenario.show("create_space", name="team/platform")
    scenario.show("rename_space", old="team/platform", new="team/infrastructure")
    scenario.show("set_review", space="team/infrastructure", review="agents")
    scenario.show("set_depth", space="team/infrastructure", depth=2)
    scenario.show("changes", after=position, limit=1)["next"] = "AQGhmlx9HnMjuT4"
    scenario.show("log", space="team/infrastructure", limit=1)
    bob.show("spaces")


def _access(scenario: Scenario) -> None:
    scenario.show("grant", principal="agent:helper", space=SPACE, role="writer")
    scenario.show("grants", space=SPACE)
    limits = [[SPACE, "writer"]]
    created = scenario.show("create_key", principal="agent:helper", label="helper", limits=limits, space=SPACE)
    key = created["key"]["id"]
    scenario.with_key(created["secret"]).show("whoami")
    login = scenario.show("create_login", key_id=key)
    scenario.show("exchange_login", code=login["code"])
    login["code"] = CODE
    scenario.show("create_sign_in")["code"] = "a-code-of-43-characters"
    scenario.show("keys")
    scenario.show("revoke_key", key_id=key)
    scenario.show("revoke", principal="agent:helper", space=SPACE)
    scenario.show("set_limit", action="share", per_minute=20, principal="agent:helper")
    scenario.show("limits")


def _maintenance(scenario: Scenario, home: Path) -> None:
    for verb in ("home", "moved_to", "schema_migration", "log_size", "verify_log", "metrics", "status"):
        scenario.show(verb)
    (home / "personal" / "plants.md").write_text("Water the plants on Monday\n", encoding="utf-8")
    (home / "personal" / "tea.md").write_bytes(b"Caf\xe9\n")
    scenario.show("sync")
    scenario.show("doctor")
    scenario.show("rebuild")
    scenario.show("accept_deletions")
    scenario.show("reindex", anew=True)
    scenario.show("work")


def _bodies_of_other_types(scenario: Scenario, first: str) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("meeting.md", "The release is on Friday\n")
    answer = scenario.post(IMPORT.path, file.getvalue(), "application/zip", space="notes")
    scenario.answers[IMPORT.name] = json.loads(answer)
    lines = BATCH.replace(ID, first)
    scenario.answers["batch"] = scenario.post(BATCH_PATH, lines.encode(), "application/x-ndjson")


def run(home: Path) -> dict[str, Any]:
    """Run the scenario on a new book in this home, and return an answer of each verb."""
    with commonbook.open(home, create=True) as book:
        for name in (SPACE, OTHER_SPACE, "personal", "company", "team/support"):
            book.create_space(name)
        secret = book.create_key("user:local", space=SPACE).secret
        book.grant("user:bob", "team", "writer")
        book.grant("user:bob", "company", "reader")
        answers: dict[str, Any] = {}
        scenario = Scenario(make_app(book), secret, answers)
        bob = scenario.with_key(book.create_key("user:bob").secret)
        _memories(scenario)
        first, second = scenario.answers["remember"]["id"], scenario.answers["undelete"]["id"]
        _recall(scenario)
        _sessions(scenario)
        _spaces(scenario, bob)
        _sharing(scenario, first, second)
        _rules(scenario, bob, first, second)
        _reasoning(scenario, first, second)
        _access(scenario)
        _bodies_of_other_types(scenario, first)
        _maintenance(scenario, home)
    replacements = Replacements(home, {first: ID, second: OTHER_ID})
    return {verb: replacements.of(answer) for verb, answer in _cut(answers).items()}


def _cut(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out results after the first ones, if an answer is a list."""
    return {verb: answer[:MAX_ITEMS] if isinstance(answer, list) else answer for verb, answer in answers.items()}


class Replacements:
    """Replaces the values that differ between two runs, equal ones by equal ones."""

    def __init__(self, home: Path, ids: Mapping[str, str]) -> None:
        """Replace the path of this home, and these ids by these."""
        self._home, self._ids, self._hashes = str(home), dict(ids), dict[str, str]()
        # This one is the same at each run.
        digits = sha256(NEW_TEXT.encode()).hexdigest()
        self._hashes[digits] = digits

    def of(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Return a value of JSON with its replacements."""
        if isinstance(value, dict):
            return {name: FIXED[name] if name in FIXED else self.of(field) for name, field in value.items()}
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if isinstance(value, float):
            return round(value, 2)
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = _TIME.sub(_time, text.replace(self._home, HOME))
        text = _ID.sub(lambda found: self._id(found[0]), text)
        text = _FILE_NAME.sub(lambda found: f"/{TIME:%Y-%m}/{found[1]}--{self._end_of_id(found[2])}.md", text)
        return _HASH.sub(lambda found: self._hash(found[0]), text)

    def _id(self, id_: str) -> str:
        count = len(self._ids)
        digits = sha256(b"id %d" % count).hexdigest()
        return self._ids.setdefault(id_, f"01a19a5c-{0x9000 + count:04x}-7{digits[:3]}-9{digits[3:6]}-{digits[6:18]}")

    def _end_of_id(self, end: str) -> str:
        """Return the end of the id that stands for the one with this end."""
        return next((new[-8:] for old, new in self._ids.items() if old.endswith(end)), end)

    def _hash(self, digits: str) -> str:
        new = sha256(b"hash %d" % len(self._hashes)).hexdigest() * 2
        return digits if set(digits) == {"0"} else self._hashes.setdefault(digits, new[: len(digits)])


_ID = re.compile(UUID_PATTERN)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_FILE_NAME = re.compile(r"/\d{4}-\d\d/([a-z0-9-]+)--([0-9a-f]{8})\.md")
_HASH = re.compile(r"\b(?:[0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{64}|[0-9a-f]{128})\b")


def _time(found: re.Match[str]) -> str:
    """Return the time of all examples; one in the future stays as many minutes after it."""
    later = datetime.fromisoformat(found[0]) - datetime.now(UTC)
    minutes = max(0, math.ceil(later / timedelta(minutes=1)))
    return format_time(TIME + timedelta(minutes=minutes))


def text() -> str:
    """Return the text of the file: a line for each verb, in the order of their names."""
    with tempfile.TemporaryDirectory() as folder:
        answers = run(Path(folder) / "home")
    lines = (f"{json.dumps(verb)}: {json.dumps(answers[verb], ensure_ascii=False)}" for verb in sorted(answers))
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
