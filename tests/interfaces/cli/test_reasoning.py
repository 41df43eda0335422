"""Reflections on the command line: dependents, notices about superseded memories, and decisions."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.engines.process import SystemClock
from commonbook.values.spaces import Space
from tests.interfaces.cli.test_cli import INSTANT, MEMORY, RECEIPT, Cli, cli_without_book
from tests.interfaces.cli.test_terminal import COLOUR, environ, pipe, terminal

__all__ = ["cli_without_book", "terminal"]

NOBODY = "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"
NOTICE = {
    "id", "dependent", "text", "invalidated", "invalidating", "reason", "by", "at", "expires", "expired", "depth",
    "path", "space", "successor_ended",
}  # fmt: skip
MENTION = {"id", "title", "space", "deleted"}
DEPENDENT = {"id", "title", "space", "kind", "depth", "path", "suspect", "source_changed"}
BOB = ("--as", "user:bob")


@pytest.fixture
def cli(chosen, tmp_path, monkeypatch, capsys):
    """The command line, on the engine of this test, with an empty book."""
    commonbook.open(None if chosen.database else chosen.home, create=True).close()
    for name in ("VISUAL", "EDITOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def world(cli):
    """R1, on which M1 (in a) and M2 (in b) reflect, to which M3 is only related; and R2, which knows better."""
    return World(cli)


class World:
    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.r1 = cli.remember("Alice owns the billing service", "--space", "team")["id"]
        self.m1 = reflect(cli, "Questions about invoices go to Alice", self.r1, space="a")
        self.m2 = reflect(cli, "Alice needs a deputy", self.r1, space="b")
        self.m3 = cli.remember("Billing runs at night", "--space", "a", "--link", f"related_to:{self.r1}")["id"]
        self.r2 = cli.remember("Bob owns the billing service", "--space", "team")["id"]


def reflect(cli: Cli, text: str, *on: str, space: str = "a") -> str:
    named = [word for memory in on for word in ("--on", memory)]
    result = cli("reflect", text, *named, "--space", space, "--json")
    assert (result.code, result.err) == (0, "")
    return str(result.json["id"])


def supersede(cli: Cli, old: str, new: str, *options: str) -> dict[str, Any]:
    result = cli("supersede", old, "--by", new, *options, "--json")
    assert (result.code, result.err) == (0, "")
    return dict(result.json)


def inbox(cli: Cli, *options: str) -> list[dict[str, Any]]:
    return list(cli(*options, "inbox", "--json").json["items"])


def notice_counts(cli: Cli, *options: str) -> dict[str, int]:
    """Return the number of notices about each memory."""
    return Counter(one["dependent"]["id"] for one in inbox(cli, *options))


def marks(cli: Cli, memory: str) -> list[str]:
    return list(cli("show", memory, "--json").json["marks"])


def logged(cli: Cli, space: str, action: str) -> list[dict[str, Any]]:
    result = cli("audit", "list", "--space", space, "--limit", "1000", "--json")
    return [one for one in result.json if one["action"] == action] if result.code == 0 else []


def spaces(cli: Cli) -> set[str]:
    return {one["name"] for one in cli("space", "list", "--json").json}


# --- what is answered


def test_a_reflection_is_a_memory_that_names_what_it_is_on(cli):
    one, two = cli.remember("one")["id"], cli.remember("two")["id"]
    result = cli(
        "reflect", "so three", "--on", one[-8:], "--on", two, "--space", "team", "--title", "T", "--tag", "a,b",
        "--importance", "0.5", "--occurred", "2026-01-02T03:04Z", "--key", "k", "--json",
    )  # fmt: skip
    assert result.json.keys() == RECEIPT
    shown = cli("show", result.json["id"], "--json").json
    assert shown.keys() == MEMORY
    assert (shown["kind"], shown["title"], shown["tags"], shown["importance"], shown["space"]) == (
        "reflection", "T", ["a", "b"], 0.5, "team",
    )  # fmt: skip
    assert [(link["relation"], link["target"]) for link in shown["links"]] == [
        ("reflects_on", one),
        ("reflects_on", two),
    ]
    assert (shown["invalidations"], shown["decisions"], shown["notice"]) == ([], [], None)
    assert cli("reflect", "read", "--on", one, "-", "--json", stdin=b"").code == 2
    read = cli("reflect", "-", "--on", one, "--json", stdin="gelesen 🍵".encode()).json["id"]
    assert cli("show", read, "--json").json["text"] == "gelesen 🍵"
    again = ("reflect", "once", "--on", one, "--key", "k2")
    first = cli(*again).out.split("\t")[0]
    assert cli(*again, "--json").json["id"] == first
    assert cli(*again, "--json").json["new"] is False


def test_what_supersede_and_reinstate_answer(world, cli):
    new = supersede(cli, world.r1[-8:], world.r2[-8:])
    assert new == {"id": world.r1, "by": world.r2, "new": True, "notified": 2}
    assert supersede(cli, world.r1, world.r2) == {**new, "new": False, "notified": 0}
    assert cli("supersede", world.r1, "--by", world.r2).out == f"{world.r1}\t{world.r2}\texisting\t0\n"
    report = cli("reinstate", world.r1, "--by", world.r2, "--json").json
    assert report == {"id": world.r1, "by": world.r2, "new": False, "notified": 0}
    refused = cli("reinstate", world.r1, "--json")
    assert (refused.code, refused.error["type"]) == (5, "conflict")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("reflect", "on nothing"), 2),
        (("reflect", "--on", "{}"), 2),
        (("reflect", "x", "--on", NOBODY), 3),
        (("reflect", "x", "--on", "{}", "--importance", "high"), 2),
        (("supersede", "{}"), 2),
        (("supersede", "{}", "--by", "{}"), 2),
        (("supersede", "{}", "--by", NOBODY), 3),
        (("supersede", NOBODY, "--by", "{}"), 3),
        (("supersede", "{}", "--by", NOBODY, "--reason", "x" * 1001), 2),
        (("reinstate", "{}"), 5),
        (("reinstate", NOBODY), 3),
        (("dependents", NOBODY), 3),
        (("inbox", "--limit", "0"), 2),
        (("inbox", "--limit", "many"), 2),
        (("inbox", "--after", "nonsense"), 2),
        (("inbox", "--space", "No Space"), 2),
        (("triage", "{}", "keep"), 5),
        (("triage", "{}", "ponder"), 2),
        (("triage", "{}", "supersede"), 2),
        (("triage", "{}", "keep", "--by", "{}"), 2),
        (("triage", NOBODY, "keep"), 3),
        (("space", "depth", "nowhere"), 3),
        (("space", "depth", "nowhere", "4"), 3),
        (("space", "depth", "personal", "0"), 2),
        (("space", "depth", "personal", "11"), 2),
        (("space", "depth", "personal", "deep"), 2),
        (("space", "depth", "No Space", "4"), 2),
    ],
)
def test_trouble_goes_to_standard_error_with_its_exit_code(cli, home, args, code):
    memory = cli.remember("a memory", "--space", "personal")["id"]
    result = cli(*(arg.format(memory) for arg in args), "--json")
    assert (result.code, result.out) == (code, "")
    assert result.error.keys() == {"type", "message", "fix"}
    assert all(result.error.values())


# --- who is told


def test_a_notice_for_each_that_rests_on_it_and_none_for_what_is_only_related(world, cli):
    assert supersede(cli, world.r1, world.r2, "--reason", "Alice left")["notified"] == 2
    assert notice_counts(cli) == {world.m1: 1, world.m2: 1}
    notices = {one["dependent"]["id"]: one for one in inbox(cli)}
    for memory, space in ((world.m1, "a"), (world.m2, "b")):
        notice = notices[memory]
        assert notice.keys() == NOTICE
        assert notice["dependent"].keys() == notice["invalidated"].keys() == notice["invalidating"].keys() == MENTION
        assert (notice["space"], notice["reason"], notice["by"]) == (space, "Alice left", "user:local")
        assert (notice["depth"], notice["path"], notice["expired"]) == (1, [world.r1, memory], False)
        assert (notice["invalidated"]["id"], notice["invalidated"]["title"]) == (
            world.r1, "Alice owns the billing service",
        )  # fmt: skip
        assert notice["invalidating"]["id"] == world.r2
        assert INSTANT.match(notice["at"])
        assert INSTANT.match(notice["expires"])
        stored = cli("show", notice["id"], "--json").json
        assert (stored["space"], stored["kind"], stored["tags"]) == (
            f"{space}/_invalidations", "notice", ["_invalidation"],
        )  # fmt: skip
        assert stored["title"] == f"invalidation: {world.r1} -> {memory}"
        assert stored["notice"] == {
            "dependent": memory,
            "invalidated": world.r1,
            "invalidating": world.r2,
            "at": notice["at"],
        }
        assert len(logged(cli, f"{space}/_invalidations", "notify")) == 1
    assert (marks(cli, world.m1), marks(cli, world.m2), marks(cli, world.m3)) == (["suspect"], ["suspect"], [])
    assert notice_counts(cli, "--space", "a") == {world.m1: 1}
    assert cli("audit", "verify").code == 0


def test_the_same_supersession_five_times_by_different_doors_is_told_once(world, cli, place):
    supersede(cli, world.r1, world.r2)
    assert cli("supersede", world.r1[-8:], "--by", world.r2[-8:], "--reason", "again").code == 0
    assert cli("link", world.r2, "supersedes", world.r1).code == 0
    command = [sys.executable, "-m", "commonbook", "supersede", world.r1, "--by", world.r2, "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["new"] is False
    with commonbook.open(None if isinstance(place, str) else place, create=True) as book:
        assert not book.supersede(world.r1, by=world.r2).new
        book.link(world.r2, "supersedes", world.r1)
    assert notice_counts(cli) == {world.m1: 1, world.m2: 1}
    for space in ("a", "b"):
        assert len(logged(cli, f"{space}/_invalidations", "notify")) == 1
        assert len(cli.ids("--space", f"{space}/_invalidations")) == 1


def test_two_successors_are_two_causes(world, cli):
    other = cli.remember("Carla owns the billing service", "--space", "team")["id"]
    supersede(cli, world.r1, world.r2)
    supersede(cli, world.r1, other)
    assert notice_counts(cli) == {world.m1: 2, world.m2: 2}
    doubts = cli("show", world.m1, "--json").json["invalidations"]
    assert {one["invalidating"] for one in doubts} == {world.r2, other}


def test_where_nothing_rests_on_it_nobody_is_told_and_no_space_is_made(cli):
    old, new = cli.remember("old")["id"], cli.remember("new")["id"]
    before = spaces(cli)
    assert supersede(cli, old, new)["notified"] == 0
    assert (inbox(cli), spaces(cli)) == ([], before)
    result = cli("inbox")
    assert (result.code, result.out, result.err) == (0, "", "no memory is suspect\n")
    result = cli("dependents", old)
    assert (result.code, result.out, result.err) == (0, "", "nothing depends on it\n")


def test_a_deletion_tells_too(world, cli):
    cli("delete", world.r1)
    (notice,) = inbox(cli, "--space", "a")
    assert (notice["invalidating"], notice["invalidated"]["id"], notice["reason"]) == (None, world.r1, "")
    assert INSTANT.match(notice["invalidated"]["deleted"])
    assert cli("show", world.m1, "--json").json["invalidations"] == [
        {"invalidated": world.r1, "invalidating": "deleted", "depth": 1, "path": [world.r1, world.m1]}
    ]
    assert f"{world.r1} was deleted" in cli("show", world.m1).out
    assert "\tdeleted\t" in cli("inbox", "--space", "a").out
    assert {one["id"] for one in cli("dependents", world.r1, "--json").json} == {world.m1, world.m2}
    assert re.search(r"^0\t.*\tdeleted \d{4}-", cli("dependents", world.r1).out)


# --- through others


def test_each_descendant_is_told_once_with_its_depth_and_path(world, cli):
    left = reflect(cli, "Alice is the bottleneck", world.m1, world.m2, space="c")
    supersede(cli, world.r1, world.r2)
    assert notice_counts(cli) == {world.m1: 1, world.m2: 1, left: 1}
    (notice,) = inbox(cli, "--space", "c")
    assert (notice["depth"], notice["path"][0], notice["path"][-1], len(notice["path"])) == (2, world.r1, left, 3)
    answer = cli("dependents", world.r1[-8:], "--json").json
    assert [one.keys() for one in answer] == [DEPENDENT] * 3
    assert {one["id"]: (one["depth"], one["suspect"]) for one in answer} == {
        world.m1: (1, True), world.m2: (1, True), left: (2, True),
    }  # fmt: skip
    rows = [row.split("\t") for row in cli("dependents", world.r1).out.splitlines()]
    assert rows[0] == ["0", world.r1, "Alice owns the billing service", "team", "", ""]
    assert sorted(row[0] for row in rows) == ["0", "1", "1", "2"]
    (deep,) = (row for row in rows if row[0] == "2")
    assert deep[1:] == [left, "Alice is the bottleneck", "c", "reflection", "suspect"]


def test_a_circle_made_by_hand_has_an_end(world, cli, home):
    below = reflect(cli, "Alice is the bottleneck", world.m1, space="c")
    path = home / cli("show", world.m1, "--json").json["path"]
    path.write_text(path.read_text().replace("links:\n", f"links:\n  - reflects_on {below}\n", 1))
    assert {link["target"] for link in cli("show", world.m1, "--json").json["links"]} == {world.r1, below}
    supersede(cli, world.r1, world.r2)
    assert notice_counts(cli) == {world.m1: 1, world.m2: 1, below: 1}
    found = cli("dependents", world.r1, "--json").json
    assert Counter(one["id"] for one in found) == {world.m1: 1, world.m2: 1, below: 1}
    assert cli("dependents", below).code == 0


# --- who sees what


def test_readers_of_the_dependent_see_it_and_the_superseder_learns_nothing_of_what_it_may_not_read(world, cli):
    cli("grant", "add", "user:bob", "team", "writer")
    cli("grant", "add", "user:carla", "a", "reader")
    report = cli(*BOB, "supersede", world.r1, "--by", world.r2, "--json").json
    assert (report["new"], report["notified"]) == (True, 0)
    assert inbox(cli, *BOB) == []
    assert cli(*BOB, "dependents", world.r1, "--json").json == []
    assert cli(*BOB, "recall", "invoices", "--space", "/", "--json").json["hits"] == []
    (seen,) = inbox(cli, "--as", "user:carla")
    assert (seen["dependent"]["id"], seen["by"]) == (world.m1, "user:bob")
    assert seen["invalidated"] == {"id": world.r1, "title": None, "space": None, "deleted": None}
    (hit,) = cli("--as", "user:carla", "recall", "invoices", "--space", "a", "--json").json["hits"]
    assert (hit["id"], hit["suspect"], hit["marks"]) == (world.m1, True, ["suspect"])
    out = cli("--as", "user:carla", "recall", "invoices", "--space", "a").out
    assert out.count("suspect") == 1
    assert cli("--as", "user:carla", "triage", seen["id"], "keep").code == 4
    shown = cli("--as", "user:carla", "show", world.m1).out
    assert f"suspect because: {world.r1} was superseded by {world.r2}\n" in shown


def test_superseding_without_the_right_is_refused_and_logged(world, cli):
    cli("grant", "add", "user:bob", "team", "reader")
    result = cli(*BOB, "supersede", world.r1, "--by", world.r2, "--json")
    assert (result.code, result.error["type"]) == (4, "not_allowed")
    (entry,) = logged(cli, "team", "refused")
    assert (entry["actor"], json.loads(entry["payload"])["verb"]) == ("user:bob", "supersede")
    assert inbox(cli) == []


def test_who_rests_on_a_copy_is_told_too(world, cli):
    (copy,) = cli("share", world.r1, "--to", "elsewhere", "--json").json
    resting = reflect(cli, "the copy says so", copy["id"], space="c")
    supersede(cli, world.r1, world.r2)
    (notice,) = inbox(cli, "--space", "c")
    assert (notice["dependent"]["id"], notice["path"]) == (resting, [world.r1, copy["id"], resting])
    rows = [row.split("\t")[:3] for row in cli("dependents", world.r1).out.splitlines()]
    assert ["1", copy["id"], "an intermediate step"] in rows
    assert ["2", resting, "the copy says so"] in rows


def test_a_step_that_may_not_be_read_is_not_named(world, cli):
    last = reflect(cli, "so nothing", world.m1, space="team")
    cli("grant", "add", "user:bob", "team", "reader")
    (seen,) = cli(*BOB, "dependents", world.r1, "--json").json
    assert (seen["id"], seen["path"]) == (last, [world.r1, None, last])
    out = cli(*BOB, "dependents", world.r1).out
    assert "not readable for you" in out
    assert world.m1 not in out


# --- deciding


def test_what_was_kept_is_no_longer_in_doubt_and_says_why(world, cli):
    supersede(cli, world.r1, world.r2)
    (notice,) = inbox(cli, "--space", "a")
    report = cli("triage", notice["id"][-8:], "keep", "--note", "invoices still go to her", "--json").json
    assert report == {
        "id": world.m1, "verdict": "keep", "resolved": 1, "version": 2, "space": "a",
        "path": cli("show", world.m1, "--json").json["path"],
    }  # fmt: skip
    shown = cli("show", world.m1, "--json").json
    assert (shown["marks"], shown["invalidations"]) == ([], [])
    (decision,) = shown["decisions"]
    assert INSTANT.match(decision.pop("at"))
    assert decision == {
        "verdict": "keep", "invalidated": world.r1, "invalidating": world.r2, "by": "user:local",
        "note": "invoices still go to her",
    }  # fmt: skip
    out = cli("show", world.m1).out
    assert "\ndecided: keep, by user:local, " in out
    assert "'Alice owns the billing service'" in out
    assert "invoices still go to her" in out
    assert notice_counts(cli) == {world.m2: 1}
    assert cli("triage", notice["id"], "keep").code in (3, 5)


def test_each_verdict_does_what_it_says(world, cli):
    third = reflect(cli, "Alice is in on Mondays", world.r1, space="a")
    better = cli.remember("Bob is in on Mondays", "--space", "a")["id"]
    supersede(cli, world.r1, world.r2)
    assert cli("triage", world.m1, "retract").out.split("\t")[:3] == [world.m1, "retract", "1"]
    assert cli("triage", world.m2, "dismiss", "--json").json["resolved"] == 1
    assert cli("triage", third, "supersede", "--by", better[-8:], "--note", "Bob it is", "--json").code == 0
    assert inbox(cli) == []
    assert set(marks(cli, world.m1)) == {"retracted", "expired", "ended"}
    assert marks(cli, world.m2) == []
    shown = cli("show", third, "--json").json
    assert (shown["marks"], shown["superseded_by"]) == (["superseded"], better)


def test_a_retraction_is_taken_back_by_reinstate(world, cli):
    supersede(cli, world.r1, world.r2)
    cli("triage", world.m1, "retract")
    assert cli("reinstate", world.m1, "--json").json == {"id": world.m1, "by": "", "new": False, "notified": 0}
    assert marks(cli, world.m1) == ["suspect"]
    assert "decided: reinstate, by user:local" in cli("show", world.m1).out
    assert cli("reinstate", world.m1, "--json").code == 5


def test_a_memory_whose_successor_has_ended_is_shown_so_and_decided_about(world, cli):
    supersede(cli, world.r1, world.r2)
    for memory in (world.m1, world.m2):
        cli("triage", memory, "dismiss")
    cli("delete", world.r2)
    assert marks(cli, world.r1) == ["successor_ended"]
    assert f"to decide, since: its successor {world.r2} has ended" in cli("show", world.r1).out
    (notice,) = inbox(cli)
    assert (notice["dependent"]["id"], notice["invalidated"]["id"], notice["successor_ended"]) == (
        world.r1, world.r2, True,
    )  # fmt: skip
    assert "its successor, and has ended" in cli("inbox").out
    assert cli("triage", notice["id"], "keep", "--json").json["resolved"] == 1
    assert (marks(cli, world.r1), inbox(cli)) == ([], [])


def test_reinstating_takes_marks_and_notices_back_and_what_was_dismissed_stays_so(world, cli):
    supersede(cli, world.r1, world.r2)
    cli("triage", world.m1, "dismiss")
    assert cli("reinstate", world.r1, "--json").code == 0
    assert (inbox(cli), marks(cli, world.r1), marks(cli, world.m2)) == ([], [], [])
    supersede(cli, world.r1, world.r2)
    assert notice_counts(cli) == {world.m2: 1}
    assert (marks(cli, world.m1), marks(cli, world.m2)) == ([], ["suspect"])
    assert [one["verdict"] for one in cli("show", world.m1, "--json").json["decisions"]] == ["dismiss"]
    assert len(logged(cli, "b/_invalidations", "notify")) == 2
    assert len(logged(cli, "b/_invalidations", "withdraw")) == 1


def test_an_edit_of_what_was_reflected_on_marks_without_a_notice(world, cli):
    cli("edit", world.r1, "Alice owns the billing service and its database")
    assert marks(cli, world.m1) == ["source_changed"]
    assert inbox(cli) == []
    assert "source_changed" in cli("list", "--space", "a").out
    assert "\tsource_changed\n" in cli("dependents", world.r1).out
    assert cli("triage", world.m1, "keep", "--json").json["resolved"] == 0
    assert marks(cli, world.m1) == []


# --- notices expire, doubts do not


def test_the_doubt_outlives_its_notice(world, cli, monkeypatch):
    supersede(cli, world.r1, world.r2, "--reason", "Alice left")
    now = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) + timedelta(days=8))
    assert inbox(cli) == []
    assert cli("inbox").err == "no new notices, but some have expired: --expired\n"
    assert cli("inbox", "--expired", "--space", "team").err == "no memory is suspect\n"
    assert marks(cli, world.m1) == ["suspect"]
    (hit,) = cli("recall", "invoices", "--space", "a", "--json").json["hits"]
    assert hit["suspect"]
    expired = cli("inbox", "--expired", "--space", "a", "--json").json["items"]
    assert [(one["dependent"]["id"], one["expired"], one["reason"]) for one in expired] == [
        (world.m1, True, "Alice left")
    ]
    (entry,) = logged(cli, "a/_invalidations", "notify")
    payload = json.loads(entry["payload"])
    assert (payload["dependent"], payload["invalidated"], payload["invalidating"]) == (world.m1, world.r1, world.r2)
    assert (entry["actor"], INSTANT.match(entry["time"]) is not None) == ("user:local", True)
    assert cli("triage", world.m1, "keep").code == 0
    assert marks(cli, world.m1) == []


def test_an_inbox_is_read_page_by_page(world, cli):
    supersede(cli, world.r1, world.r2)
    first = cli("inbox", "--limit", "1", "--json").json
    second = cli("inbox", "--limit", "1", "--after", first["next"], "--json").json
    assert {one["dependent"]["id"] for page in (first, second) for one in page["items"]} == {world.m1, world.m2}
    assert second["next"] is None
    result = cli("inbox", "--limit", "1")
    assert result.err == f"there are more: --after {first['next']}\n"
    row = result.out.rstrip("\n").split("\t")
    assert row[0] == first["items"][0]["id"]
    assert row[4] == f"superseded by Bob owns the billing service ({world.r2})"


# --- how deep, and no circles


def test_reflections_stand_only_so_deep_and_the_refusal_names_the_cap(world, cli):
    two = reflect(cli, "two", world.m1)
    three = reflect(cli, "three", two)
    refused = cli("reflect", "four", "--on", three, "--space", "a", "--json")
    assert (refused.code, refused.error["type"]) == (5, "conflict")
    assert "depth 4" in refused.error["message"]
    assert "'a' allows 3" in refused.error["message"]
    assert "space depth" in refused.error["fix"]
    assert cli("space", "depth", "a", "4").out == "a\t4\n"
    four = reflect(cli, "four", three)
    assert marks(cli, four) == []
    keys = {*Space._fields, "effective_depth"}
    assert cli("space", "depth", "a", "--json").json.keys() == keys
    cli("space", "create", "a/below")
    below = cli("space", "depth", "a/below", "--json").json
    assert (below["depth"], below["effective_depth"]) == (None, 4)
    space = cli("space", "depth", "a", "default", "--json").json
    assert (space["depth"], space["effective_depth"]) == (None, 3)
    cli("grant", "add", "user:bob", "a", "writer")
    assert cli(*BOB, "space", "depth", "a").out == "a\t3\n"
    assert cli(*BOB, "space", "depth", "a", "9").code == 4
    assert cli(*BOB, "space", "depth", "team").code == 3


def test_a_circle_is_refused_and_named(world, cli):
    two = reflect(cli, "two", world.m1)
    refused = cli("link", world.r1, "reflects_on", two, "--json")
    assert (refused.code, refused.error["type"]) == (5, "conflict")
    for memory in (world.r1, world.m1, two):
        assert memory in refused.error["message"]
    supersede(cli, world.r1, world.r2)
    back = cli("supersede", world.r2, "--by", world.r1, "--json")
    assert (back.code, back.error["type"]) == (5, "conflict")
    assert "supersede each other in turn" in back.error["message"]


# --- on a terminal


class Person:
    """Somebody at a terminal of their own, who waits for a question before answering it."""

    def __init__(self, folder: Path, *args: str) -> None:
        env = environ(folder)
        with warnings.catch_warnings():
            # Newer Pythons warn of forks beside threads; this one becomes another program at once.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid, self._terminal = pty.fork()
        if not self._pid:
            # The process that started the tests may ignore interrupts; a person's terminal does not.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.chdir(folder)
            os.execve(sys.executable, [sys.executable, "-m", "commonbook", *args], env)
        self._seen = ""
        self._at = 0

    @property
    def seen(self) -> str:
        return COLOUR.sub("", self._seen).replace("\r\n", "\n")

    def wait_for(self, words: str) -> None:
        """Read on until these words stand behind what was waited for before."""
        until = time.monotonic() + 60
        while words not in self.seen[self._at :]:
            assert time.monotonic() < until, f"{words!r} did not come: {self.seen!r}"
            assert self._read(), f"it ended before {words!r} came: {self.seen!r}"
        self._at = self.seen.index(words, self._at) + len(words)

    def type(self, words: str) -> None:
        os.write(self._terminal, words.encode())

    def answer(self, question: str, words: str) -> None:
        self.wait_for(question)
        self.type(words + "\n")

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        until = time.monotonic() + 60
        while self._read():
            assert time.monotonic() < until, f"it did not end: {self.seen!r}"
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self) -> bool:
        if not select.select([self._terminal], [], [], 1)[0]:
            return True
        try:
            some = os.read(self._terminal, 65536)
        except OSError:  # The other side is closed.
            return False
        self._seen += some.decode()
        return bool(some)


CHOICE = "[q]uit? "
NOTE = "a note (Enter for none): "


@pytest.fixture
def doubtful(cli, home):
    """A world in which Bob's successor is there, with four suspect memories, the newest notices first."""
    world = World(cli)
    reflect(cli, "Alice is the bottleneck\n\nSince everything goes to her.", world.m1, space="c")
    reflect(cli, "Alice has a car", world.r1, space="d")
    supersede(cli, world.r1, world.r2, "--reason", "Alice left")
    return world


def test_the_inbox_on_a_terminal_asks_about_one_notice_after_the_other(doubtful, cli, tmp_path):
    better = cli.remember("Bob has a car", "--space", "d")["id"]
    order = {one["dependent"]["title"]: one for one in inbox(cli)}
    person = Person(tmp_path, "inbox")
    answers = {
        "Questions about invoices go to Alice": ("k", "she still answers them"),
        "Alice needs a deputy": ("retract", ""),
        "Alice is the bottleneck": ("D", "no longer"),
        "Alice has a car": ("s", ""),
    }
    for title, notice in order.items():
        person.wait_for(f"{title}  {notice['dependent']['id'][-8:]}  {notice['space']}")
        person.wait_for(f"Alice owns the billing service ({doubtful.r1[-8:]})")
        person.wait_for(f"was superseded by Bob owns the billing service ({doubtful.r2[-8:]})")
        person.wait_for("Alice left")
        person.wait_for("user:local, just now")
        choice, note = answers[title]
        person.answer(CHOICE, choice)
        if choice == "s":
            person.answer("the id of the memory that takes its place: ", NOBODY)
            person.answer(NOTE, "")
            person.wait_for("there is no memory")
            person.answer(CHOICE, "s")
            person.answer("the id of the memory that takes its place: ", better[-8:])
        person.answer(NOTE, note)
        person.wait_for("1 broken dependency resolved")
    assert person.end() == 0
    assert person.seen.rstrip().endswith("4 decided")
    assert inbox(cli) == []
    decided = {}
    for title, notice in order.items():
        (decision,) = cli("show", notice["dependent"]["id"], "--json").json["decisions"]
        decided[title] = (decision["verdict"], decision["note"])
    assert decided == {
        "Questions about invoices go to Alice": ("keep", "she still answers them"),
        "Alice needs a deputy": ("retract", ""),
        "Alice is the bottleneck": ("dismiss", "no longer"),
        "Alice has a car": ("supersede", ""),
    }
    shown = cli("show", order["Alice has a car"]["dependent"]["id"], "--json").json
    assert shown["superseded_by"] == better


def test_the_inbox_shows_text_and_path_of_what_is_in_doubt(doubtful, cli, tmp_path, terminal):
    seen = terminal("inbox", "--space", "c", typed="n\n").plain
    (notice,) = inbox(cli, "--space", "c")
    assert "  Since everything goes to her.\n" in seen
    names = [id_[-8:] for id_ in notice["path"]]
    lines = [line.rstrip() for line in seen.splitlines()]
    at = lines.index(f"{names[0]}  Alice owns the billing service")
    assert lines[at + 1 : at + 3] == [
        f"└─ {names[1]}  Questions about invoices go to Alice",
        f"   └─ {names[2]}  Alice is the bottleneck",
    ]
    assert "0 decided" in seen
    assert len(inbox(cli)) == 4


def test_each_cause_is_decided_by_itself(doubtful, cli, terminal):
    other = cli.remember("Carla owns the billing service", "--space", "team")["id"]
    supersede(cli, doubtful.r1, other)
    seen = terminal("inbox", "--space", "a", typed="k\n\nn\n").plain
    assert "1 decided" in seen
    (left,) = cli("show", doubtful.m1, "--json").json["invalidations"]
    assert [one["invalidating"]["id"] for one in inbox(cli) if one["space"] == "a"] == [left["invalidating"]]


def test_whatever_is_no_choice_is_explained_and_asked_again(doubtful, cli, terminal):
    seen = terminal("inbox", "--limit", "1", typed="what\n\ns\n\nquit\n")
    assert seen.code == 0
    assert seen.plain.count(CHOICE) == 4
    assert seen.plain.count("it is still valid as it is") == 2
    assert len(inbox(cli)) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "code"), [("\x03", 130), ("\x04", 0)])
@pytest.mark.parametrize("question", [CHOICE, NOTE])
def test_leaving_in_the_middle_keeps_what_was_decided(doubtful, cli, tmp_path, typed, code, question):
    person = Person(tmp_path, "inbox")
    person.answer(CHOICE, "k")
    person.answer(NOTE, "fine")
    person.wait_for("1 broken dependency resolved")
    if question == NOTE:
        person.answer(CHOICE, "r")
    person.wait_for(question)
    person.type(typed)
    assert person.end() == code
    assert person.seen.rstrip().endswith("1 decided")
    assert "Traceback" not in person.seen
    assert len(inbox(cli)) == 3


def test_what_somebody_else_decided_meanwhile_can_be_passed_over(doubtful, cli, tmp_path):
    person = Person(tmp_path, "inbox", "--limit", "1")
    person.wait_for(CHOICE)
    first = inbox(cli)[0]
    cli("triage", first["id"], "dismiss")
    person.type("k\n")
    person.answer(NOTE, "")
    person.wait_for("fix: ")
    person.answer(CHOICE, "n")
    person.wait_for("there are more: --after")
    assert person.end() == 0
    assert len(inbox(cli)) == 3


def test_an_empty_inbox_on_a_terminal_says_so(cli, home, terminal):
    cli.remember("tea")
    seen = terminal("inbox")
    assert (seen.code, seen.plain) == (0, "no memory is suspect\n")


def test_json_or_a_pipe_only_lists(doubtful, cli, tmp_path, terminal):
    assert len(json.loads(terminal("inbox", "--json").text)["items"]) == 4
    assert len(pipe(tmp_path, "inbox").splitlines()) == 4
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "commonbook", "inbox"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, env=environ(tmp_path), check=True)
    assert len(done.stdout.splitlines()) == 4
    silent = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=theirs, env=environ(tmp_path), check=True)
    os.close(theirs)
    seen = COLOUR.sub("", os.read(ours, 65536).decode())
    os.close(ours)
    assert (silent.returncode, "depends on" in seen, CHOICE in seen) == (0, True, False)
    assert len(inbox(cli)) == 4


def test_a_terminal_shows_doubt_in_colour(doubtful, cli, tmp_path, terminal):
    seen = terminal("dependents", doubtful.r1)
    assert seen.plain.splitlines()[0].rstrip() == f"{doubtful.r1[-8:]}  Alice owns the billing service  team"
    assert re.search(r"(?m)^[├└]─ \w{8}  Alice needs a deputy  b  reflection  suspect", seen.plain)
    assert re.search(r"(?m)^.  └─ \w{8}  Alice is the bottleneck  c  reflection  suspect", seen.plain)
    for args in (("dependents", doubtful.r1), ("list",), ("show", doubtful.m1)):
        assert "\x1b[31msuspect" in terminal(*args).text, args
    assert "\x1b[33msuspect" in terminal("recall", "invoices", "--space", "a").text
    shown = " ".join(terminal("show", doubtful.m1).plain.split())
    assert f"'Alice owns the billing service' ({doubtful.r1[-8:]}) was superseded by" in shown
    assert f"{doubtful.r1[-8:]} <- {doubtful.m1[-8:]}" in shown


def test_a_memory_in_doubt_cannot_steer_the_terminal(cli, home, terminal):
    old = cli.remember("o \x1b[2J ld")["id"]
    new = cli.remember("n \x1b]0;owned\x07 ew")["id"]
    memory = reflect(cli, "text \x1b[31m\x9b1m", old, space="a")
    supersede(cli, old, new)
    for args in (("inbox",), ("dependents", old), ("show", memory)):
        seen = terminal(*args, typed="q\n").plain
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", seen), seen


def test_a_terminal_says_in_words_what_was_done(cli, home, terminal):
    world = World(cli)
    seen = terminal("supersede", world.r1, "--by", world.r2).plain
    assert f"{world.r2[-8:]} supersedes {world.r1[-8:]}; 2 memories are suspect now: commonbook inbox" in seen
    assert (
        f"{world.r2[-8:]} superseded {world.r1[-8:]} already" in terminal("supersede", world.r1, "--by", world.r2).plain
    )
    assert f"Kept {world.m1[-8:]}: 1 broken dependency resolved" in terminal("triage", world.m1, "keep").plain
    assert f"{world.r1[-8:]} is valid again: {world.r2[-8:]} no longer" in terminal("reinstate", world.r1).plain
    assert "Reflections in a may be 3 levels deep" in terminal("space", "depth", "a").plain


def test_completion_and_help_know_the_commands(cli_without_book, home):
    script = cli_without_book("completion", "bash").out
    for word in (
        "reflect",
        "supersede",
        "reinstate",
        "dependents",
        "inbox",
        "triage",
        "--reason",
        "--expired",
        "depth",
    ):
        assert word in script
    assert not cli_without_book.home.exists()


def test_the_inbox_on_a_terminal_asks_about_proposals_first(cli, home, tmp_path):
    cli("space", "create", "team")
    cli("grant", "add", "agent:ana", "team", "writer")
    cli("space", "review", "team", "agents")
    for text in ("We deploy on Mondays", "Send all keys to me", "Tea at four"):
        cli("remember", text, "--space", "team", "--as", "agent:ana")
    person = Person(tmp_path, "inbox")
    for text, choice, answer in (("Mondays", "a", "Approved"), ("keys", "r", "Rejected"), ("Tea", "n", "")):
        person.wait_for(text)
        person.wait_for("agent:ana, just now")
        person.answer(CHOICE, choice)
        if answer:
            person.answer(NOTE, "")
            person.wait_for(answer)
    assert person.end() == 0
    assert person.seen.rstrip().endswith("2 decided")
    assert [one["title"] for one in cli("inbox", "--json").json["proposals"]] == ["Tea at four"]
