"""Sharing on the command line: copies that stay true or say why not, and lineage as a tree."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from commonbook.values.memory import CopyInfo
from commonbook.values.sharing import Ancestor, CopyNode, ShareReceipt
from tests.interfaces.cli.test_cli import INSTANT, MEMORY, RECEIPT, cli
from tests.interfaces.cli.test_terminal import COLOUR, pipe, terminal
from tests.support.hand_edits import space_folder

__all__ = ["cli", "terminal"]

SHARING = set(ShareReceipt._fields)
NOBODY = "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"


@pytest.fixture
def source(cli):
    return cli.remember("Alice owns the billing service")["id"]


def share(cli, memory: str, to: str, *options: str) -> str:
    (shared,) = cli("share", memory, "--to", to, *options, "--json").json
    assert shared["new"]
    return str(shared["id"])


def shown(cli, memory: str) -> tuple[str, str]:
    shown = cli("show", memory, "--json").json
    return shown["text"], shown["freshness"]


def recalled(cli, query: str, space: str = "team") -> list[tuple[str, str, str]]:
    hits = cli("recall", query, "--space", space, "--json").json["hits"]
    return [(hit["id"], hit["passage"], hit["freshness"]) for hit in hits]


# --- what is answered


def test_share_says_what_became_of_each_memory(cli, source):
    other = cli.remember("Bob owns the tea")["id"]
    (one,) = cli("share", source, "--to", "team", "--json").json
    assert one.keys() == SHARING
    assert (one["source"], one["space"], one["new"], one["refresh"], one["revision"]) == (
        source, "team", True, "live", 1,
    )  # fmt: skip
    result = cli("share", source, other, NOBODY, "--to", "team", "--json")
    assert (result.code, result.err) == (1, "")
    again, new, failed = result.json
    assert (again["id"], again["new"]) == (one["id"], False)
    assert new["new"]
    assert failed.keys() == SHARING
    assert (failed["id"], failed["source"], failed["error"].partition(":")[0]) == ("", NOBODY, "not_found")


def test_share_in_a_pipe_prints_a_row_for_each(cli, source):
    copy, shared, space, refresh, state = cli("share", source, "--to", "team").out.rstrip("\n").split("\t")
    assert (shared, space, refresh, state) == (source, "team", "live", "new")
    assert cli("share", source, "--to", "team").out.split("\t")[::4] == [copy, "existing\n"]


def test_pull_takes_into_the_space_that_is_meant(cli, source):
    receipt = cli("pull", source, "--space", "mine", "--refresh", "lazy", "--json").json
    assert receipt.keys() == SHARING
    assert (receipt["space"], receipt["refresh"], receipt["new"]) == ("mine", "lazy", True)
    assert cli("pull", source[-8:], "--to", "other", "--json").json["space"] == "other"


@pytest.mark.promise("copies.marked")
def test_a_copy_says_in_show_list_and_recall_where_it_came_from(cli, source):
    copy = share(cli, source, "team")
    memory = cli("show", copy, "--json").json
    assert memory.keys() == MEMORY
    assert memory["shared"].keys() == set(CopyInfo._fields)
    assert (memory["freshness"], memory["successor"]) == ("fresh", None)
    shared = memory["shared"]
    assert (shared["source"], shared["root"], shared["by"], shared["mode"]) == (source, source, "user:local", "live")
    assert INSTANT.match(shared["at"])
    (listed,) = cli("list", "--space", "team", "--json").json["items"]
    (hit,) = cli("recall", "billing", "--space", "team", "--json").json["hits"]
    assert listed["shared"] == hit["shared"] == shared
    assert listed["freshness"] == hit["freshness"] == "fresh"
    own = cli("show", source, "--json").json
    assert (own["shared"], own["freshness"]) == (None, None)
    assert cli("status", "--json").json["copies"] == 1


def test_an_edit_says_how_many_copies_changed_with_it(cli, source):
    share(cli, source, "team")
    share(cli, source, "other", "--refresh", "snapshot")
    assert cli("edit", source, "Bertha owns it", "--json").json["copies"] == 1
    result = cli("edit", source, "Carla owns it")
    assert (result.code, result.err) == (0, "note: 1 copy has changed with it\n")


def test_what_is_done_to_a_copy_answers_with_a_receipt(cli, source):
    copy = share(cli, source, "team", "--refresh", "snapshot")
    cli("edit", source, "Bertha owns it")
    for verb, version in (("refresh", 2), ("adopt", 2), ("detach", 3), ("unshare", 3)):
        result = cli(verb, copy, "--json")
        assert (result.code, result.err) == (0, ""), verb
        assert result.json.keys() == RECEIPT
        assert (result.json["id"], result.json["version"], result.json["space"]) == (copy, version, "team"), verb
    assert cli("show", copy).code == 3


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("share", "{}"), 2),
        (("share", "{}", "--to", "team", "--with", "user:bob"), 2),
        (("share", "{}", "--to", "team", "--refresh", "often"), 2),
        (("share", "{}", "--to", "No Space"), 2),
        (("share", "{}", "{}", "--with", "user:bob"), 2),
        (("share", "{}", "--with", "bob"), 2),
        (("share", *("{}",) * 101, "--to", "team"), 2),
        (("share", NOBODY, "--to", "team"), 3),
        (("pull", NOBODY), 3),
        (("unshare", "{}"), 2),
        (("refresh", "{}"), 2),
        (("refresh", NOBODY), 3),
        (("lineage", NOBODY), 3),
        (("lineage", "{}", "--depth", "33"), 2),
        (("lineage", "{}", "--depth", "-1"), 2),
        (("lineage", "{}", "--depth", "deep"), 2),
        (("copies", NOBODY), 3),
    ],
)
def test_trouble_goes_to_standard_error_with_its_exit_code(cli, source, args, code):
    result = cli(*(arg.format(source) for arg in args), "--json")
    assert (result.code, result.out) == (code, "")
    assert result.error.keys() == {"type", "message", "fix"}
    assert all(result.error.values())


# --- following


@pytest.mark.promise("copies.live")
def test_a_live_copy_gives_the_new_text_at_once_to_show_and_recall(cli, source):
    copy = share(cli, source, "team")
    cli("edit", source, "Bertha runs the invoicing desk")
    assert shown(cli, copy) == ("Bertha runs the invoicing desk", "fresh")
    assert recalled(cli, "invoicing desk") == [(copy, "Bertha runs the invoicing desk", "fresh")]
    assert recalled(cli, "Alice and her service") == []


@pytest.mark.promise("copies.lazy")
def test_a_lazy_copy_is_new_when_it_is_shown_and_marked_and_soon_new_when_it_is_recalled(cli, source):
    copy = share(cli, source, "team", "--refresh", "lazy")
    cli("edit", source, "Bertha owns the billing service")
    assert recalled(cli, "billing") == [(copy, "Alice owns the billing service", "stale")]
    assert len(cli("history", copy, "--json").json) == 1, "recall wrote a revision"
    assert cli("worker", "--once").code == 0
    assert recalled(cli, "billing") == [(copy, "Bertha owns the billing service", "fresh")]
    cli("edit", source, "Carla owns the billing service")
    assert shown(cli, copy) == ("Carla owns the billing service", "fresh")


@pytest.mark.promise("copies.marked")
def test_a_snapshot_keeps_the_old_text_and_is_marked_until_it_is_refreshed(cli, source):
    copy = share(cli, source, "team", "--refresh", "snapshot")
    cli("edit", source, "Bertha owns the billing service")
    assert shown(cli, copy) == ("Alice owns the billing service", "stale")
    assert recalled(cli, "billing") == [(copy, "Alice owns the billing service", "stale")]
    assert cli("list", "--space", "team").out.rstrip("\n").endswith("\tstale")
    cli("refresh", copy)
    assert shown(cli, copy) == ("Bertha owns the billing service", "fresh")


def test_a_change_of_tags_makes_nothing_stale(cli, source):
    copy = share(cli, source, "team", "--refresh", "snapshot")
    before = cli("show", copy, "--json").out
    cli("edit", source, "--tag", "money")
    assert cli("show", copy, "--json").out == before


# --- what becomes of the source


@pytest.mark.promise("copies.marked")
def test_a_copy_says_when_its_source_is_deleted(cli, source):
    copy = share(cli, source, "team")
    before = cli("show", copy, "--json").json
    cli("delete", source)
    after = cli("show", copy, "--json").json
    assert after["freshness"] == "source_deleted"
    assert {**after, "freshness": "fresh"} == before
    assert (cli("refresh", copy).code, cli("adopt", copy).code) == (3, 3)


def test_a_copy_names_what_its_source_was_superseded_by(cli, source):
    copy = share(cli, source, "team")
    successor = cli.remember("Bertha owns it now", "--replaces", source)["id"]
    shown = cli("show", copy, "--json").json
    assert (shown["freshness"], shown["successor"]) == ("source_superseded", successor)
    assert cli("recall", "billing", "--space", "team", "--json").json["hits"] == []
    recall = ("recall", "billing", "--space", "team", "--include", "superseded")
    (hit,) = cli(*recall, "--json").json["hits"]
    assert (hit["freshness"], hit["successor"]) == ("source_superseded", successor)
    assert f"source_superseded by {successor}" in cli(*recall).out
    assert f"source superseded by: {successor}" in cli("show", copy).out


# --- lineage


@pytest.mark.promise("lineage.walks")
def test_sharing_back_and_forth_leaves_one_copy_in_each_space_and_one_lineage(cli, source):
    team = share(cli, source, "team")
    mine = cli("pull", team, "--to", "mine", "--json").json["id"]
    for memory in (mine, team, source):
        (again,) = cli("share", memory, "--to", "team", "--json").json
        assert (again["id"], again["new"]) == (team, False)
    (root,) = cli("share", mine, "--to", "personal", "--json").json
    assert (root["id"], root["new"], root["refresh"]) == (source, False, None)
    tree = cli("lineage", source, "--json").json
    assert tree["copies"][0]["id"] == team
    assert tree["copies"][0]["copies"][0]["id"] == mine


@pytest.mark.promise("copies.marked")
@pytest.mark.parametrize(("refresh", "stands"), [("live", "fresh"), ("snapshot", "stale")])
def test_a_copy_of_a_copy_is_current_or_marked_and_both_are_in_the_lineage(cli, source, refresh, stands):
    middle = share(cli, source, "b")
    last = share(cli, middle, "c", "--refresh", refresh)
    cli("edit", source, "Bertha owns it")
    assert shown(cli, last)[1] == stands
    lineage = cli("lineage", last, "--json").json
    assert (lineage["id"], lineage["space"], lineage["refresh"], lineage["freshness"]) == (last, "c", refresh, stands)
    assert (lineage["copies"], lineage["truncated"]) == ([], False)
    assert [one.keys() for one in lineage["ancestors"]] == [set(Ancestor._fields)] * 2
    nearest, root = lineage["ancestors"]
    assert (nearest["id"], nearest["space"], nearest["freshness"]) == (middle, "b", "fresh")
    assert (root["id"], root["title"], root["freshness"]) == (source, "Bertha owns it", None)
    below = cli("copies", source, "--json").json
    assert [one.keys() for one in below] == [set(CopyNode._fields)] * 2
    assert [(one["id"], one["source"], one["depth"]) for one in below] == [
        (middle, source, 1),
        (last, middle, 2),
    ]


def test_a_lineage_in_a_pipe_is_rows_with_their_depth(cli, source):
    middle = share(cli, source, "b")
    last = share(cli, middle, "c", "--refresh", "snapshot")
    cli("edit", source, "Bertha owns it")
    rows = [row.split("\t") for row in cli("lineage", middle).out.splitlines()]
    assert rows == [
        ["-1", source, "Bertha owns it", "personal", "", "", ""],
        ["0", middle, "Bertha owns it", "b", "live", "fresh", ""],
        ["1", last, "Alice owns the billing service", "c", "snapshot", "stale", ""],
    ]
    assert cli("copies", middle).out.split("\t")[:5] == [last, middle, "c", "snapshot", "stale"]


@pytest.mark.promise("lineage.ends")
def test_a_lineage_ends_in_a_tombstone_also_after_a_rebuild(cli, source):
    middle = share(cli, source, "b")
    last = share(cli, middle, "c")
    cli("delete", source)
    root = cli("lineage", last, "--json").json["ancestors"][1]
    assert (root["id"], root["readable"]) == (source, True)
    assert INSTANT.match(root["deleted"])
    cli("rebuild")
    assert cli("lineage", last, "--json").json["ancestors"][1] == root
    assert f"deleted {root['deleted']}" in cli("lineage", last).out
    assert f"deleted {root['deleted']}" in cli("lineage", source).out


@pytest.mark.promise("lineage.ends")
def test_a_deep_chain_is_cut_where_it_was_asked_to_and_says_so(cli, source):
    chain = [source]
    for number in range(9):
        chain.append(share(cli, chain[-1], f"s{number}"))
    lineage = cli("lineage", chain[-1], "--depth", "3", "--json").json
    assert ([one["id"] for one in lineage["ancestors"]], lineage["truncated"]) == (chain[-2:-5:-1], True)
    nothing = cli("lineage", chain[4], "--depth", "0", "--json").json
    assert (nothing["ancestors"], nothing["copies"], nothing["truncated"]) == ([], [], True)
    assert "there is more" in cli("lineage", source, "--depth", "3").err
    assert cli("lineage", source).err == ""


@pytest.mark.promise("lineage.ends")
def test_a_circle_made_by_hand_has_an_end(cli, source, home):
    copy = share(cli, source, "team")
    text = (home / cli("show", copy, "--json").json["path"]).read_text()
    one, other = "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e", "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2f"
    for space, own, from_ in (("b", one, other), ("c", other, one)):
        (space_folder(home, space) / "circle.md").write_text(text.replace(source, from_).replace(copy, own))
    result = cli("lineage", one, "--json")
    assert result.code == 0
    assert [step["id"] for step in result.json["ancestors"]] == [other]
    assert [below["id"] for below in result.json["copies"]] == [other]
    assert result.json["truncated"]
    assert cli("show", one).code == 0
    assert [below["id"] for below in cli("copies", other, "--json").json] == [one]


# --- who may


@pytest.mark.promise("copies.sharer")
def test_an_ex_member_with_a_pulled_copy_is_refused_and_the_copy_says_revoked(cli):
    cli("grant", "add", "user:bob", "team", "reader")
    cli("grant", "add", "user:bob", "bob", "admin")
    source = cli.remember("the team's plan", "--space", "team")["id"]
    pulled = cli("--as", "user:bob", "pull", source, "--to", "bob", "--json").json["id"]
    cli("grant", "revoke", "user:bob", "team")
    cli("edit", source, "another plan")
    result = cli("--as", "user:bob", "refresh", pulled, "--json")
    assert (result.code, result.error["type"]) == (4, "not_allowed")
    assert shown(cli, pulled) == ("the team's plan", "revoked")
    (ancestor,) = cli("--as", "user:bob", "lineage", pulled, "--json").json["ancestors"]
    assert ancestor == {**dict.fromkeys(Ancestor._fields), "id": source, "readable": False, "claimed": False}
    assert "not readable for you" in cli("--as", "user:bob", "lineage", pulled).out


@pytest.mark.promise("access.granted")
def test_what_is_shared_with_one_principal_is_read_by_that_one_alone(cli):
    for name in ("alice", "bob", "carla"):
        cli("grant", "add", f"user:{name}", "team", "writer")
    cli("grant", "add", "user:alice", "alice", "admin")
    source = cli("--as", "user:alice", "remember", "just between us", "--space", "alice", "--json").json["id"]
    (shared,) = cli("--as", "user:alice", "share", source, "--with", "user:bob", "--json").json
    assert cli("--as", "user:bob", "show", shared["id"], "--json").json["text"] == "just between us"
    assert cli("--as", "user:carla", "show", shared["id"]).code == 3
    assert cli("--as", "user:carla", "list", "--json").json["items"] == []


# --- edits of a copy


@pytest.mark.promise("copies.edits")
def test_a_copy_that_was_edited_is_not_written_over_until_someone_decides(cli, source):
    copy = share(cli, source, "team")
    cli("edit", copy, "our own words")
    cli("edit", source, "Bertha owns it")
    assert shown(cli, copy) == ("our own words", "diverged")
    result = cli("refresh", copy, "--json")
    assert (result.code, result.error["type"]) == (5, "conflict")
    cli("adopt", copy)
    assert shown(cli, copy) == ("Bertha owns it", "fresh")
    cli("detach", copy)
    cli("edit", source, "Carla owns it")
    assert shown(cli, copy) == ("Bertha owns it", "detached")
    assert cli("refresh", copy).code == 5


@pytest.mark.promise("copies.edits")
def test_an_edit_of_a_copy_names_the_command_that_takes_it_back_and_show_names_the_editor(cli, source):
    copy = share(cli, source, "team")
    assert "last edited by" not in cli("show", copy).out
    cli("grant", "add", "user:ben", "team", "writer")
    edited = cli("--as", "user:ben", "edit", copy, "We deploy whenever we like")
    assert f"commonbook adopt {copy}" in edited.out + edited.err
    assert re.search(r"last edited by:?\s+user:ben", cli("show", copy).out)
    cli("adopt", copy)
    assert "last edited by" not in cli("show", copy).out


# --- on a terminal


@pytest.mark.slow
def test_a_terminal_draws_the_lineage_as_a_tree_in_colours(terminal, tmp_path):
    source = pipe(tmp_path, "remember", "Alice owns billing").split("\t")[0]
    middle = pipe(tmp_path, "share", source, "--to", "b").split("\t")[0]
    stale = pipe(tmp_path, "share", middle, "--to", "c", "--refresh", "snapshot").split("\t")[0]
    below = pipe(tmp_path, "share", stale, "--to", "d").split("\t")[0]
    beside = pipe(tmp_path, "share", middle, "--to", "e").split("\t")[0]
    pipe(tmp_path, "edit", source, "Bertha owns billing")
    seen = terminal("lineage", middle[-8:])
    assert seen.code == 0
    assert [line.rstrip() for line in seen.plain.splitlines()] == [
        f"{source[-8:]}  Bertha owns billing  personal",
        f"└─ {middle[-8:]}  Bertha owns billing  b  live  fresh",
        f"   ├─ {stale[-8:]}  Alice owns billing  c  snapshot  stale",
        f"   │  └─ {below[-8:]}  Alice owns billing  d  live  stale",
        f"   └─ {beside[-8:]}  Bertha owns billing  e  live  fresh",
    ]
    assert "\x1b[32mfresh" in seen.text
    assert "\x1b[33mstale" in seen.text
    assert not COLOUR.search(terminal("lineage", middle, "--no-color").text)
    for args in (("list",), ("show", stale), ("copies", source), ("recall", "billing", "--space", "c")):
        assert "\x1b[33mstale" in terminal(*args).text, args
    pipe(tmp_path, "delete", source)
    assert re.search(rf"^{source[-8:]} .*  deleted just now", terminal("lineage", middle).plain)


def test_a_terminal_says_in_words_what_was_shared(terminal, tmp_path):
    source = pipe(tmp_path, "remember", "Alice owns billing").split("\t")[0]
    assert re.search(
        rf"Shared {source[-8:]} into team as [0-9a-f]{{8}} \(live\)", terminal("share", source, "--to", "team").plain
    )
    assert "team has it already" in terminal("share", source, "--to", "team").plain
    seen = terminal("share", source, NOBODY, "--to", "team")
    assert (seen.code, "there is no memory" in seen.plain) == (1, True)


def test_completion_knows_the_commands_of_sharing(cli, home):
    script = cli("completion", "bash").out
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    for word in ("lineage", "unshare", "--refresh", "--with", "--as", "grant", "--limit"):
        assert word in script


# --- many at once, and a root that is gone


@pytest.mark.slow
def test_commands_that_share_one_memory_at_once_make_one_copy(cli, source):
    command = [sys.executable, "-m", "commonbook", "share", source, "--to", "team", "--json"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(6)]
    receipts = [json.loads(one.communicate(timeout=60)[0])[0] for one in running]
    assert len({one["id"] for one in receipts}) == 1
    assert [one["new"] for one in receipts].count(True) == 1
    assert [one["id"] for one in cli("copies", source, "--json").json] == [receipts[0]["id"]]
    cli("unshare", receipts[0]["id"])
    assert share(cli, source, "team") != receipts[0]["id"]


def test_a_deleted_root_is_a_tombstone_in_the_lineage_also_after_a_rebuild(cli, source):
    middle = share(cli, source, "b")
    last = share(cli, middle, "c")
    cli("delete", source, "--json")
    before = cli("lineage", last, "--json").json["ancestors"]
    assert [one["id"] for one in before] == [middle, source]
    assert before[0]["deleted"] is None
    assert re.fullmatch(INSTANT, before[1]["deleted"])
    cli("rebuild", "--json")
    assert cli("lineage", last, "--json").json["ancestors"] == before


def test_the_mode_of_a_copy_is_changed_by_refresh(cli):
    source = cli.remember("oil costs five")["id"]
    copy = cli("share", source, "--to", "team", "--json").json[0]["id"]
    assert cli("refresh", copy, "--mode", "snapshot", "--json").json["id"] == copy
    assert cli("show", copy, "--json").json["shared"]["mode"] == "snapshot"
    assert cli("refresh", copy, "--mode", "often").code == 2


def test_a_copy_whose_source_is_gone_is_tied_again_and_the_command_says_so(cli):
    source = cli.remember("oil costs five")["id"]
    middle = cli("share", source, "--to", "middle", "--json").json[0]["id"]
    copy = cli("share", middle, "--to", "team", "--json").json[0]["id"]
    cli("unshare", middle)
    shared = cli("share", source, "--to", "team", "--json").json[0]
    assert (shared["id"], shared["new"], shared["retied"], shared["freshness"]) == (copy, False, True, "fresh")
    assert cli("share", source, "--to", "team").out.rstrip("\n").split("\t")[4] == "existing"
