"""The key files of a home: created once, read by all processes, never silently replaced."""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from commonbook.engines.disk.signing_keys import KeyFiles
from commonbook.errors import BadText, DiskFull, HomeDamaged, HomeError, HomeReadOnly, KeyMissing

SEED = bytes(range(32))


def line(scheme: str, key: bytes) -> str:
    return f"{scheme}:{base64.b64encode(key).decode()}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "keys"


@pytest.fixture
def keys(folder: Path) -> KeyFiles:
    keys = KeyFiles(str(folder))
    keys.load(create=True)
    return keys


@pytest.fixture
def fixed(folder: Path) -> KeyFiles:
    folder.mkdir(parents=True, mode=0o700)
    (folder / "signing.key").write_text(line("ed25519", SEED))
    (folder / "hashing.key").write_text(line("hmac-sha256", SEED[::-1]))
    return KeyFiles(str(folder))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_made_once_and_only_for_their_owner(keys: KeyFiles, folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["hashing.key", "signing.key"]
    assert re.fullmatch(r"ed25519:[A-Za-z0-9+/]{43}=\n", (folder / "signing.key").read_text())
    assert re.fullmatch(r"hmac-sha256:[A-Za-z0-9+/]{43}=\n", (folder / "hashing.key").read_text())
    assert (mode(folder), mode(folder / "signing.key"), mode(folder / "hashing.key")) == (0o700, 0o600, 0o600)
    assert keys.loose() == []
    again = KeyFiles(str(folder))
    again.load(create=True)
    assert (again.key_id, again.keyed_hash("x")) == (keys.key_id, keys.keyed_hash("x"))


def test_a_folder_that_others_may_read_is_closed_when_keys_are_put_into_it(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    KeyFiles(str(folder)).load(create=True)
    assert mode(folder) == 0o700


def test_nothing_is_read_before_the_first_use(folder: Path) -> None:
    KeyFiles(str(folder))
    assert not folder.exists()


def test_a_use_without_keys_says_so_and_makes_none(folder: Path) -> None:
    keys = KeyFiles(str(folder))
    for use in (
        lambda: keys.key_id,
        lambda: keys.sign(b""),
        lambda: keys.keyed_hash(""),
        lambda: keys.load(create=False),
    ):
        with pytest.raises(KeyMissing) as caught:
            use()
        assert "back-up" in caught.value.fix
    assert not keys.verify("0" * 32, b"", b"")
    assert keys.loose() == []
    assert not folder.exists()


@pytest.mark.parametrize("create", [False, True])
def test_a_lost_hashing_key_is_missed_and_not_made_again(keys: KeyFiles, folder: Path, *, create: bool) -> None:
    (folder / "hashing.key").unlink()
    with pytest.raises(KeyMissing, match=r"hashing\.key"):
        KeyFiles(str(folder)).load(create=create)
    assert not (folder / "hashing.key").exists()


def test_a_lost_signing_key_is_missed_by_name(keys: KeyFiles, folder: Path) -> None:
    (folder / "signing.key").unlink()
    with pytest.raises(KeyMissing, match=r"signing\.key"):
        KeyFiles(str(folder)).load(create=False)


def test_a_crash_between_the_two_files_is_mended_by_the_next_creation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def crash(source: str, target: str) -> None:
        if target.endswith("signing.key"):
            raise KeyboardInterrupt
        link(source, target)

    monkeypatch.setattr(os, "link", crash)
    with pytest.raises(KeyboardInterrupt):
        KeyFiles(str(folder)).load(create=True)
    monkeypatch.undo()
    left = (folder / "hashing.key").read_text()
    KeyFiles(str(folder)).load(create=True)
    assert (folder / "hashing.key").read_text() == left
    assert sorted(path.name for path in folder.iterdir()) == ["hashing.key", "signing.key"]


def test_processes_that_race_for_the_first_use_end_with_the_same_keys(folder: Path) -> None:
    code = (
        "import sys; from commonbook.engines.disk.signing_keys import KeyFiles; keys = KeyFiles(sys.argv[1]);"
        "print('ready', flush=True); sys.stdin.readline(); keys.load(create=True);"
        "print(keys.key_id, keys.keyed_hash('x'))"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", code, str(folder)], stdin=-1, stdout=-1, text=True) for _ in range(6)
    ]
    for racer in racers:
        assert racer.stdout
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("\n")
        racer.stdin.flush()
    outputs = {racer.communicate(timeout=60)[0] for racer in racers}
    keys = KeyFiles(str(folder))
    assert outputs == {f"{keys.key_id} {keys.keyed_hash('x')}\n"}
    assert len(list(folder.iterdir())) == 2


def test_threads_that_race_for_the_first_use_end_with_the_same_keys(folder: Path) -> None:
    def use(_: int) -> str:
        keys = KeyFiles(str(folder))
        keys.load(create=True)
        return keys.key_id

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(use, range(64)))) == 1


def test_the_format_has_not_drifted(fixed: KeyFiles) -> None:
    private = Ed25519PrivateKey.from_private_bytes(SEED)
    assert fixed.key_id == "56475aa75463474c0285df5dbf2bcab7"
    assert fixed.sign(b"message") == private.sign(b"message")
    assert fixed.keyed_hash("a", "é") == "e44df7df1511666a1baccc8a4e89b61bc09cf388ca677e537a65273bdf0bfbc8"
    data = b"\0\0\0\0\0\0\0\1a\0\0\0\0\0\0\0\2\xc3\xa9"
    assert fixed.keyed_hash("a", "é") == hmac.new(SEED[::-1], data, hashlib.sha256).hexdigest()


def test_hashed_parts_do_not_run_into_each_other(fixed: KeyFiles) -> None:
    hashes = [fixed.keyed_hash(*parts) for parts in ((), ("",), ("", ""), ("ab",), ("a", "b"), ("", "ab"), ("ab", ""))]
    assert len(set(hashes)) == len(hashes)


def test_a_lone_surrogate_is_not_hashed(fixed: KeyFiles) -> None:
    with pytest.raises(BadText):
        fixed.keyed_hash("\ud800")


def test_a_signature_holds_for_its_message_and_key_alone(fixed: KeyFiles) -> None:
    signature = fixed.sign(b"message")
    assert fixed.verify(fixed.key_id, signature, b"message")
    assert not fixed.verify(fixed.key_id, signature, b"massage")
    assert not fixed.verify("0" * 32, signature, b"message")
    for broken in (b"", b"x", signature[:-1], signature + b"\0", bytes(64), bytes([signature[0] ^ 1]) + signature[1:]):
        assert not fixed.verify(fixed.key_id, broken, b"message")


def retired(folder: Path, name: str | None = None, scheme: str = "ed25519") -> tuple[Ed25519PrivateKey, str]:
    private = Ed25519PrivateKey.from_private_bytes(b"\x09" * 32)
    raw = private.public_key().public_bytes_raw()
    key_id = name or hashlib.sha256(raw).hexdigest()[:32]
    (folder / f"{key_id}.pub").write_text(line(scheme, raw))
    return private, key_id


def test_a_retired_key_still_verifies_also_without_the_present_one(fixed: KeyFiles, folder: Path) -> None:
    assert not fixed.verify(hashlib.sha256(b"").hexdigest()[:32], bytes(64), b"m")
    private, key_id = retired(folder)
    assert fixed.verify(key_id, private.sign(b"m"), b"m")
    assert not fixed.verify(key_id, private.sign(b"m"), b"n")
    (folder / "signing.key").unlink()
    assert KeyFiles(str(folder)).verify(key_id, private.sign(b"m"), b"m")


def test_a_public_key_under_another_name_is_not_known(fixed: KeyFiles, folder: Path) -> None:
    private, key_id = retired(folder, name="ab" * 16)
    assert not fixed.verify(key_id, private.sign(b"m"), b"m")


def test_a_garbled_public_key_is_not_known(fixed: KeyFiles, folder: Path) -> None:
    private, key_id = retired(folder, scheme="rsa")
    assert not fixed.verify(key_id, private.sign(b"m"), b"m")


def test_a_key_id_is_never_a_path(fixed: KeyFiles, folder: Path) -> None:
    private, key_id = retired(folder)
    (folder / f"{key_id}.pub").rename(folder.parent / f"{key_id}.pub")
    for odd in (f"../{key_id}", key_id.upper(), f"{key_id}\n", "", "\0"):
        assert not fixed.verify(odd, private.sign(b"m"), b"m")


def test_the_public_half_is_the_one_that_the_id_names(keys: KeyFiles, folder: Path) -> None:
    seed = base64.b64decode((folder / "signing.key").read_text().split(":")[1])
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    assert isinstance(public, Ed25519PublicKey)
    assert keys.key_id == hashlib.sha256(public.public_bytes_raw()).hexdigest()[:32]


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"ed25519:", b"ed25519", line("ed25519", b"x" * 31).encode(), line("ed25519", b"x" * 33).encode(),
     line("rsa", SEED).encode(), line("ed25519", SEED).encode() * 2, b"ed25519:" + b"!" * 44, b"\xff\xfe\x00",
     b" " + line("ed25519", SEED).encode(), b"x" * 10_000],
)  # fmt: skip
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("name", ["signing.key", "hashing.key"])
def test_a_garbled_key_file_is_named_and_left_alone(
    fixed: KeyFiles, folder: Path, name: str, content: bytes, *, create: bool
) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(HomeDamaged, match=name) as caught:
        fixed.load(create=create)
    assert "back-up" in caught.value.fix
    assert (folder / name).read_bytes() == content


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_line_may_end_as_an_editor_left_it(fixed: KeyFiles, folder: Path, ending: str) -> None:
    (folder / "signing.key").write_bytes((line("ed25519", SEED).rstrip() + ending).encode())
    assert fixed.key_id == "56475aa75463474c0285df5dbf2bcab7"


@pytest.mark.parametrize("name", ["", "signing.key", "hashing.key"])
@pytest.mark.parametrize("rights", [0o640, 0o604, 0o620, 0o777])
def test_what_others_have_rights_on_is_told_and_not_an_error(
    keys: KeyFiles, folder: Path, name: str, rights: int
) -> None:
    (folder / name).chmod(rights | 0o700)
    assert [Path(path) for path in keys.loose()] == [folder / name]
    assert KeyFiles(str(folder)).key_id == keys.key_id


def test_a_key_file_that_cannot_be_read_is_named(fixed: KeyFiles, folder: Path) -> None:
    (folder / "signing.key").unlink()
    (folder / "signing.key").mkdir()
    with pytest.raises(HomeError, match=r"signing\.key") as caught:
        fixed.load(create=True)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, DiskFull), (errno.EROFS, HomeReadOnly), (errno.EACCES, HomeReadOnly), (errno.EIO, HomeError)],
)
def test_keys_that_cannot_be_written_say_why_and_leave_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[HomeError]
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(number, os.strerror(number), target)

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(error) as caught:
        KeyFiles(str(folder)).load(create=True)
    assert caught.value.fix
    assert list(folder.iterdir()) == []
