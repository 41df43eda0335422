"""Every benchmark runs, at a size where the figures mean nothing, and says what it measured in numbers."""

import json
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.bench import Scale
from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, in_turns

TINY = Scale(
    small=2,
    middle=3,
    large=4,
    batch=20,
    adds=2,
    processes=(2, 4),
    write_rounds=1,
    batch_rounds=1,
    start_rounds=1,
)
MISSED = Figure(
    benchmark="made_up",
    what="adds",
    n=1_000,
    unit="/s",
    ours_rounds=(10.0, 20.0, 90.0),
    reference_rounds=(100.0,),
    bar=Bar(AT_LEAST, 0.25),
)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("single_add", [0, 3, 4]),
        ("parallel_add", [2, 4]),
        ("batch", [10, 2, 20, 20]),
        ("open_unchanged", [2, 3, 4]),
        ("cold_status", [2, 3, 4]),
    ],
)
def test_a_benchmark_measures_ours_beside_its_reference(name, sizes):
    figures: list[dict[str, Any]] = [figure.as_json() for figure in command.measured([name], TINY)]
    assert [figure["n"] for figure in figures] == sizes
    for figure in figures:
        assert figure["benchmark"] == name
        assert figure["ours"] > 0
        assert figure["reference"] > 0
        assert figure["ratio"] == pytest.approx(figure["ours"] / figure["reference"], rel=0.01)
        assert (figure["bar"] is None) == (figure["ok"] is None)


def test_a_bar_is_met_from_its_own_side():
    assert Bar(AT_LEAST, 0.25).met(0.25)
    assert not Bar(AT_LEAST, 0.25).met(0.24)
    assert Bar(AT_MOST, 3).met(3)
    assert not Bar(AT_MOST, 3).met(3.01)


def test_rounds_are_measured_in_turns_and_the_first_of_each_is_not_counted():
    order = []

    def ours():
        order.append("ours")
        return float(len(order))

    def reference():
        order.append("reference")
        return float(len(order))

    told = in_turns(2, ours, reference)
    assert order == ["ours", "reference", "ours", "reference", "reference", "ours"]
    assert told == ((3.0, 6.0), (4.0, 5.0))


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_a_missed_bar_is_told_and_is_an_error_only_when_asked(options, code, monkeypatch, capsys):
    monkeypatch.setattr(command, "BENCHMARKS", {"made_up": lambda _bench: iter([MISSED])})
    assert command.main(options) == code
    told = capsys.readouterr()
    (figure,) = json.loads(told.out)["figures"]
    assert (figure["ours"], figure["ratio"], figure["bar"], figure["ok"]) == (20.0, 0.2, ">= 0.25", False)
    assert "MISSED: adds (1,000): 0.20" in told.err


def test_the_json_goes_where_it_is_asked_to(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "BENCHMARKS", {"made_up": lambda _bench: iter([MISSED])})
    place = tmp_path / "figures.json"
    command.main(["made_up", "--json", str(place)])
    assert json.loads(place.read_text())["figures"][0]["benchmark"] == "made_up"
    assert capsys.readouterr().out == ""


def test_an_unknown_benchmark_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["sigle_add"])
    assert "sigle_add" in capsys.readouterr().err
