"""Mistakes of an operator with PostgreSQL are named, with a fix, and no password is shown."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import commonbook
from commonbook.compose.databases import make_keys, migrate_book
from commonbook.core.settings.settings import Settings
from commonbook.engines.postgres import database
from commonbook.errors import (
    BadInput,
    Busy,
    CommonbookError,
    DatabaseRefused,
    DatabaseUnfit,
    DatabaseUnreachable,
    HomeOfAnotherBuild,
    KeyMissing,
)
from tests.support.postgres_server import TEMPLATE, Server

SECRET = "s3cret/with:odd@letters"


@pytest.fixture(scope="module")
def careful() -> Iterator[Server]:
    """A server that asks one of its users for a password."""
    with Server.started() as server:
        server.run(f"CREATE ROLE alice LOGIN PASSWORD '{SECRET}'", "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")
        rules = server.data / "pg_hba.conf"
        rules.write_text(f"local all alice scram-sha-256\n{rules.read_text()}")
        server.make_template()
        server.make_database("book", template=TEMPLATE)
        server.run("ALTER DATABASE book OWNER TO alice")
        server.reload()
        yield server


Refusal = Callable[..., CommonbookError]


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch, postgres_keys: str) -> Refusal:
    """Try to open a book and return the error, which shows no password and has a fix."""

    def trying(address: str, kind: type[CommonbookError], *, keys: str | None = postgres_keys) -> CommonbookError:
        monkeypatch.setenv("COMMONBOOK_DATABASE", address)
        monkeypatch.setenv("COMMONBOOK_KEYS", keys or "")
        monkeypatch.setenv("COMMONBOOK_BUSY_SECONDS", "1")
        with pytest.raises(kind) as caught:
            commonbook.open().close()
        assert type(caught.value) is kind
        assert caught.value.fix
        assert SECRET not in f"{caught.value} {caught.value.fix} {caught.value.__cause__}"
        return caught.value

    return trying


def test_the_right_password_lets_us_in(careful, monkeypatch, postgres_keys):
    monkeypatch.setenv("COMMONBOOK_DATABASE", careful.address("book", user="alice", password=SECRET))
    monkeypatch.setenv("COMMONBOOK_KEYS", postgres_keys)
    with commonbook.open() as book:
        assert book.remember("x").new
        assert SECRET not in repr(book._settings)
        folder = str(careful.folder).replace("/", "%2F")
        assert book.status().home == f"postgresql:///book?host={folder}&port={careful.port}"


def test_no_part_of_a_password_is_shown_that_is_written_as_it_is(careful, monkeypatch, postgres_keys):
    """A question mark does not end a password, though it looks like the beginning of the options."""
    careful.run("CREATE ROLE carol LOGIN SUPERUSER PASSWORD 'half?other'")
    careful.make_database("carols", template=TEMPLATE)
    address = careful.address("carols", user="carol", password="half").replace("half", "half?other")
    monkeypatch.setenv("COMMONBOOK_KEYS", postgres_keys)
    with commonbook.open(address) as book:
        assert "half" not in f"{book.status()} {book.home} {book._settings!r}"


@pytest.mark.parametrize("password", ["half@other", "half/other", "half@other:third", "half/ot?her"])
def test_a_password_that_must_be_written_otherwise_is_not_taken_for_a_host(refusal, home, password):
    address = f"postgresql://alice:{password}@127.0.0.1:1/book"
    error = refusal(address, BadInput)
    assert "%xx" in error.fix
    assert "half" not in str(error)
    assert "ot" not in error.message.replace("not", "")
    commonbook.open(home, create=True).close()
    with pytest.raises(BadInput, match="the address to move to"):
        migrate_book(Settings.load(home), address)


@pytest.mark.parametrize("address", ["postgre://alice:secret@host/book", "PostgreSQL://alice:secret@host/book"])
def test_an_address_that_is_misspelt_is_not_taken_for_a_folder_to_move_to(home, tmp_path, address):
    commonbook.open(home, create=True).close()
    with pytest.raises(BadInput) as caught:
        migrate_book(Settings.load(home), address)
    assert "secret" not in str(caught.value)
    assert not any("secret" in str(path) for path in tmp_path.rglob("*"))


def test_a_wrong_password(careful, refusal):
    error = refusal(careful.address("book", user="alice", password="wrong"), DatabaseRefused)
    assert "authentication failed" in error.message
    assert "password" in error.fix


def test_no_password(careful, refusal):
    assert "password" in refusal(careful.address("book", user="alice"), DatabaseRefused).fix


def test_a_user_or_database_that_is_not_there(careful, refusal):
    assert "nowhere" in refusal(careful.address("nowhere"), DatabaseRefused).message
    assert "bob" in refusal(careful.address("book", user="bob"), DatabaseRefused).message


@pytest.mark.promise("postgres.waits")
@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://alice:{SECRET.replace('/', '%2F').replace('@', '%40')}@127.0.0.1:1/book",
        "postgresql://alice@nowhere.invalid/book",
        "postgresql:///book?host=/nowhere",
        "postgresql://alice@127.0.0.1:1,127.0.0.1:2/book",
    ],
)
def test_an_unreachable_host(refusal, address):
    assert "start the server" in refusal(address, DatabaseUnreachable).fix


def test_a_host_that_does_not_answer_among_several_that_do(careful, monkeypatch, postgres_keys):
    folder = str(careful.folder).replace("/", "%2F")
    address = f"postgresql://commonbook@/template1?host=%2Fnowhere,{folder}&port=5432,{careful.port}"
    monkeypatch.setenv("COMMONBOOK_DATABASE", address)
    monkeypatch.setenv("COMMONBOOK_KEYS", postgres_keys)
    with commonbook.open() as book:
        assert book.remember("x").new


def test_no_pgvector(careful, refusal):
    address = careful.make_database("plain")
    careful.run("ALTER DATABASE plain SET extension_control_path = '/nowhere'")
    error = refusal(address, DatabaseUnfit)
    assert "pgvector" in error.message
    assert "install" in error.fix


def test_pgvector_where_nobody_looks_for_it(careful, refusal):
    address = careful.make_database("elsewhere")
    careful.run("CREATE SCHEMA other", "CREATE EXTENSION vector SCHEMA other", database="elsewhere")
    error = refusal(address, DatabaseUnfit)
    assert "in the schema other" in error.message
    assert "search_path" in error.fix


def test_no_schema_to_make_tables_in(careful, refusal):
    address = careful.make_database("homeless", template=TEMPLATE)
    careful.run("ALTER DATABASE homeless SET search_path = nowhere")
    careful.run("ALTER EXTENSION vector SET SCHEMA pg_catalog", database="homeless")
    assert "search_path" in refusal(address, DatabaseUnfit).fix


@pytest.mark.parametrize(
    "table", ["schema_version (version text)", "schema_version (installed_rank integer)", "memory (a integer)"]
)
def test_a_database_that_belongs_to_another_program(careful, refusal, table):
    address = careful.make_database("theirs", template=TEMPLATE)
    careful.run(f"CREATE TABLE {table}", database="theirs")
    if "text" in table:
        careful.run("INSERT INTO schema_version VALUES ('1.2')", database="theirs")
    error = refusal(address, DatabaseUnfit)
    assert "another program" in error.message
    assert "of its own" in error.fix


def test_an_address_that_asks_for_another_encoding_than_texts_need(careful, monkeypatch, postgres_keys):
    address = careful.make_database("wide", template=TEMPLATE)
    monkeypatch.setenv("COMMONBOOK_KEYS", postgres_keys)
    with commonbook.open(f"{address}&client_encoding=LATIN1") as book:
        assert book.get(book.remember("Δ 鷺 😀").id).text == "Δ 鷺 😀"


def test_a_user_that_may_not_make_tables(careful, refusal):
    careful.make_database("foreign", template=TEMPLATE)
    assert "owner" in refusal(careful.address("foreign", user="alice", password=SECRET), DatabaseUnfit).fix


def test_a_database_of_another_encoding(careful, refusal):
    careful.run("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    assert "LATIN1" in refusal(careful.address("latin"), DatabaseUnfit).message


def test_too_old_a_server(careful, refusal, monkeypatch):
    monkeypatch.setattr(database, "MIN_SERVER_VERSION", 990000)
    assert "needs 99 or newer" in refusal(careful.address("book"), DatabaseUnfit).message


def test_a_read_only_standby(careful, refusal):
    address = careful.make_database("standby", template=TEMPLATE)
    careful.run("ALTER DATABASE standby SET default_transaction_read_only = on")
    assert "primary" in refusal(address, DatabaseUnreachable).fix


@pytest.mark.promise("builds.refused")
@pytest.mark.parametrize(
    ("columns", "values"),
    [("version INTEGER", "99"), ("version INTEGER", "1"), ("version INTEGER, fingerprint BIGINT", "1, 4711")],
)
def test_a_database_of_another_build(careful, refusal, columns, values):
    address = careful.make_database("other", template=TEMPLATE)
    careful.run(
        f"CREATE TABLE schema_version ({columns})", f"INSERT INTO schema_version VALUES ({values})", database="other"
    )
    error = refusal(address, HomeOfAnotherBuild)
    assert f"schema {values.split(',')[0]}" in error.message
    assert "commonbook export" in error.fix
    assert "commonbook import" in error.fix
    careful.drop_database("other")


def test_a_server_that_has_no_connections_left(careful, refusal):
    assert "connection limit" in refusal(careful.address("book", user="crowd"), Busy).fix


def test_keys_that_nobody_named_made_or_knows(careful, refusal, tmp_path: Path):
    address = careful.make_database("keyless", template=TEMPLATE)
    assert "audit keys" in refusal(address, KeyMissing, keys=None).fix
    assert "audit keys" in refusal(address, KeyMissing, keys=str(tmp_path / "none")).fix


def test_keys_of_another_book(careful, refusal, monkeypatch, postgres_keys, tmp_path: Path):
    address = careful.make_database("ours", template=TEMPLATE)
    monkeypatch.setenv("COMMONBOOK_DATABASE", address)
    monkeypatch.setenv("COMMONBOOK_KEYS", postgres_keys)
    commonbook.open().close()
    make_keys(str(tmp_path / "others"))
    error = refusal(address, KeyMissing, keys=str(tmp_path / "others"))
    assert "are not those" in error.message
    shutil.copy(Path(postgres_keys) / "hashing.key", tmp_path / "others")
    assert "are not those" in refusal(address, KeyMissing, keys=str(tmp_path / "others")).message


def test_the_package_is_not_installed(refusal, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "commonbook.engines.postgres.database", None)
    assert "commonbook[postgres]" in refusal("postgresql://host/book", DatabaseUnfit).fix


@pytest.mark.parametrize("value", ["mysql://host/x", "host", "postgresql://", "postgresql://ho st/x"])
def test_what_is_no_address(refusal, value):
    assert "postgresql://user" in refusal(value, BadInput).fix


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("CONNECTIONS", value) for value in ("0", "1", "-3", "many", "1001", "٣")),
        *(("RECALL_MB", value) for value in ("-1", "1.5", "much", "100001", "٣")),
    ],
)
def test_a_number_that_is_none(monkeypatch, name, value):
    monkeypatch.setenv("COMMONBOOK_DATABASE", "postgresql://host/book")
    monkeypatch.setenv(f"COMMONBOOK_{name}", value)
    with pytest.raises(BadInput, match=f"COMMONBOOK_{name}"):
        commonbook.open()


def test_a_home_that_was_named_wins_over_the_database(home, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_DATABASE", "postgresql://nowhere.invalid/book")
    with commonbook.open(home, create=True) as book:
        assert book.home == str(home.resolve())
