"""The dashboard: files as they are, for a browser. What serves them is in api.pages; nothing here knows a node."""

from __future__ import annotations

import hashlib
import os
from typing import Final, NamedTuple

_HERE: Final = os.path.dirname(__file__)
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Files(NamedTuple):
    digest: str
    """Of all of them: a new version of one is a new version of the whole."""
    by_path: dict[str, bytes]
    """`app.js`, `views/tasks.js`"""


def files() -> Files:
    """All that a browser may ask for, read anew."""
    found: dict[str, bytes] = {}
    for directory, _, names in os.walk(_HERE):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.splitext(name)[1] in TYPES:
                with open(path, "rb") as file:
                    found[os.path.relpath(path, _HERE)] = file.read()
    digest = hashlib.blake2b(digest_size=9)
    for path in sorted(found):
        digest.update(path.encode() + b"\0" + hashlib.blake2b(found[path]).digest())
    return Files(digest.hexdigest(), found)
