"""URLs as they stand in a line or an error: without user and password, and of the query that there is one."""

from __future__ import annotations

import re
from typing import Final

_USER: Final = re.compile(r"^([^:/?#]*:)?//[^/?#]*@")
_REST: Final = re.compile(r"([?#]).+", re.DOTALL)


def without_secrets(url: str) -> str:
    return _REST.sub(r"\1…", _USER.sub(r"\1//", url, count=1), count=1)
