"""Secrets of one scenario over a real server: none of them is in what the book stores, logs, lists or answers."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO
from typing import Any

import httpx2
import pytest

import commonbook
from tests.support.servers import Server, serving

TEXT = "the walrus pays the bills"


@pytest.fixture
def server(book):
    with serving(None, "--metrics-port", "0") as server:
        yield server


def signed_in(server: Server, code: str) -> dict[str, str]:
    """Sign a browser in; return the secrets that it has then."""
    own_page = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    with httpx2.Client(base_url=server.url, timeout=60, trust_env=False) as browser:
        assert browser.post("/sign-in", data={"code": code}, headers=own_page).status_code == 303
        (cookie,) = browser.cookies.values()
        found = re.search(r'name="csrf_token" value="([0-9a-f]{64})"', browser.get("/").text)
        assert found
        return {"the session of a browser": cookie, "the token of its page": found[1]}


@pytest.mark.promise("logs.secrets")
def test_no_secret_is_stored_logged_listed_answered_or_exported(book, stored, server: Server, tmp_path):
    secrets = {"the owner's key": server.key, "a key of nobody": "cbk_" + "x" * 43}
    shown: dict[str, str] = {}
    outbox = tmp_path / "outbox.db"
    with server.client() as owner:
        made = owner.post("/v1/keys", json={"principal": "agent:ana"}, headers={"Idempotency-Key": "once"}).json()
        again = owner.post("/v1/keys", json={"principal": "agent:ana"}, headers={"Idempotency-Key": "once"}).json()
        assert made == again, "the repeat has the secret too, which is kept for it in cipher"
        secrets["a key"] = made["secret"]
        secrets["a login code"] = owner.post(f"/v1/keys/{made['key']['id']}/login", json={}).json()["code"]
        login = httpx2.post(f"{server.url}/v1/login", json={"code": secrets["a login code"]}, trust_env=False)
        assert login.status_code == 200, login.text
        secrets["the key of a login"] = login.json()["secret"]
        secrets["a sign-in code"] = str(server.sign_in).partition("#")[2]
        secrets |= signed_in(server, secrets["a sign-in code"])
        owner.post("/v1/grants", json={"principal": "agent:ana", "space": "personal", "role": "writer"})
        with commonbook.connect(server.url, secrets["the key of a login"], outbox=outbox) as ana:
            ana.append("talk", [f"my key is {secrets['a key']}, keep it"], space="personal")
            shown["the session"] = repr(ana.messages("talk", space="personal"))
            assert ana.outbox.flush(60)
        receipt = owner.post("/v1/memories", json={"text": TEXT}).json()
        for place, answer in misuses(server, secrets["a key of nobody"], secrets["the key of a login"]).items():
            assert 400 <= answer.status_code < 500, place
            shown[place] = answer.text + str(answer.headers)
        for path in ("keys", "grants", "status", "limits", "spaces", "log?space=_home", "log?space=personal",
                     f"memories/{receipt['id']}", f"memories/{receipt['id']}/history"):  # fmt: skip
            answer = owner.get(f"/v1/{path}")
            assert answer.status_code == 200, answer.text
            shown[path] = answer.text
        shown["metrics"] = httpx2.get(f"{server.metrics}/metrics", trust_env=False).text
        archive = zipfile.ZipFile(BytesIO(owner.get("/v1/export").content))
    files = {f"export: {name}": archive.read(name) for name in archive.namelist()}
    assert any(TEXT.encode() in data for data in files.values())
    files |= {f"shown: {place}": text.encode() for place, text in shown.items()}
    files |= {path.name: path.read_bytes() for path in tmp_path.glob("outbox.db*")}
    # With its write-ahead log, as it is while the server runs.
    files |= without_key_files(stored(), server)
    assert server.end() == 0
    log = server.log.read_text()
    assert log.count('"event": "request"') > 15
    assert TEXT not in log
    files["the log of the server"] = log.encode()
    found = [
        (what, name) for what, secret in secrets.items() for name, data in files.items() if secret.encode() in data
    ]
    assert found == []


def misuses(server: Server, wrong: str, right: str) -> dict[str, Any]:
    """Answers to requests that have a key where none belongs, or one that opens nothing."""
    with server.client(wrong) as nobody, server.client() as owner:
        return {
            "a wrong key": nobody.get("/v1/memories"),
            "a wrong login code": owner.post("/v1/login", json={"code": wrong}),
            "a key in the query": owner.get("/v1/memories", params={"key": right}),
            "a key as a path": owner.get(f"/v1/{right}"),
            "a key as an id": owner.get(f"/v1/memories/{right}"),
            "a key as a field": owner.post("/v1/memories", json={"text": "x", right: right}),
            "a key as a version": owner.delete(f"/v1/memories/{right}", headers={"If-Match": right}),
            "a key as a body": owner.post("/v1/memories", content=right, headers={"Content-Type": "application/json"}),
            "a key as a name of a space": owner.post("/v1/memories", json={"text": "x", "space": f"../{right}"}),
        }


def without_key_files(files: dict[str, bytes], server: Server) -> dict[str, bytes]:
    """Leave out the one file that is there to keep the owner's key."""
    return {name: data for name, data in files.items() if data.strip() != server.key.encode()}
