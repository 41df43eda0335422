"""The Keys port as key files: an Ed25519 key signs the log, and an HMAC key hashes private values in the log.

Authenticated encryption (AES-GCM) of values that nobody may read in the database.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import hmac
import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadText, DiskFull, HomeDamaged, HomeError, HomeReadOnly, KeyMissing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

# A recall hashes and neither signs nor encrypts: the functions that do import the library.

SIGNING: Final = "signing.key"
HASHING: Final = "hashing.key"

_ED25519: Final = "ed25519"
_HMAC: Final = "hmac-sha256"
_KEY_ID: Final = re.compile(r"[0-9a-f]{32}")
_DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY_ERRNOS: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_CHECK_TEXT: Final = "the keys of this book"
"""Its keyed hash is recorded when a book is made, to recognize the hashing key. It must never change."""

_RESTORE: Final = "restore the keys folder from a back-up of this home"


class _Keys:
    def __init__(self, seed: bytes, secret: bytes) -> None:
        self.seed, self.secret = seed, secret

    @cached_property
    def private(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public(self) -> Ed25519PublicKey:
        return self.private.public_key()

    @cached_property
    def key_id(self) -> str:
        return _key_id_of(self.public.public_bytes_raw())


class KeyFiles:
    """The keys of a home, read from its keys folder on first use.

    Only `load(create=True)` creates keys. Any other use without keys raises KeyMissing, so that a log whose key was
    lost is never silently continued with another key.
    """

    def __init__(self, folder: str) -> None:
        """Use this folder; nothing is read yet."""
        self._folder = folder
        self._keys: _Keys | None = None
        self._retired: dict[str, Ed25519PublicKey] = {}
        self._lock = threading.Lock()
        self._expected: dict[str, str] = {}
        self._fix = _RESTORE

    @property
    def key_id(self) -> str:
        """The id of the signing key: the first 32 hexadecimal digits of the hash of its public half."""
        return self._load_once().key_id

    def sign(self, message: bytes) -> bytes:
        """Sign with Ed25519."""
        return self._load_once().private.sign(message)

    def verify(self, key_id: str, signature: bytes, message: bytes) -> bool:
        """Return whether the signature is valid for that key: the current one, or one with a file `<key_id>.pub`."""
        from cryptography.exceptions import InvalidSignature

        public = self._public_key(key_id)
        if public is None:
            return False
        try:
            public.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def keyed_hash(self, *parts: str) -> str:
        """Hash the parts under the hashing key: HMAC-SHA256 over each part's length and UTF-8 bytes."""
        try:
            message = b"".join([len(data).to_bytes(8, "big") + data for data in map(str.encode, parts)])
        except UnicodeEncodeError as error:
            raise BadText("a lone surrogate cannot be hashed", fix="send valid Unicode text") from error
        return hmac.digest(self._load_once().secret, message, "sha256").hex()

    def encrypt(self, name: Sequence[str], data: bytes) -> str:
        """Encrypt with a key that is derived from the hashing key and a name."""
        return encrypt(bytes.fromhex(self.keyed_hash("encryption", *name)), data)

    def decrypt(self, name: Sequence[str], text: str) -> bytes:
        """Decrypt the text of `encrypt`."""
        return decrypt(bytes.fromhex(self.keyed_hash("encryption", *name)), text)

    def load(self, *, create: bool) -> None:
        """Read the keys; with `create`, create them if there are none, which is right only while the log is empty."""
        self._load_once(create=create)

    def fingerprints(self) -> dict[str, str]:
        """Return a keyed hash of a constant text, and the id of the signing key."""
        return {"keys": self.keyed_hash(_CHECK_TEXT), "signing": self.key_id}

    def expect(self, facts: Mapping[str, str], *, fix: str) -> None:
        """Remember the fingerprints of the keys that the book was made with; nothing is read or compared yet."""
        self._expected = {name: facts.get(name, "") for name in ("keys", "signing")}
        self._fix = fix

    def require_expected(self) -> None:
        """Raise KeyMissing if these are not the keys that the book was made with."""
        if self._expected and self.fingerprints() != self._expected:
            raise KeyMissing(f"the keys in {self._folder} are not those that this book was made with", fix=self._fix)
        self._expected = {}

    def loose(self) -> list[str]:
        """Return the paths (folder and secret keys) on which anyone but the owner has permissions."""
        paths = [self._folder, self._path(SIGNING), self._path(HASHING)]
        return [path for path in paths if os.path.exists(path) and os.stat(path).st_mode & 0o077]

    def _load_once(self, *, create: bool = False) -> _Keys:
        keys = self._keys
        if keys is not None:
            return keys
        with self._lock:
            if self._keys is None:
                self._keys = self._read(create=create)
            return self._keys

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _read(self, *, create: bool) -> _Keys:
        seed, secret = self._read_key(SIGNING, _ED25519), self._read_key(HASHING, _HMAC)
        # The hashing key is created first: alone, it means a crash between the two, or a process still creating them.
        if create and seed is None:
            self._create_keys()
            seed, secret = self._read_key(SIGNING, _ED25519), self._read_key(HASHING, _HMAC)
        if seed is None or secret is None:
            missing = self._path(SIGNING if seed is None else HASHING)
            raise KeyMissing(f"the key file {missing} is missing", fix=_RESTORE)
        return _Keys(seed, secret)

    def _read_key(self, name: str, scheme: str) -> bytes | None:
        """Return the 32 bytes of a key file, or None if there is no such file."""
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                line = file.read(4096)
        except FileNotFoundError:
            return None
        except OSError as error:
            fix = "make it readable for the owner of the home"
            raise HomeError(f"the key file {path} cannot be read: {error.strerror}", fix=fix) from error
        key = _parse_line(line, scheme)
        if key is None:
            raise HomeDamaged(f"the key file {path} is not one line `{scheme}:<base64 of 32 bytes>`", fix=_RESTORE)
        return key

    def _public_key(self, key_id: str) -> Ed25519PublicKey | None:
        with suppress(KeyMissing):
            keys = self._load_once()
            if key_id == keys.key_id:
                return keys.public
        known = self._retired.get(key_id)
        if known is None and _KEY_ID.fullmatch(key_id):
            known = self._retired_key(key_id)
        return known

    def _retired_key(self, key_id: str) -> Ed25519PublicKey | None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            raw = self._read_key(f"{key_id}.pub", _ED25519)
        except HomeError:
            return None
        # The name is derived from the content, so that no file can pass for another key.
        if raw is None or _key_id_of(raw) != key_id:
            return None
        public = Ed25519PublicKey.from_public_bytes(raw)
        self._retired[key_id] = public
        return public

    def _create_keys(self) -> None:
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            os.chmod(self._folder, 0o700)
            self._create_key(HASHING, _HMAC)
            self._create_key(SIGNING, _ED25519)
            _fsync_folder(self._folder)
            _fsync_folder(os.path.dirname(os.path.abspath(self._folder)))
        except OSError as error:
            raise _typed_error(self._folder, error) from error

    def _create_key(self, name: str, scheme: str) -> None:
        """Create a key file, whole and durable; a hard link lets the first of several processes win."""
        temporary = self._path(f".{name}.{os.urandom(8).hex()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(_format_line(scheme, os.urandom(32)))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(temporary, self._path(name))
        finally:
            os.unlink(temporary)


def _format_line(scheme: str, key: bytes) -> bytes:
    return f"{scheme}:{base64.b64encode(key).decode('ascii')}\n".encode("ascii")


def _parse_line(line: bytes, scheme: str) -> bytes | None:
    name, _, encoded = line.removesuffix(b"\n").removesuffix(b"\r").partition(b":")
    try:
        key = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return None
    return key if name == scheme.encode("ascii") and len(key) == 32 else None


def _key_id_of(raw_public: bytes) -> str:
    return hashlib.sha256(raw_public).hexdigest()[:32]


def _fsync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _typed_error(folder: str, error: OSError) -> HomeError:
    message = f"the keys cannot be written to {folder}: {error.strerror}"
    if error.errno in _DISK_FULL_ERRNOS:
        return DiskFull(message, fix="make room on the disk")
    if error.errno in _READ_ONLY_ERRNOS:
        return HomeReadOnly(message, fix="make the home writable for its owner")
    return HomeError(message, fix="check the folder, and that its file system has hard links")


_NONCE_BYTES: Final = 12


def encrypt(key: bytes, data: bytes) -> str:
    """Encrypt with a key of 32 bytes and a new nonce, as text."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, data, None)).decode("ascii")


def decrypt(key: bytes, text: str) -> bytes:
    """Decrypt the text of `encrypt`; HomeDamaged if it is another text, or was made with another key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        raw = base64.b64decode(text, validate=True)
        return AESGCM(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], None)
    except (InvalidTag, ValueError, binascii.Error):
        raise HomeDamaged(
            "an encrypted value cannot be read with the keys of this home",
            fix="restore the keys folder and the database from one back-up of this home",
        ) from None
