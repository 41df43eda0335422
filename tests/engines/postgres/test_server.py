"""The server for tests itself: a run that was killed leaves no server behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg

from tests.support.postgres_server import Server

_RUN = """
import time
from tests.support.postgres_server import Server

with Server.started() as server:
    print(server.pid, server.folder, flush=True)
    time.sleep(60)
"""


def test_a_database_of_the_module_has_the_extension(postgres_database):
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("SELECT '[1,2]'::vector::text").fetchone() == ("[1,2]",)


def test_a_server_that_was_killed_starts_again_with_what_was_committed():
    with Server.started(fsync="on") as server:
        server.run("CREATE TABLE kept (a int)", "INSERT INTO kept VALUES (1)")
        server.kill()
        server.start()
        with psycopg.connect(server.address()) as connection:
            assert connection.execute("SELECT a FROM kept").fetchall() == [(1,)]


def test_a_test_run_that_is_killed_leaves_no_server_behind():
    root = Path(__file__).parents[3]
    run = subprocess.Popen([sys.executable, "-c", _RUN], stdout=subprocess.PIPE, cwd=root, text=True)
    assert run.stdout is not None
    pid, folder = run.stdout.readline().split()
    run.kill()
    run.wait()
    run.stdout.close()
    until = time.monotonic() + 60
    while _runs(int(pid)) or Path(folder).exists():
        assert time.monotonic() < until, "the server is still there"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
