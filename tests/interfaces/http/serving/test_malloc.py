"""The limit of malloc: threads share two arenas."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

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
