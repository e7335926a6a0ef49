"""Where in which cloud this machine stands: as the environment says (QUVATLH_CLOUD_REGION=eu-1 is `region`), or an address that
the cloud serves to its machines. Of what that tells, only region, zone, instance_type and instance_id are taken: the rest is
no one else's business, keys and start scripts among it, and facts are replicated.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import aiohttp

PREFIX: Final = "QUVATLH_CLOUD_"
ASK_S: Final = 2.0
"""In all. Off a cloud nobody answers such an address, and a start should not wait for that."""
ANSWER_BYTES_MAX: Final = 64 * 1024
DEPTH_MAX: Final = 4
VALUE_CHARS_MAX: Final = 200
FACTS_MAX: Final = 32
_HEADERS: Final = {"Metadata-Flavor": "Google", "Metadata": "true", "Accept": "application/json"}
"""Two clouds answer only who shows that it means to ask; the others do not mind."""
_TOKEN_PATH: Final = "/latest/api/token"  # noqa: S105 - a path
_TOKEN_TTL: Final = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
_NAMES: Final = {
    "region": "region",
    "zone": "zone",
    "availabilityzone": "zone",
    "instancetype": "instance_type",
    "machinetype": "instance_type",
    "vmsize": "instance_type",
    "instanceid": "instance_id",
    "vmid": "instance_id",
    "dropletid": "instance_id",
}
"""As clouds spell them, in small letters and without signs."""
_NAME = re.compile(r"[a-z0-9_]{1,64}")


class Silent(Exception):
    """The address gave nothing that can be used; the text says why."""


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for key in sorted(environ):
        name = key.removeprefix(PREFIX).lower()
        if key.startswith(PREFIX) and _NAME.fullmatch(name) and _usable(environ[key]):
            found[name] = environ[key]
    return dict(list(found.items())[:FACTS_MAX])


async def from_address(url: str) -> dict[str, str]:
    """What it answers, a JSON object, searched for the names that clouds use. Silent if it does not."""
    timeout = aiohttp.ClientTimeout(total=ASK_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout, headers=_HEADERS, trust_env=False) as session:
            body = await _answer(session, url)
    except TimeoutError as error:
        raise Silent(f"no answer within {ASK_S:g} s") from error
    except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
        raise Silent(str(error) or type(error).__name__) from error
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Silent("the answer is no JSON") from error
    return _chosen(tree)


async def _answer(session: aiohttp.ClientSession, url: str) -> bytes:
    headers: dict[str, str] = {}
    for _ in range(2):
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            if response.status == 401 and not headers:  # a token has to be fetched first
                headers = {"X-aws-ec2-metadata-token": await _token(session, url)}
                continue
            if response.status != 200:
                raise Silent(f"answered {response.status}")
            return await _bounded(response)
    raise Silent("answered 401")


async def _token(session: aiohttp.ClientSession, url: str) -> str:
    parts = urlsplit(url)
    address = urlunsplit((parts.scheme, parts.netloc, _TOKEN_PATH, "", ""))
    async with session.put(address, headers=_TOKEN_TTL, allow_redirects=False) as response:
        token = (await _bounded(response)).decode("ascii", errors="replace").strip()
        if response.status != 200 or not token.isprintable():
            raise Silent("answered 401, and gave no token")
        return token


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for part in response.content.iter_any():
        body += part
        if len(body) > ANSWER_BYTES_MAX:
            raise Silent(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return body


def _chosen(tree: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in _leaves(tree, 0):
        name = _NAMES.get(re.sub(r"[^a-z]", "", key.lower()))
        text = str(value).rsplit("/", 1)[-1]  # projects/17/zones/europe-west1-b
        if name is not None and name not in found and _usable(text):
            found[name] = text
    return found


def _leaves(tree: Any, depth: int) -> Iterator[tuple[str, object]]:
    """The outer ones first."""
    if not isinstance(tree, dict) or depth > DEPTH_MAX:
        return
    for key, value in tree.items():
        if isinstance(value, str | int) and not isinstance(value, bool):
            yield key, value
    for value in tree.values():
        yield from _leaves(value, depth + 1)


def _usable(value: str) -> bool:
    """Facts become tags."""
    return 0 < len(value) <= VALUE_CHARS_MAX and value.isprintable()
