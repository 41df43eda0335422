"""`commonbook serve` as a real process: it starts, answers, survives a kill, and ends in time."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import pytest
import uvicorn

import commonbook
from commonbook.interfaces.http.serving import addresses
from commonbook.interfaces.http.serving import server as serving_process
from commonbook.interfaces.http.serving.addresses import ServeOptions
from commonbook.values.memory import Filter
from tests.support.best_of import seconds, takes_less_than
from tests.support.servers import Server, command, serving

pytestmark = pytest.mark.slow


@pytest.fixture
def server(chosen, open_book):
    """A server of the book of this test, in a home or on PostgreSQL."""
    open_book()
    with serving(None) as running:
        yield running


def remember(server: Server, text: str, **more: object) -> str:
    with server.client() as client:
        answer = client.post("/v1/memories", json={"text": text, **more})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def recalled(server: Server, query: str) -> list[str]:
    with server.client() as client:
        return [hit["text"] for hit in client.post("/v1/recall", json={"query": query}).json()["hits"]]


def test_a_server_remembers_recalls_and_ends_with_its_signal(server):
    remember(server, "Alice owns billing")
    assert recalled(server, "who owns billing?")
    assert server.end() == 0
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert [(line["method"], line["route"]) for line in lines] == [("POST", "/v1/memories"), ("POST", "/v1/recall")]
    assert {line["principal"] for line in lines} == {"user:local"}
    assert "billing" not in json.dumps(lines)
    assert server.key not in json.dumps(lines)


@pytest.mark.promise("servers.durable")
def test_what_was_answered_is_there_after_kill_minus_nine_and_a_restart(chosen, open_book):
    open_book()
    with serving(None) as first:
        found = remember(first, "durable", key="one")
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        port = int(first.url.rpartition(":")[2])
        with serving(None, port=port) as second, second.client() as client:
            assert second.url == first.url
            assert second.key == first.key
            assert client.get(f"/v1/memories/{found}").json()["text"] == "durable"


def test_two_servers_serve_one_book(chosen, open_book):
    open_book()
    with serving(None) as first, serving(None) as second:
        assert second.key == first.key
        found = remember(first, "Alice owns billing")
        with second.client() as client:
            assert client.get(f"/v1/memories/{found}").status_code == 200
            assert recalled(second, "who owns billing?")
            client.patch(f"/v1/memories/{found}", json={"text": "Bob owns billing"})
        with first.client() as client:
            assert client.get(f"/v1/memories/{found}").json()["text"] == "Bob owns billing"
        assert (first.end(), second.end()) == (0, 0)


@pytest.mark.promise("servers.revoked-key")
def test_a_key_revoked_through_one_server_is_refused_by_the_others_at_once(chosen, open_book):
    open_book()
    with serving(None) as first, serving(None) as second, serving(None) as third, first.client() as client:
        made = client.post("/v1/keys", json={"principal": "user:alice"}).json()
        with second.client(made["secret"]) as alice, third.client(made["secret"]) as alice_elsewhere:
            for each in (alice, alice_elsewhere):
                assert each.get("/v1/actor").json() == "user:alice"
            assert client.delete(f"/v1/keys/{made['key']['id']}").status_code == 200
            for each in (alice, alice_elsewhere):
                assert each.get("/v1/actor").status_code == 401
                assert each.post("/v1/recall", json={"query": "anything"}).status_code == 401


@pytest.mark.promise("limits.shared")
def test_a_rate_limit_holds_over_two_servers_and_the_answer_says_when_to_come_back(chosen, open_book):
    book = open_book()
    book.grant("user:ana", "team", "writer")
    book.set_limit("write", 2, principal="user:ana")
    secret = book.create_key("user:ana", space="team").secret
    with serving(None) as first, serving(None) as second, first.client(secret) as one, second.client(secret) as two:
        kept = [each.post("/v1/memories", json={"text": f"kept by {n}"}) for n, each in enumerate((one, two))]
        assert [answer.status_code for answer in kept] == [200, 200]
        for each in (one, two):
            refused = each.post("/v1/memories", json={"text": "one too many"})
            assert refused.status_code == 429
            assert refused.json()["type"] == "too_many"
            assert 1 <= int(refused.headers["retry-after"]) <= 61
    assert {memory.id for memory in book.list(Filter(space="team")).items} == {each.json()["id"] for each in kept}


@pytest.mark.promise("connect.owner-key")
def test_the_owner_has_a_key_in_a_file_that_nobody_else_reads(home):
    with serving(home) as server, server.client() as client:
        path = home / ".commonbook" / "owner.key"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert client.post("/v1/doctor").json() == []
        assert client.put("/v1/limits", json={"action": "recall", "per_minute": 100}).status_code == 200
        assert client.post("/v1/reindex", json={"anew": True}).status_code == 200
        (mine,) = client.get("/v1/keys").json()
        assert client.delete(f"/v1/keys/{mine['id']}").status_code == 200
        assert client.get("/v1/keys").status_code == 401
    with serving(home) as again, again.client() as client:
        assert again.key != server.key
        assert client.get("/v1/keys").status_code == 200


def test_the_owner_signs_a_browser_in_by_the_link_that_the_server_or_a_command_prints(home):
    with serving(home) as server:
        run = [sys.executable, "-m", "commonbook", "sign-in", server.url, "--home", str(home), "--json"]
        made = json.loads(subprocess.run(run, capture_output=True, check=True).stdout)
        assert server.sign_in is not None
        for link in (server.sign_in, made["link"]):
            page, _, code = link.partition("#")
            assert page == f"{server.url}/sign-in"
            origin = {"Origin": server.url}
            with httpx2.Client(base_url=server.url, trust_env=False, headers=origin, timeout=60) as browser:
                assert browser.post("/sign-in", data={"code": code}).status_code == 303
                assert "user:local" in browser.get("/").text
        assert server.end() == 0
        log = server.log.read_text()
        assert "/sign-in" in log
        assert not any(link.partition("#")[2] in log for link in (server.sign_in, made["link"]))


@pytest.mark.promise("signin.hidden")
def test_the_link_that_signs_in_is_written_to_a_terminal_and_into_no_log(home):
    run = [sys.executable, "-m", "commonbook", "serve", "--init", "--home", str(home), "--port", "0"]
    shown = ""
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "sign-in" not in shown:
            line = process.stdout.readline()
            assert line, shown
            shown += line
        process.terminate()
        shown += process.stdout.read()
    assert "sign-in#" not in shown


def test_a_server_answers_to_the_name_that_it_listens_on():
    for host in ("box.example", "Box.example.", "10.0.0.9"):
        config = addresses.guard_config(addresses.ServeOptions(host=host, tls_cert="c", tls_key="k"))
        assert config.allowed_hosts == {host.lower().removesuffix(".")}
    assert addresses.guard_config(
        addresses.ServeOptions(host="0.0.0.0", allowed_hosts=("a.example",))
    ).allowed_hosts == {"a.example"}


def test_servers_that_start_at_once_agree_on_one_key(home):
    commonbook.open(home, create=True).close()
    keys: list[str] = []

    def start() -> None:
        with serving(home) as server, server.client() as client:
            keys.append(server.key)
            assert client.get("/v1/keys").status_code == 200

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 3
    assert len(set(keys)) == 1
    with commonbook.open(home) as book:
        keys_of_book = book.keys()
    assert [key.revoked for key in keys_of_book].count(None) == 1
    assert sorted(path.name for path in (home / ".commonbook").glob("owner.key*")) == ["owner.key"]


def fails(home: Path, *options: str) -> dict[str, str]:
    """Run a server that does not start, and return its error."""
    run = subprocess.run(
        command("--home", str(home), *options), capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode in (2, 4, 5), run.stderr
    assert run.stdout == ""
    return dict(json.loads(run.stderr)["error"])


def test_no_answer_waits_for_a_packet_to_be_full():
    # asyncio sets TCP_NODELAY for sockets that name their protocol, and for no others.
    with addresses.bind("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("package", ["uvicorn", "starlette"])
def test_without_the_packages_of_the_server_the_error_says_what_to_install(home, tmp_path, package):
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.modules[{package!r}] = None")
    run = subprocess.run(
        command("--home", str(home), "--init"),
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    error = json.loads(run.stderr)["error"]
    assert (run.returncode, error["fix"]) == (2, "pip install 'commonbook[server]'")
    assert package in error["message"]
    assert not home.exists()


def test_a_port_that_is_taken_gets_a_clear_error(home):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        error = fails(home, "--init", "--port", str(port))
    assert error["type"] == "address_taken"
    assert str(port) in error["message"]
    assert "--port 0" in error["fix"]


@pytest.mark.promise("connect.open")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--host", "0.0.0.0"), "needs an API key"),
        (("--host", "192.0.2.1"), "needs an API key"),
        (("--host", "::"), "needs an API key"),
        (("--tls-cert", "nowhere.pem"), "--tls-key"),
        (("--tls-cert", "nowhere.pem", "--tls-key", "nowhere.pem"), "No such file"),
        (("--port", "65536"), "65535"),
        (("--behind-proxy", "*"), "no proxy"),
        (("--behind-proxy", "0.0.0.0/0"), "no proxy"),
        (("--allowed-host", "http://x"), "without scheme"),
        (("--as", "user:alice"), "as its owner"),
    ],
)
def test_options_that_are_wrong_or_open_the_book_are_refused(home, options, words):
    commonbook.open(home, create=True).close()
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        # What is wrong is said before a port is looked at.
        port = () if "--port" in options else ("--port", str(taken.getsockname()[1]))
        error = fails(home, *options, *port)
    assert words in error["message"] + error["fix"]


@pytest.mark.promise("connect.encrypted")
def test_another_address_needs_keys_and_tls_or_a_proxy_and_a_name(home):
    with commonbook.open(home, create=True) as book:
        made = book.create_key("user:alice")
    assert "needs TLS" in fails(home, "--host", "0.0.0.0")["message"]
    assert "--allowed-host" in fails(home, "--host", "0.0.0.0", "--behind-proxy", "10.0.0.7")["fix"]
    options = ("--host", "0.0.0.0", "--behind-proxy", "10.0.0.7", "--allowed-host", "localhost")
    with serving(home, *options) as server, server.client(made.secret) as client:
        assert server.key == ""
        assert client.get("/v1/actor").json() == "user:alice"
    assert not (home / ".commonbook" / "owner.key").exists()
    with commonbook.open(home) as book:
        book.revoke_key(made.key.id)
    assert "needs an API key" in fails(home, *options)["message"]


def test_a_folder_that_is_no_home_is_served_only_if_it_is_empty_and_was_asked_for(tmp_path):
    folder = tmp_path / "notes"
    assert fails_to_open(folder) == "no_home"
    folder.mkdir()
    (folder / "note.md").write_text("mine")
    assert fails_to_open(folder, "--init") == "no_home"
    assert [path.name for path in folder.iterdir()] == ["note.md"]


def fails_to_open(folder: Path, *options: str) -> str:
    run = subprocess.run(
        command("--home", str(folder), *options), capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 1
    return str(json.loads(run.stderr)["error"]["type"])


def test_edits_of_files_are_served_as_they_happen(home):
    with serving(home) as server, server.client() as client:
        found = remember(server, "Alice owns billing")
        (path,) = [path for path in home.rglob("*.md") if "Alice owns billing" in path.read_text()]
        path.write_text(path.read_text().replace("Alice owns billing", "Bob owns billing"))
        deadline = time.monotonic() + 60
        while client.get(f"/v1/memories/{found}").json()["text"] != "Bob owns billing":
            assert time.monotonic() < deadline


@pytest.mark.promise("malformed.connections")
def test_a_connection_too_many_is_refused_and_a_later_one_answered(home, monkeypatch):
    monkeypatch.setattr(serving_process, "_MAX_CONNECTIONS", 3)
    with ExitStack() as stack:
        process = serving_process._Process(stack.enter_context(commonbook.open(home, create=True)), ServeOptions())
        sock = stack.enter_context(addresses.bind("127.0.0.1", 0))
        running = uvicorn.Server(process._config(process._book_app()))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [sock]})
        thread.start()
        stack.callback(thread.join)
        stack.callback(setattr, running, "should_exit", True)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/health/live"
        clients = [stack.enter_context(httpx2.Client(trust_env=False, timeout=60)) for _ in range(3)]
        assert [client.get(url).status_code for client in clients] == [200, 200, 503]
        clients[0].close()
        deadline = time.monotonic() + 60
        while clients[2].get(url).status_code != 200:
            assert time.monotonic() < deadline


def ends_well(server: Server) -> None:
    assert server.end() == 0


@pytest.mark.promise("servers.end")
def test_a_request_that_is_still_running_does_not_hold_the_end_for_long(home):
    def attempt() -> float:
        with serving(home) as server:
            address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
            with closing(socket.create_connection(address)) as connection:
                head = f"POST /v1/recall HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.key}\r\n"
                connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
                return seconds(lambda: ends_well(server))

    takes_less_than(3.5, attempt)


@pytest.mark.promise("servers.end")
def test_a_request_that_waits_for_a_lock_does_not_hold_the_end_for_long(home):
    def attempt() -> float:
        with serving(home) as server, server.client() as client:
            address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
            with (
                closing(sqlite3.connect(home / ".commonbook" / "state.db", isolation_level=None)) as database,
                closing(socket.create_connection(address)) as connection,
            ):
                database.execute("BEGIN IMMEDIATE")
                head = f"POST /v1/spaces HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.key}\r\n"
                body = b'{"name": "team"}'
                lengths = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(f"{head}{lengths}".encode() + body)
                # The answers to these come after that request was begun.
                for _ in range(3):
                    assert client.get("/health/live").status_code == 200
                return seconds(lambda: ends_well(server))

    takes_less_than(3.5, attempt)
    with commonbook.open(home) as book:
        assert "team" not in {space.name for space in book.spaces()}


def test_a_server_over_tls_is_reached_with_its_certificate(home, tmp_path):
    cert, key = certificate(tmp_path)
    with serving(home, "--tls-cert", cert, "--tls-key", key) as server:
        assert server.url.startswith("https://127.0.0.1:")
        import ssl

        context = ssl.create_default_context(cafile=cert)
        with server.client(verify=context) as client:
            answer = client.get("/v1/actor")
            assert answer.json() == "user:local"
            assert "strict-transport-security" in answer.headers


def certificate(folder: Path) -> tuple[str, str]:
    """Make a certificate for 127.0.0.1 that signs itself."""
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    os.chmod(key_file, 0o600)
    return str(cert_file), str(key_file)
