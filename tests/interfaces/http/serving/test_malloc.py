"""The limits of malloc: threads share two arenas, and recalls find their memory there."""

from __future__ import annotations

import os
import platform
import random
import subprocess
import sys
from pathlib import Path

import pytest

import commonbook
from benchmarks.library import SHARED, as_in_a_chat, shelves
from tests.support.http_servers import ServerProcess

_PASSAGES = 1000
_RECALLS = 40
_MAX_FAULTS = 50
"""Page faults of a recall, on average: memory that is mapped anew for each takes more than 150."""

PROGRAM = """
import ctypes, sys, threading
from commonbook.interfaces.http.serving.malloc import limit_malloc
if sys.argv[1] == "limited":
    assert limit_malloc()
all_run = threading.Barrier(9)
def allocate():
    kept = [bytearray(2000) for _ in range(100)]
    all_run.wait(60)
    return kept
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
all_run.wait(60)
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_the_threads_of_a_server_share_two_arenas(tmp_path: Path):
    arenas = {}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    for kind in ("limited", "free"):
        place = tmp_path / kind
        subprocess.run([sys.executable, "-c", PROGRAM, kind, str(place)], env=environment, check=True, timeout=120)
        arenas[kind] = place.read_text(encoding="utf-8").count("<heap nr=")
    assert arenas["limited"] <= 2 < arenas["free"]


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_a_recall_takes_no_new_memory_of_the_system(tmp_path: Path):
    with commonbook.open(tmp_path / "home", create=True) as book:
        book.remember_many([shelf.draft for shelf in shelves(_PASSAGES, SHARED)])
        key = book.create_key(book.actor).secret
    server = ServerProcess(COMMONBOOK_HOME=str(tmp_path / "home"))
    try:
        with commonbook.connect(server.url, key) as remote:
            chance = random.Random(1)
            for _ in range(_RECALLS):
                remote.recall(as_in_a_chat(chance))
            before = server.page_faults()
            # Other questions: what a question needs is kept for its repetition.
            for _ in range(_RECALLS):
                remote.recall(as_in_a_chat(chance))
            faults = server.page_faults() - before
    finally:
        server.close()
    assert faults / _RECALLS <= _MAX_FAULTS
