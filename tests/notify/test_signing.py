"""Signatures, judged by the example that receivers are given."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from quvatlh.notify.signing import keys_of, of_works, signed

TEXT = Path(__file__).parents[2] / "quvatlh/notify/DESIGN.md"
KEY = b"a key of thirty-two bytes, no less"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OLD = "the old one, of sixteen bytes or more"


def is_ours(*given: Any) -> bool:
    """As DESIGN.md has it."""
    found = re.search(r"```python\n(.*?)```", TEXT.read_text(), re.DOTALL)
    assert found is not None
    scope: dict[str, Any] = {}
    exec(found[1], scope)
    return bool(scope["is_ours"](*given))


@pytest.mark.parametrize("secret", [SECRET, "any text will do, if it is long enough"])
def test_the_example_for_receivers_knows_a_delivery_and_nothing_else(secret: str) -> None:
    now = int(time.time())
    headers = signed("notify-7", now, b'{"a":1}', keys_of(secret))
    assert is_ours(headers, b'{"a":1}', secret)
    assert not is_ours(headers, b'{"a":2}', secret)
    assert not is_ours(headers | {"webhook-id": "notify-8"}, b'{"a":1}', secret)
    assert not is_ours(headers | {"webhook-timestamp": str(now - 1)}, b'{"a":1}', secret)
    assert not is_ours(headers, b'{"a":1}', "another secret, and long enough too")
    assert not is_ours(signed("notify-7", now - 400, b"", keys_of(secret)), b"", secret)


def test_while_a_key_is_changed_both_are_used_the_newest_first() -> None:
    keys = keys_of(f"{SECRET}\n\n{OLD}\n")
    assert keys == (KEY, OLD.encode())
    headers = signed("d", int(time.time()), b"x", keys)
    assert len(headers["webhook-signature"].split()) == 2
    assert is_ours(headers, b"x", SECRET)
    assert is_ours(headers, b"x", OLD)


def test_without_a_key_a_delivery_has_its_id_and_no_signature() -> None:
    assert signed("d", 7, b"x", ()) == {"webhook-id": "d", "webhook-timestamp": "7"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no key"),
        ("short", "less than 16 bytes"),
        ("whsec_!!", "not base64"),
        ("whsec_c2hvcnQ=", "less than 16"),
    ],
)
def test_what_is_no_key_is_told_without_it(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        keys_of(text)
    assert not text or text not in str(caught.value)


def test_what_a_producer_had_signed_is_no_delivery_and_no_delivery_is_that() -> None:
    now, keys = int(time.time()), keys_of(SECRET)
    forged = signed("notify-7", now, b'{"type":"task.succeeded"}', of_works(keys))
    assert not is_ours(forged, b'{"type":"task.succeeded"}', SECRET)
    program = [sys.executable, "-m", "quvatlh.notify.signing"]
    printed = subprocess.run(program, input=f"{SECRET}\n{OLD}\n", capture_output=True, text=True, check=True)
    newest, older = printed.stdout.split()
    assert is_ours(forged, b'{"type":"task.succeeded"}', newest)
    assert is_ours(signed("d", now, b"x", of_works(keys_of(OLD))), b"x", older)
    assert not is_ours(signed("notify-7", now, b"x", keys), b"x", newest)
