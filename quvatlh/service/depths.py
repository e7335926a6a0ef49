"""How deep values of strangers may be nested. What is nested nearly as deep as recursion bears is written in one place and
breaks off in another, whose stack is higher; so it is measured where it comes in, without recursion."""

from __future__ import annotations

from typing import Any


def is_deeper(value: Any, levels: int) -> bool:
    """Than so many lists and maps within each other."""
    inner = [value]
    for _ in range(levels + 1):
        inner = [each for each in inner if isinstance(each, dict | list | tuple)]
        if not inner:
            return False
        inner = [part for each in inner for part in (each.values() if isinstance(each, dict) else each)]
    return True
