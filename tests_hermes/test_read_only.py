"""The real Hermes on a home that is mounted read-only: it recalls, and the turn waits until the home can be written."""

from __future__ import annotations

import subprocess

import pytest

import commonbook
from tests_hermes.real_hermes import HERMES, LIMIT, RealHermes

QUESTION = "where do the herons nest"
MOUNT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'


@pytest.mark.promise("hermes.slow")
def test_a_read_only_home_is_recalled_from_and_turns_wait(tmp_path):
    hermes = RealHermes(tmp_path, [{"text": "By the mill."}, {"text": "At noon."}])
    try:
        with commonbook.open(hermes.place, create=True) as book:
            book.remember("The herons nest in the alders behind the mill", space="personal")
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", MOUNT, "sh", str(hermes.place), str(HERMES), "-z", QUESTION],
            env=hermes.env, cwd=hermes.project, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=LIMIT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "in the alders behind the mill" in str(hermes.requests()[-1]["body"])
        assert hermes.stored() == []
        hermes.once("when do they feed")
        assert ("user", QUESTION) in hermes.stored()
        assert ("assistant", "By the mill.") in hermes.stored()
    finally:
        hermes.close()
