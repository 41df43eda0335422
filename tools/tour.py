"""A guided tour through Commonbook, in a temporary home that is removed at the end.

Every command is really run. The tour ends with an error as soon as one does not do what the tour says.
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
    """One walk: a home, and a working directory outside of any project."""

    def __init__(self, folder: Path) -> None:
        """Begin in an empty folder."""
        self.home = folder / "commonbook"
        self._folder = folder
        # What is set on this machine for a home of its own must not lead the tour elsewhere.
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("COMMONBOOK_")}
        self._env["COMMONBOOK_HOME"] = str(self.home)

    def say(self, text: str) -> None:
        """Tell what comes."""
        print("\n" + textwrap.fill(text, 92) + "\n")

    def run(self, *args: str, code: int = 0) -> str:
        """Type a command, show what it answers, and insist on its exit code."""
        print(f"  $ commonbook {shlex.join(args)}")
        done = subprocess.run(
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
        self.quote(done.stdout + done.stderr)
        if done.returncode != code:
            sys.exit(f"the tour stopped: that ended with {done.returncode}, not {code}")
        return done.stdout

    def remember(self, text: str, *options: str) -> tuple[str, Path]:
        """Remember something and return its id and its file."""
        memory_id, _space, path, _version = self.run("remember", text, *options).strip().split("\t")
        return memory_id[-8:], Path(path)

    def quote(self, text: str) -> None:
        """Show what a command or a file says."""
        print(textwrap.indent(text.rstrip("\n"), "    "))

    def insist(self, wanted: str, said: str) -> None:
        """Stop the tour where the answer is not what was promised."""
        if wanted not in said:
            sys.exit(f"the tour stopped: {wanted!r} was expected here")


def main() -> int:
    """Walk through everything once."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory(prefix="commonbook-tour-") as folder:
        tour = Tour(Path(os.path.realpath(folder)))
        print("Commonbook: a memory for people and their agents. This tour takes half a minute.")
        billing, file = _remembering(tour)
        _recalling(tour)
        _editing_by_hand(tour, billing, file)
        _moving(tour, billing)
        _reflecting(tour, billing)
        _a_session(tour)
        _the_log(tour)
        _going_on(tour)
    return 0


def _remembering(tour: Tour) -> tuple[str, Path]:
    tour.say("Remember a few things. Each is durable when the command returns, and lies in a space.")
    billing, file = tour.remember("Alice owns billing.", "--space", "team/backend", "--tag", "people,billing")
    tour.remember("Invoices go out on the first working day.", "--space", "team/backend", "--kind", "procedure")
    tour.remember("I prefer tea in the afternoon.", "--kind", "preference")
    tour.say("A memory is a Markdown file, to be read and edited with anything:")
    print(f"  $ cat {file}")
    tour.quote((tour.home / file).read_text(encoding="utf-8"))
    return billing, file


def _recalling(tour: Tour) -> None:
    tour.say("Ask in your own words: none of these is in the answer. No network is used, and no language model.")
    said = tour.run("recall", "who is responsible for payments?", "--space", "team/backend", "-k", "1")
    tour.insist("Alice owns billing.", said)


def _editing_by_hand(tour: Tour, billing: str, file: Path) -> None:
    tour.say("Now somebody corrects the file in an editor: Bob has taken over. (The tour just did that.)")
    path = tour.home / file
    path.write_text(
        path.read_text(encoding="utf-8").replace("Alice owns billing.", "Bob owns billing, since November."),
        encoding="utf-8",
    )
    tour.say("The book knows at once. A memory is named by the last digits of its id:")
    tour.run("list")
    tour.insist("Bob owns billing", tour.run("show", billing))
    tour.say("Nothing is lost: the history says who changed what.")
    said = tour.run("history", billing)
    tour.insist("-Alice owns billing.", said)
    tour.insist("+Bob owns billing, since November.", said)


def _moving(tour: Tour, billing: str) -> None:
    tour.say("A memory moves to another space with its file and its history.")
    tour.insist("team/billing", tour.run("move", billing, "team/billing"))
    tour.run("list", "--space", "team/")


def _reflecting(tour: Tour, billing: str) -> None:
    tour.say("An agent keeps a conclusion, and what it was reasoned from:")
    receipt = tour.run("reflect", "Questions about invoices go to Bob.", "--on", billing, "--space", "team/support")
    reflection = receipt.split("\t")[0][-8:]
    tour.say("Later the premise changes. Everybody who rests on it is told in the same transaction, with the path:")
    carla, _ = tour.remember("Carla owns billing.", "--space", "team/billing")
    tour.run("supersede", billing, "--by", carla, "--reason", "Bob has moved to sales")
    tour.insist("suspect", tour.run("dependents", billing))
    tour.insist("Bob has moved to sales", tour.run("inbox"))
    tour.say("The conclusion is marked until somebody decides; on a terminal, `inbox` goes through all that waits.")
    tour.run("triage", reflection, "retract", "--note", "Carla answers them now")
    tour.insist("decided: retract", tour.run("show", reflection))


def _a_session(tour: Tour) -> None:
    tour.say("Agents keep what is said in sessions. A message is durable, and found, when the command returns:")
    tour.run("session", "append", "support-42", "We ship on Tuesday. My password=correct-h0rse.")
    tour.run("session", "append", "support-42", "--role", "assistant", "Noted: Tuesday it is.")
    tour.run("session", "append", "support-42", "Forget what I said about the parrot.")
    said = tour.run("recall", "which day do we deliver?", "-k", "1")
    tour.insist("We ship on Tuesday", said)
    tour.insist("[masked: ", said)
    tour.say("The password was masked before it was stored. What was said may be taken back; the log keeps it, marked:")
    tour.run("session", "rewind", "support-42", "2")
    tour.say("At a pause, or now, a session becomes an episode: a Markdown file with what was said, word for word.")
    tour.run("session", "switch", "support-42", "support-43")
    tour.insist("episode", tour.run("list", "--kind", "episode"))
    tour.run("session", "show", "support-42")


def _the_log(tour: Tour) -> None:
    tour.say("Every change is in a signed log.")
    tour.insist("the log is whole", tour.run("audit", "verify"))
    tour.say("What if somebody changes that log? On a copy of this home, the tour alters one byte of one entry:")
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
    tour.say("The home itself is well:")
    tour.run("doctor")


def _going_on(tour: Tour) -> None:
    tour.say("That was the tour; its home is removed now. To go on:")
    tour.quote(
        "commonbook --help                        all commands\n"
        'commonbook remember "…"                  begin your own book in ~/commonbook\n'
        "export COMMONBOOK_HOME=~/notes/book      … or keep it elsewhere\n"
        'eval "$(commonbook completion bash)"     complete commands with the tab key'
    )
    print()


if __name__ == "__main__":
    sys.exit(main())
