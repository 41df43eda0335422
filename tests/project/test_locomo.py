"""`python -m benchmarks locomo`: what it measures, what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from tests.interfaces.cli.test_terminal import environ

ROOT = str(Path(__file__).parents[2])
FIGURES = {"questions", "recall@5", "recall@10", "recall@20", "mrr", "ms_per_query"}


def chats() -> list[dict[str, Any]]:
    """Two chats in the shape of LoCoMo's."""
    turns = [("Caroline", "I went to a pottery class"), ("Melanie", "My kettle broke"), ("Caroline", "Oh no!")]
    conversation = {
        "speaker_a": "Caroline",
        "speaker_b": "Melanie",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": speaker, "dia_id": f"D1:{at}", "text": text} for at, (speaker, text) in enumerate(turns, 1)
        ],
        "session_2_date_time": "12:09 am on 13 September, 2023",
    }
    questions = [
        {"question": "What did Caroline learn in the pottery class?", "category": 1, "evidence": ["D1:1"]},
        {"question": "What happened to the kettle?", "category": 4, "evidence": ["D1:2; D:1:2", "D9:9"]},
        {"question": "What has no answer?", "category": 5, "evidence": ["D1:1"]},
        {"question": "Where is the evidence?", "category": 1, "evidence": []},
    ]
    return [{"conversation": conversation, "qa": questions}] * 2


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(autouse=True)
def environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))


def test_it_measures_in_a_home_of_its_own_and_leaves_nothing(home, tmp_path, temporary, capsys):
    (tmp_path / "chats.json").write_text(json.dumps(chats()))
    assert main(["locomo", str(tmp_path / "chats.json")]) == 0
    printed = capsys.readouterr()
    figures = json.loads(printed.out)
    assert printed.err == ""
    assert figures.keys() == FIGURES
    assert (figures["questions"], figures["recall@5"], figures["mrr"]) == (4, 1.0, 1.0)
    assert figures["ms_per_query"] > 0
    assert not home.exists()
    assert list(temporary.iterdir()) == []


def _broken(**changes: object) -> object:
    (chat, _) = chats()
    return [{**chat, **changes}]


BAD_FILES = {
    "no file": None,
    "no JSON": "{",
    "too deep": "[" * 100_000,
    "no list": "5",
    "a list of something else": '[{"text": "x"}]',
    "words that hold the keys": '["conversation and qa"]',
    "no chats": "[]",
    "a turn without its id": json.dumps(
        _broken(conversation={"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [{"speaker": "A"}]})
    ),
    "a date of another kind": json.dumps(_broken(conversation={"session_1_date_time": "8.5.2023", "session_1": []})),
    "a question without its kind": json.dumps(_broken(qa=[{"question": "why?", "evidence": ["D1:1"]}])),
    "no question with an answer": json.dumps(_broken(qa=[])),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_file_that_does_not_hold_chats_is_refused(home, tmp_path, temporary, capsys, what):
    if BAD_FILES[what] is not None:
        (tmp_path / "bad.json").write_text(BAD_FILES[what])
    assert main(["locomo", str(tmp_path / "bad.json")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("bad_input: ")
    assert "give the path of locomo10.json" in printed.err
    assert not home.exists()
    assert list(temporary.iterdir()) == []


def test_a_run_that_is_interrupted_leaves_nothing(tmp_path):
    (tmp_path / "chats.json").write_text(json.dumps(chats()))
    folder = tmp_path / "temporary"
    folder.mkdir()
    code = (
        "import signal, sys, time, commonbook.service.book as book, benchmarks.__main__ as benchmarks\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "book.Book.recall = lambda *_, **__: (print('asked', flush=True), time.sleep(60))\n"
        "sys.exit(benchmarks.main(['locomo', 'chats.json']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environ(tmp_path), "TMPDIR": str(folder), "PYTHONPATH": ROOT},
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"asked\n"
    assert len(list(folder.iterdir())) == 1
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert list(folder.iterdir()) == []
