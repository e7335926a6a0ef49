from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.client import Client, Node, serving


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with serving() as node:
        yield node


@pytest.fixture
def client(node: Node) -> Client:
    return node.client
