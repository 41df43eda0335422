"""A guided tour of Commonbook, in a temporary home that is removed at the end.

Every command is really run. The tour stops with an error as soon as one of them does not do what the tour promises.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import textwrap
from contextlib import closing, suppress
from pathlib import Path

MAX_WIDTH = 100
"""The width of the terminal on which the commands run, if the one of the tour is not narrower."""

MIN_WIDTH = 40
INDENT = 4
"""How far the output of a command is indented."""


class Tour:
    """One run of the tour: a home, and a working directory outside of any project."""

    def __init__(self, folder: Path) -> None:
        """Start in an empty folder."""
        self.home = folder / "commonbook"
        self._folder = folder
        # Settings of this machine must not lead the tour to another home, or to a terminal of another width.
        ignored = ("COMMONBOOK_", "COLUMNS", "LINES")
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(ignored)}
        self._env |= {"HOME": str(folder), "TERM": "xterm"}
        if not sys.stdout.isatty():
            self._env["NO_COLOR"] = "1"
        self._width = _width()

    def say(self, text: str) -> None:
        """Print what the next step shows."""
        print("\n" + textwrap.fill(text, min(self._width, 92)) + "\n")

    def run(self, *args: str, code: int = 0) -> str:
        """Run a command on a terminal, show its output, and require its exit code; return the output without colour."""
        print(f"  $ commonbook {shlex.join(args)}", flush=True)
        output, exit_code = self._run_on_terminal([sys.executable, "-m", "commonbook", *args])
        self.quote(output)
        if exit_code != code:
            sys.exit(f"the tour stopped: that ended with {exit_code}, not {code}")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)

    def _run_on_terminal(self, command: list[str]) -> tuple[str, int]:
        """Run a command on a terminal of its own; return what a person would see, and its exit code."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, self._width, 0, 0))
        process = subprocess.Popen(
            command, cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
        )
        os.close(slave)
        output = bytearray()
        # Linux reports the end of a terminal as an error.
        with suppress(OSError):
            while part := os.read(master, 65536):
                output += part
        os.close(master)
        return output.decode(errors="replace").replace("\r\n", "\n"), process.wait()

    def remember(self, text: str, *options: str) -> tuple[str, Path]:
        """Remember a text; return the short id of the memory and its file."""
        first, path = self.run("remember", text, *options).strip().splitlines()
        return _short_id(first), Path(path.strip())

    def quote(self, text: str) -> None:
        """Show the output of a command, or the content of a file."""
        lines = (line.rstrip() for line in text.strip("\n").splitlines())
        print(textwrap.indent("\n".join(lines).strip("\n"), " " * INDENT))

    def require(self, wanted: str, output: str) -> None:
        """Stop the tour if the output lacks what was promised, on one line or broken over two."""
        if wanted not in " ".join(output.split()):
            sys.exit(f"the tour stopped: {wanted!r} was expected here")


def _width() -> int:
    """Return the width for the commands: what they print fits the terminal of the tour with its indent."""
    if not sys.stdout.isatty():
        return MAX_WIDTH
    columns = os.get_terminal_size(sys.stdout.fileno()).columns
    # A terminal that does not know its width says 0.
    return max(min(columns - INDENT, MAX_WIDTH), MIN_WIDTH) if columns else MAX_WIDTH


def _short_id(receipt: str) -> str:
    """Return the id in the first line of a receipt, such as `Remembered acaacc6e in team`."""
    found = re.search(r"\b[0-9a-f]{8}\b", receipt)
    return found[0] if found else sys.exit(f"the tour stopped: there is no id in {receipt!r}")


def main() -> int:
    """Run every step of the tour."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory(prefix="commonbook-tour-") as folder:
        tour = Tour(Path(os.path.realpath(folder)))
        print("Welcome to Commonbook, the long-term memory for people and their agents. This tour takes half a minute.")
        billing, file = _remember(tour)
        _recall(tour)
        _edit_by_hand(tour, billing, file)
        _move(tour, billing)
        _reflect(tour, billing)
        _use_a_session(tour)
        _verify_the_log(tour)
        _next_steps(tour)
    return 0


def _remember(tour: Tour) -> tuple[str, Path]:
    tour.say("Remember a few things. Each one is safely on disk when the command returns, and belongs to a space.")
    billing, file = tour.remember("Alice owns billing.", "--space", "team/backend", "--tag", "people,billing")
    tour.remember("Invoices go out on the first working day.", "--space", "team/backend", "--kind", "procedure")
    tour.remember("I prefer tea in the afternoon.", "--kind", "preference")
    tour.say("A memory is a Markdown file. You can read and edit it with any program:")
    print(f"  $ cat {file}")
    tour.quote((tour.home / file).read_text(encoding="utf-8"))
    return billing, file


def _recall(tour: Tour) -> None:
    tour.say("Ask in your own words; none of them has to be in the memory. No network or language model is used.")
    output = tour.run("recall", "who is responsible for payments?", "--space", "team/backend", "-k", "1")
    tour.require("Alice owns billing.", output)


def _edit_by_hand(tour: Tour, billing: str, file: Path) -> None:
    tour.say("Now somebody corrects the file in an editor: Bob has taken over. (The tour has just done that for you.)")
    path = tour.home / file
    path.write_text(
        path.read_text(encoding="utf-8").replace("Alice owns billing.", "Bob owns billing, since November."),
        encoding="utf-8",
    )
    tour.say("Commonbook sees the change at once. The last digits of its id are enough to name a memory:")
    tour.run("list")
    tour.require("Bob owns billing", tour.run("show", billing))
    tour.say("Nothing is lost: the history shows who changed what.")
    output = tour.run("history", billing)
    tour.require("-Alice owns billing.", output)
    tour.require("+Bob owns billing, since November.", output)


def _move(tour: Tour, billing: str) -> None:
    tour.say("You can move a memory to another space. Its file and its history move with it.")
    tour.require("team/billing", tour.run("move", billing, "team/billing"))
    tour.run("list", "--space", "team/")


def _reflect(tour: Tour, billing: str) -> None:
    tour.say("An agent stores a conclusion together with the memories that it is based on:")
    receipt = tour.run("reflect", "Questions about invoices go to Bob.", "--on", billing, "--space", "team/support")
    reflection = _short_id(receipt)
    tour.say(
        "Later the premise changes. Every memory that depends on it is marked as suspect in the same transaction, and"
        " the inbox tells why:"
    )
    carla, _ = tour.remember("Carla owns billing.", "--space", "team/billing")
    tour.run("supersede", billing, "--by", carla, "--reason", "Bob has moved to sales")
    tour.require("suspect", tour.run("dependents", billing))
    tour.require("superseded", tour.run("inbox"))
    tour.say(
        "The conclusion stays marked until somebody decides. On a terminal, `inbox` asks you about each open notice."
    )
    tour.run("triage", reflection, "retract", "--note", "Carla answers them now")
    tour.require("retract, by", tour.run("show", reflection))


def _use_a_session(tour: Tour) -> None:
    tour.say("Agents store conversations in sessions. When the command returns, a message is on disk and can be found:")
    tour.run("session", "append", "support-42", "We ship on Tuesday. My password=correct-h0rse.")
    tour.run("session", "append", "support-42", "--role", "assistant", "Noted: Tuesday it is.")
    tour.run("session", "append", "support-42", "Forget what I said about the parrot.")
    output = tour.run("recall", "which day do we deliver?", "-k", "1")
    tour.require("We ship on Tuesday", output)
    tour.require("[masked: ", output)
    tour.say(
        "The password was masked before the message was stored. Messages can be rewound; the log keeps them, marked"
        " as rewound:"
    )
    tour.run("session", "rewind", "support-42", "2")
    tour.say(
        "After a pause, or when you switch to another session, a session becomes an episode: a Markdown file with all"
        " its messages, word for word."
    )
    tour.run("session", "switch", "support-42", "support-43")
    tour.require("episode", tour.run("list", "--kind", "episode"))
    tour.run("session", "show", "support-42")


def _verify_the_log(tour: Tour) -> None:
    tour.say("Every change is recorded in a signed log, which you can verify:")
    tour.require("the log is intact", tour.run("audit", "verify"))
    tour.say("What if somebody tampers with the log? In a copy of this home, the tour changes one byte of one entry:")
    copy = tour.home.with_name("tampered")
    shutil.copytree(tour.home, copy)
    with closing(sqlite3.connect(copy / ".commonbook" / "state.db")) as database, database:
        changed = database.execute(
            "UPDATE log_entry SET action = 'remembeR' WHERE rowid ="
            " (SELECT min(rowid) FROM log_entry WHERE action = 'remember')"
        )
        if changed.rowcount < 1:
            sys.exit("the tour stopped: there was no entry to alter")
    tour.run("--home", str(copy), "audit", "verify", code=1)
    tour.say("The original home is healthy:")
    tour.run("doctor")


def _next_steps(tour: Tour) -> None:
    tour.say("That was the tour. Its home is removed now. Where to go from here:")
    tour.quote(
        "commonbook --help                     all commands\n"
        'commonbook remember "…"               start your own book in ~/commonbook\n'
        "commonbook init ~/notes               … or make a home of your notes, which\n"
        "export COMMONBOOK_HOME=~/notes        every command uses from then on\n"
        'eval "$(commonbook completion bash)"  complete commands with the tab key'
    )
    print()


if __name__ == "__main__":
    sys.exit(main())
