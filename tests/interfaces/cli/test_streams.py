"""The command line as a real process: streams, encodings, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

import commonbook


@pytest.fixture(autouse=True)
def _empty_home(tmp_path):
    commonbook.open(tmp_path / "home", create=True).close()


@pytest.fixture
def run(tmp_path):
    def run(
        *args: str | bytes, env: dict[str, str] | None = None, given: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "commonbook", *args],
            cwd=tmp_path,
            env={**environ(tmp_path), **(env or {})},
            check=False,
            input=given,
            capture_output=True,
            timeout=60,
        )

    return run


def environ(tmp_path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("COMMONBOOK_")}
    return {**ours, "COMMONBOOK_HOME": str(tmp_path / "home")}


def test_exit_codes_and_streams(run):
    assert run("status").returncode == 0
    for args, code in (
        (("remember",), 2),
        (("show", "deadbeef"), 3),
        (("show", "x y"), 3),
        (("list", "--limit", "x"), 2),
    ):
        done = run(*args)
        assert (done.returncode, done.stdout) == (code, b"")
        assert done.stderr.startswith(b"commonbook: ")


def test_an_undecodable_argument_is_refused_and_the_complaint_can_be_printed(run):
    for env in ({"PYTHONUTF8": "1"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        for args in ((b"remember", b"caf\xe9"), (b"remember", b"--file", b"caf\xe9", b"--json")):
            done = run(*args, env=env)
            assert done.returncode == 3 if b"--json" in args else 2
            assert b"Traceback" not in done.stderr
            if b"--json" in args:
                assert json.loads(done.stderr)["error"]["fix"]
    assert json.loads(run("list", "--json").stdout)["items"] == []


def test_a_terminal_that_is_not_utf8_gets_every_character_as_it_can(run):
    memory_id = json.loads(run("remember", "grün 🍵", "--json").stdout)["id"]
    env = {"PYTHONIOENCODING": "ascii"}
    assert b"gr\\xfcn \\U0001f375" in run("show", memory_id, env=env).stdout
    assert json.loads(run("show", memory_id, "--json", env=env).stdout)["text"] == "grün 🍵"
    assert run("list", env=env).returncode == 0


def test_a_reader_that_goes_away_is_no_drama(run, tmp_path):
    lines = "".join(json.dumps({"text": f"memory {number} " + "x" * 1000}) + "\n" for number in range(300))
    assert run("remember", "--batch", "-", given=lines.encode()).returncode == 0
    listing = subprocess.Popen(
        [sys.executable, "-m", "commonbook", "list", "--limit", "300", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ(tmp_path),
        cwd=tmp_path,
    )
    assert listing.stdout is not None
    assert listing.stderr is not None
    listing.stdout.close()
    assert listing.stderr.read() == b""
    listing.stderr.close()
    assert listing.wait(60) == 141


def test_closed_streams_are_no_drama(tmp_path):
    closing = (
        "import os, sys\n"
        "os.close(0), os.close(1)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'commonbook', *sys.argv[1:]])"
    )
    for args, code in ((("status",), 0), (("remember", "tea"), 0), (("remember", "-"), 2), (("remember",), 2)):
        done = subprocess.run(
            [sys.executable, "-c", closing, *args],
            env=environ(tmp_path),
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr


def test_an_interrupt_ends_with_130_and_no_traceback(run, tmp_path):
    assert run("status").returncode == 0
    # A shell lets what it starts in the background ignore interrupts, these tests perhaps among it.
    reader, writer = os.pipe()
    code = (
        "import os, signal, sys\n"
        "import commonbook.interfaces.cli.main as cli, commonbook.interfaces.cli.arguments as intake\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import commonbook.interfaces.cli.output as telling\n"
        "telling._LINE_INTERVAL_SECONDS = 3600\n"
        "real = intake.standard_input\n"
        f"intake.standard_input = lambda: (os.write({writer}, b'it reads'), real())[1]\n"
        "sys.exit(cli.main(['remember', '-']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ(tmp_path),
        cwd=tmp_path,
        pass_fds=[writer],
    )
    os.close(writer)
    assert os.read(reader, 100) == b"it reads"
    os.close(reader)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_an_unexpected_error_shows_itself_and_ends_with_1(tmp_path):
    code = (
        "import sys, commonbook.service.book as book, commonbook.interfaces.cli.main as cli\n"
        "book.Book.status = lambda self: 1 / 0\n"
        "sys.exit(cli.main(['status']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ(tmp_path), cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"ZeroDivisionError" in done.stderr


def test_long_work_tells_how_far_it_is_on_standard_error_only(tmp_path):
    # At every look so many seconds have passed: how long it really takes is the machine's affair.
    work = (
        "import sys, commonbook.service.book as book, commonbook.interfaces.cli.main as cli\n"
        "import commonbook.interfaces.cli.output as telling\n"
        "from itertools import count\n"
        "from types import SimpleNamespace\n"
        "telling.time = SimpleNamespace(monotonic=count(0.0, float(sys.argv[1])).__next__)\n"
        "def rebuild(self, *, progress):\n"
        "    for done in range(30):\n"
        "        progress('rebuilding', done, 30)\n"
        "    from commonbook.values.reports import SyncReport\n"
        "    return SyncReport()\n"
        "book.Book.rebuild = rebuild\n"
        "sys.exit(cli.main(['rebuild', '--json']))"
    )
    long, short = (
        subprocess.run(
            [sys.executable, "-c", work, step], env=environ(tmp_path), cwd=tmp_path, capture_output=True, check=True
        )
        for step in ("0.1", "0.01")
    )
    assert json.loads(long.stdout)["read"] == 0
    lines = long.stderr.decode().splitlines()
    assert 1 <= len(lines) <= 3, lines
    assert all(line.startswith("rebuilding: ") and line.endswith(" of 30") for line in lines)
    assert (json.loads(short.stdout)["read"], short.stderr) == (0, b"")
