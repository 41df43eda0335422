"""The setup dialog asks for the options that people choose; `hermes memory setup commonbook` runs it.

An empty answer keeps the present value, and a dash puts the default back. So a second run changes nothing by itself.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any, Final

from commonbook.adapters.hermes import factory, options
from commonbook.errors import CommonbookError

_ASKED: Final = ("home", "space", "tags", "settle_every", "recall_count", "recall_tokens")
_DEFAULT: Final = "-"
_FIX: Final = "hermes config set memory.provider commonbook"


def run(hermes_home: str, config: Mapping[str, Any]) -> None:
    """Ask for options, save them, and make Commonbook the provider in Hermes' configuration."""
    _say("\n  Configuring Commonbook. An empty answer keeps the value; a dash puts the default back.\n")
    try:
        answers = _ask_all(options.load(hermes_home))
        options.save(answers, hermes_home)
    except CommonbookError as error:
        _say(f"\n  Nothing was saved: {error.message}\n  {error.fix}\n")
        return
    _activate(config)
    _say(f"\n  Saved to {options.folder(hermes_home) / 'config.json'}")
    problem = factory.problem(hermes_home)
    _say(f"  Not available yet: {problem}\n" if problem else "  Start a new session to use it.\n")


def _ask_all(current: options.Options) -> dict[str, Any]:
    default = options.Options()._asdict()
    answers: dict[str, Any] = {}
    for name in _ASKED:
        answer = _ask(name, getattr(current, name))
        if answer is None:
            break
        if answer:
            answers[name] = default[name] if answer == _DEFAULT else answer
    return answers


def _ask(name: str, value: object) -> str | None:
    """Return a valid answer, an empty one, or None if nobody answers any longer."""
    shown = value if value not in ("", None) else "not set"
    while True:
        sys.stdout.write(f"  {options.description(name)} [{shown}]: ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return None
        answer = line.strip()
        if not answer or answer == _DEFAULT:
            return answer
        try:
            options.require(name, answer)
        except CommonbookError as error:
            _say(f"  {error.message}; {error.fix}")
        else:
            return answer


def _activate(config: Mapping[str, Any]) -> None:
    memory = config.get("memory")
    if isinstance(memory, Mapping) and memory.get("provider") == "commonbook":
        # Hermes writes its file anew without comments: not needed here.
        return
    try:
        hermes = importlib.import_module("hermes_cli.config")
    except ImportError:
        _say(f"\n  Make it the provider: {_FIX}")
        return
    others = memory if isinstance(memory, Mapping) else {}
    hermes.save_config({**config, "memory": {**others, "provider": "commonbook"}})


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
