"""A guided tour of Commonbook, in a temporary home that is removed at the end.

Every command is really run. The tour stops with an error as soon as one of them does not do what the tour promises.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from contextlib import closing
from pathlib import Path


class Tour:
    """One run of the tour: a home, and a working directory outside of any project."""

    def __init__(self, folder: Path) -> None:
        """Start in an empty folder."""
        self.home = folder / "commonbook"
        self._folder = folder
        # Settings of this machine must not lead the tour to another home.
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("COMMONBOOK_")}
        self._env["HOME"] = str(folder)

    def say(self, text: str) -> None:
        """Print what the next step shows."""
        print("\n" + textwrap.fill(text, 92) + "\n")

    def run(self, *args: str, code: int = 0) -> str:
        """Run a command, show its output, and require its exit code."""
        print(f"  $ commonbook {shlex.join(args)}")
        completed = subprocess.run(
            [sys.executable, "-m", "commonbook", *args],
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        self.quote(completed.stdout + completed.stderr)
        if completed.returncode != code:
            sys.exit(f"the tour stopped: that ended with {completed.returncode}, not {code}")
        return completed.stdout

    def remember(self, text: str, *options: str) -> tuple[str, Path]:
        """Remember a text; return the short id of the memory and its file."""
        memory_id, _space, path, _version = self.run("remember", text, *options).strip().split("\t")
        return memory_id[-8:], Path(path)

    def quote(self, text: str) -> None:
        """Show the output of a command, or the content of a file."""
        print(textwrap.indent(text.rstrip("\n"), "    "))

    def require(self, wanted: str, output: str) -> None:
        """Stop the tour if the output lacks what was promised."""
        if wanted not in output:
            sys.exit(f"the tour stopped: {wanted!r} was expected here")


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
    reflection = receipt.split("\t")[0][-8:]
    tour.say(
        "Later the premise changes. Every memory that depends on it is marked as suspect in the same transaction, and"
        " the inbox tells why:"
    )
    carla, _ = tour.remember("Carla owns billing.", "--space", "team/billing")
    tour.run("supersede", billing, "--by", carla, "--reason", "Bob has moved to sales")
    tour.require("suspect", tour.run("dependents", billing))
    tour.require("Bob has moved to sales", tour.run("inbox"))
    tour.say(
        "The conclusion stays marked until somebody decides. On a terminal, `inbox` asks you about each open notice."
    )
    tour.run("triage", reflection, "retract", "--note", "Carla answers them now")
    tour.require("decided: retract", tour.run("show", reflection))


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
        "commonbook --help                        all commands\n"
        'commonbook remember "…"                  start your own book in ~/commonbook\n'
        "commonbook init ~/notes                  … or make a folder of notes a home, which\n"
        "export COMMONBOOK_HOME=~/notes           every command uses from then on\n"
        'eval "$(commonbook completion bash)"     complete commands with the tab key'
    )
    print()


if __name__ == "__main__":
    sys.exit(main())
