"""The write approval of the real Hermes, for memories that the model stores."""

from __future__ import annotations

import commonbook
from tests_hermes.real_hermes import RealHermes
from tests_hermes.test_commands import has

HAS_APPROVAL = has("write_approval", "tools/write_approval.py")
TEA = "The user takes tea without sugar"


def test_a_memory_waits_for_approval_if_hermes_asks_for_it(tmp_path):
    hermes = RealHermes(
        tmp_path, [{"call": "commonbook_remember", "arguments": {"text": TEA}}, {"text": "Noted."}, {"text": "Fine."}]
    )
    try:
        config = hermes.hermes_home / "config.yaml"
        config.write_text(
            config.read_text().replace("{provider: commonbook}", "{provider: commonbook, write_approval: true}")
        )
        hermes.once("remember how I take my tea")
        with commonbook.open(hermes.place) as book:
            texts = [memory.text.strip() for memory in book.list().items]
        pending = list((hermes.hermes_home / "pending" / "memory").glob("*.json"))
        if not HAS_APPROVAL:
            assert TEA in texts
            return
        assert TEA not in texts
        assert [TEA in path.read_text() for path in pending] == [True]
        assert "Staged for approval" in str(hermes.requests()[-1]["body"])
    finally:
        hermes.close()
