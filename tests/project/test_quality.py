"""`python -m benchmarks quality`: it reads three shapes of data sets, and measures what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.quality import datasets, measures
from tests.project.test_locomo import chats

pytestmark = pytest.mark.slow


def many_talks() -> dict[str, Any]:
    talks = [
        {
            "id": f"talk_{number}",
            "date": "2023/04/10 (Mon) 17:50",
            "turns": [
                {"role": "user", "text": f"I bought a {thing} last week", "has_answer": True},
                {"role": "assistant", "text": "That sounds like a fine choice.", "has_answer": False},
            ],
        }
        for number, thing in enumerate(("kettle", "canoe", "telescope"))
    ]
    questions = [
        {"id": "a1", "type": "single", "question": "Which canoe did I buy?", "sessions": ["talk_1"]},
        {"id": "1a", "type": "single", "question": "When did I buy a kettle?", "sessions": ["talk_0"]},
        {"id": "a2_abs", "type": "single", "question": "Which piano did I buy?", "sessions": ["talk_2"]},
    ]
    return {"talks": talks, "questions": questions}


def long_talks() -> list[dict[str, Any]]:
    turns = [
        {"id": "0", "session": 1, "date": "March-15-2024", "speaker": "user", "text": "My boat is called Puffin"},
        {"id": "1", "session": 1, "date": "March-15-2024", "speaker": "assistant", "text": "A lovely name."},
    ]
    question = {"question": "What is my boat called?", "category": "fact", "evidence": ["0"]}
    return [{"id": "one", "turns": turns, "questions": [question]}] * 8


def table(folder: Path, beginning: str) -> dict[str, Any]:
    tables = json.loads((folder / "tables.json").read_text())
    (found,) = [one for one in tables if one["title"].startswith(beginning)]
    return {str(row[0]): dict(zip(found["heads"], row, strict=True)) for row in found["rows"]}


def test_every_study_runs_on_every_shape(tmp_path, capsys):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for name, content in {"chats": chats(), "long": long_talks(), "many": many_talks()}.items():
        (data / f"{name}.json").write_text(json.dumps(content))
    chosen = ["--only", "ranking", "--only", "parts", "--only", "verbatim", "--only", "pooled", "--memories", "20"]
    assert main(["quality", *chosen, "--data", str(data), "--out", str(out)]) == 0
    assert table(out, "many: evidence")["reported"]["R@10"] == 1.0
    assert table(out, "many: evidence")["reported"]["talks@5"] == 1.0
    assert table(out, "long: evidence")["reported"] | {"n": 1, "R@5": 1.0} == table(out, "long: evidence")["reported"]
    assert table(out, "chats: evidence")["tuned on"].keys() >= {"R@10", "talks@5", "FTS5 talks@5"}
    assert table(out, "long: evidence")["reported"]["talks@5"] == 1.0
    assert table(out, "long, all in one space: evidence")["reported"]["n"] == 1
    assert {"lexical", "meaning", "all"} <= table(out, "many: parts").keys()
    assert table(out, "notes: evidence")["reported"]["n"] == 100
    assert "## fragments of seven words" in capsys.readouterr().out
    few = ["--only", "silence", "--only", "calibration", "--only", "prompt", "--set", "many", "--out", str(out)]
    assert main(["quality", *few, "--file", str(data / "many.json")]) == 0
    assert {"## many: silence", "## many: calibration of first hits"} <= set(capsys.readouterr().out.splitlines())
    assert table(out, "many: evidence in the prompt")["500"]["evidence"] == 1.0
    for plot in ("silence", "calibration-of-first-hits", "evidence-in-the-prompt"):
        assert (out / f"many-{plot}.svg").read_text().startswith("<svg"), plot


def test_a_file_of_another_shape_is_refused(tmp_path, capsys):
    (tmp_path / "bad.json").write_text('{"talks": 3}')
    assert main(["quality", "--file", str(tmp_path / "bad.json")]) == 2
    assert "holds no talks with questions" in capsys.readouterr().err


def test_the_split_is_fixed(tmp_path):
    (tmp_path / "many.json").write_text(json.dumps(many_talks()))
    data = datasets.read(tmp_path / "many.json")
    assert [question.is_reported for question in data.questions] == [True, False, True]
    assert [bool(question.evidence) for question in data.questions] == [True, True, False]


def test_the_talks_of_the_evidence_are_known_in_every_shape(tmp_path):
    for name, content in {"chats": chats(), "long": long_talks(), "many": many_talks()}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        data = datasets.read(tmp_path / f"{name}.json")
        talk_of = {turn.id: talk.id for talk in data.talks for turn in talk.turns}
        for question in data.questions:
            assert {talk_of[turn] for turn in question.evidence} == question.sessions


def test_notes_name_their_evidence_by_title():
    data = datasets.notes()
    titles = {note.title for note in data.notes}
    assert (len(titles), len(data.questions), len(datasets.unrelated())) == (200, 100, 50)
    assert all(question.evidence <= titles for question in data.questions)


def test_measures():
    assert measures.found(["a", "b", "c"], {"b", "x"}, 2) == 0.5
    assert measures.reciprocal_rank(["a", "b"], {"b"}) == 0.5
    assert measures.auc([2, 3], [1, 2]) == 0.875
    bins = measures.calibration([0.05, 0.95, 1.0], [False, True, False])
    assert [(one.size, one.observed) for one in bins] == [(1, 0.0), (2, 0.5)]
    assert measures.calibration_error(bins) == pytest.approx((0.05 + 2 * 0.475) / 3)
    assert measures.brier([0.0, 1.0], [False, False]) == 0.5
