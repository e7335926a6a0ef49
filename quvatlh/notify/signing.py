"""Signatures of deliveries, as the Standard Webhooks specification has them (https://www.standardwebhooks.com).

    webhook-id: the delivery, the same in each attempt
    webhook-timestamp: seconds since 1970
    webhook-signature: v1,BASE64(HMAC-SHA256(key, "ID.TIMESTAMP.BODY")), one for each key, with a space between

A receiver computes one of them with his key, compares in constant time, refuses timestamps that are minutes off, and does
a delivery whose id he has seen only once. DESIGN.md has it in a few lines of Python.

What a receiver believes by it is that the cluster tells of an end. So what a producer has had signed (`http: {sign: true}`, any
body to any place) is signed by other keys, made of these: `python -m quvatlh.notify.signing < FILE` prints them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import sys
from typing import Final

PREFIX: Final = "whsec_"
"""Before a key that is written in base64, as the specification's libraries make them."""
KEY_BYTES_MIN: Final = 16
_OF_WORKS: Final = b"quvatlh: what a producer had signed"


def keys_of(text: str) -> tuple[bytes, ...]:
    """Of a secret file: one key a line, the first is the newest. ValueError says what is wrong, and never the key."""
    keys = tuple(_key(line.strip()) for line in text.splitlines() if line.strip())
    if not keys:
        raise ValueError("holds no key")
    return keys


def _key(line: str) -> bytes:
    key = line.encode()
    if line.startswith(PREFIX):
        try:
            key = base64.b64decode(line.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"holds a line that begins with {PREFIX} and is not base64 after it") from None
    if len(key) < KEY_BYTES_MIN:
        raise ValueError(f"holds a key of less than {KEY_BYTES_MIN} bytes, which can be guessed")
    return key


def of_works(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """What the requests of producers are signed with: who has one of these can sign no delivery."""
    return tuple(hmac.digest(key, _OF_WORKS, hashlib.sha256) for key in keys)


def signed(delivery: str, second: int, body: bytes, keys: tuple[bytes, ...]) -> dict[str, str]:
    """The headers of a delivery; without a key it has its id and time and no signature."""
    headers = {"webhook-id": delivery, "webhook-timestamp": str(second)}
    content = f"{delivery}.{second}.".encode() + body
    signatures = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys]
    return headers | ({"webhook-signature": " ".join(f"v1,{each}" for each in signatures)} if signatures else {})


def main() -> None:
    """From the secret file on standard input: what receivers of signed works are given, the newest first."""
    for key in of_works(keys_of(sys.stdin.read())):
        sys.stdout.write(f"{PREFIX}{base64.b64encode(key).decode()}\n")


if __name__ == "__main__":
    main()
