"""Authenticated encryption (AES-GCM) of values that nobody may read in the database."""

from __future__ import annotations

import base64
import binascii
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from commonbook.errors import HomeDamaged

_NONCE_BYTES: Final = 12


def encrypt(key: bytes, data: bytes) -> str:
    """Encrypt with a key of 32 bytes and a new nonce, as text."""
    nonce = os.urandom(_NONCE_BYTES)
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, data, None)).decode("ascii")


def decrypt(key: bytes, text: str) -> bytes:
    """Decrypt the text of `encrypt`; HomeDamaged if it is another text, or was made with another key."""
    try:
        raw = base64.b64decode(text, validate=True)
        return AESGCM(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], None)
    except (InvalidTag, ValueError, binascii.Error):
        raise HomeDamaged(
            "an encrypted value cannot be read with the keys of this home",
            fix="restore the keys folder and the database from one back-up of this home",
        ) from None
