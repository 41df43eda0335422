"""Import and export as zip archives."""

from __future__ import annotations

import io
import os
import zipfile

import pytest


@pytest.fixture(autouse=True)
def _spool(monkeypatch, tmp_path):
    """Let archives pass through a folder of this test."""
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr("commonbook.interfaces.http.archives.gettempdir", lambda: str(tmp_path / "spool"))


def zipped(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def left_over(tmp_path) -> list[str]:
    """Return the archives that are still there."""
    return [name for _, _, names in os.walk(tmp_path / "spool") for name in names if name != "lock"]


def test_an_export_of_one_book_is_imported_into_another(book, client, tmp_path):
    memory = book.remember("Alice owns billing", space="team/a", tags=["x"]).id
    book.remember("elsewhere", space="other")
    answer = client.get("/v1/export?space=team/a")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".md"))
        assert "Alice owns billing" in archive.read(path).decode()
    book.edit(memory, text="changed")
    report = client.post("/v1/import", content=answer.content)
    assert report.status_code == 200, report.text
    assert report.json()["done"] + report.json()["updated"] + report.json()["unchanged"] == 1
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("part", ["bytes=0-9", "bytes=0-9,20-29", "bytes=99999999-", "nonsense"])
def test_a_part_of_an_export_is_not_served_and_nothing_of_it_stays_behind(book, client, part, tmp_path):
    book.remember("Alice owns billing")
    answer = client.get("/v1/export", headers={"Range": part})
    assert answer.status_code == 200
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
    assert left_over(tmp_path) == []


def test_a_folder_that_comes_again_under_its_name_updates_its_notes(book, client):
    first = client.post("/v1/import?folder=notes&space=vault", content=zipped(**{"a.md": "# A\none", "b.md": "# B"}))
    assert first.json()["done"] == 2, first.text
    again = client.post("/v1/import?folder=notes&space=vault", content=zipped(**{"a.md": "# A\nnew", "b.md": "# B"}))
    assert (again.json()["updated"], again.json()["unchanged"]) == (1, 1)
    assert len(book.list().items) == 2


def test_an_import_is_done_once_for_a_key(book, client):
    # A zip has the time at which it was made: a repeat sends the same bytes.
    headers, sent = {"Idempotency-Key": "k"}, zipped(**{"a.md": "one"})
    first = client.post("/v1/import?space=vault", content=sent, headers=headers)
    again = client.post("/v1/import?space=vault", content=sent, headers=headers)
    assert first.json()["done"] == 1
    assert again.content == first.content
    other = client.post("/v1/import?space=vault", content=zipped(**{"a.md": "two"}), headers=headers)
    assert (other.status_code, other.json()["type"]) == (409, "key_conflict")


@pytest.mark.parametrize("body", [b"", b"no zip", b"PK\x03\x04" + b"\x00" * 100])
def test_a_body_that_is_no_archive_is_refused(book, client, body, tmp_path):
    answer = client.post("/v1/import", content=body)
    assert answer.status_code == 400, answer.text
    assert str(tmp_path) not in answer.text
    assert book.list().items == ()
    assert left_over(tmp_path) == []


@pytest.mark.promise("malformed.paths")
def test_an_archive_cannot_leave_its_folder(book, client, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../../out.md", "escaped")
        archive.writestr("/etc/out.md", "absolute")
    client.post("/v1/import?space=vault", content=buffer.getvalue())
    assert not [path for path in tmp_path.rglob("out.md") if "vault" not in str(path)]


def test_only_the_owner_imports_and_exports(book, client_of, tmp_path):
    book.create_space("team")
    book.grant("agent:a", "team", "admin")
    helper = client_of(book.create_key("agent:a").secret)
    assert helper.post("/v1/import?space=team", content=zipped(**{"a.md": "x"})).status_code == 403
    assert helper.get("/v1/export?space=team").status_code == 403
    assert book.list().items == ()
    assert left_over(tmp_path) == []


def test_an_archive_that_is_too_large_is_refused(book, tmp_path):
    from starlette.testclient import TestClient

    from commonbook.interfaces.http.app import make_app
    from commonbook.interfaces.http.threads import ServerConfig

    secret = book.create_key("user:local").secret
    client = TestClient(
        make_app(book, ServerConfig(max_archive_bytes=100)), headers={"Authorization": f"Bearer {secret}"}
    )
    answer = client.post("/v1/import", content=zipped(**{"a.md": "x" * 1000}))
    assert (answer.status_code, answer.json()["type"]) == (413, "too_large")
    assert left_over(tmp_path) == []


def test_a_folder_of_another_user_is_not_used(book, client, tmp_path):
    (tmp_path / "spool" / f"commonbook-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / "spool" / f"commonbook-{os.getuid()}").chmod(0o777)
    assert client.get("/v1/export").status_code == 503
