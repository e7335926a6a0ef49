from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from quvatlh.api.guard import Guard
from quvatlh.api.place import ListenRefused
from quvatlh.api.routes import ROUTES
from quvatlh.api.server import Options, Server
from quvatlh.service.pool import Rejected
from tests.api.client import WORK, Client, Node, serving
from tests.fakes.pool import TOKEN, FakePool
from tests.support.certificates import certificate

HOSTS: list[tuple[str, str, bool]] = [
    # Host, the address reached, own
    ("127.0.0.1:7420", "127.0.0.1", True),
    ("localhost", "127.0.0.1", True),
    ("LOCALHOST.:7420", "127.0.0.1", True),
    ("[::1]:7420", "::1", True),
    ("[0:0:0:0:0:0:0:1]", "::1", True),
    ("127.9.9.9", "127.0.0.1", True),
    ("10.0.0.5:7420", "10.0.0.5", True),
    ("10.0.0.5:7420", "::ffff:10.0.0.5", True),
    ("[fe80::1]", "fe80::1%eth0", True),
    ("node1.example", "10.0.0.5", True),
    ("Node1.Example:443", "10.0.0.5", True),
    ("localhost", "10.0.0.5", False),
    ("127.0.0.1", "10.0.0.5", False),
    ("10.0.0.6", "10.0.0.5", False),
    ("evil.example", "127.0.0.1", False),
    ("node1.example.evil", "127.0.0.1", False),
    ("evil@127.0.0.1", "127.0.0.1", False),
    ("127.0.0.1:7420:7420", "127.0.0.1", False),
    ("0.0.0.0", "127.0.0.1", False),
    ("", "127.0.0.1", False),
]

ORIGINS: list[tuple[str, str | None, bool]] = [
    ("POST", None, True),
    ("POST", "http://127.0.0.1:7420", True),
    ("POST", "https://127.0.0.1:7420", True),
    ("POST", "http://127.0.0.1", False),
    ("POST", "http://127.0.0.1:7421", False),
    ("POST", "http://evil.example", False),
    ("POST", "null", False),
    ("POST", "file://127.0.0.1:7420", False),
    ("DELETE", "http://evil.example", False),
    ("OPTIONS", "http://evil.example", False),
    ("GET", "http://evil.example", True),
    ("HEAD", "null", True),
]


def headers(**given: str | None) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict({name: value for name, value in given.items() if value is not None}))


@pytest.mark.parametrize(("host", "local", "own"), HOSTS)
def test_only_own_names_and_addresses_are_answered_to(host: str, local: str, own: bool) -> None:
    guard = Guard(FakePool(), ["node1.example", "0.0.0.0"])
    if own:
        guard.check_place("GET", headers(Host=host), local)
    else:
        with pytest.raises(Rejected) as caught:
            guard.check_place("GET", headers(Host=host), local)
        assert caught.value.code == "forbidden"


@pytest.mark.parametrize(("method", "origin", "taken"), ORIGINS)
def test_pages_of_other_places_change_nothing(method: str, origin: str | None, taken: bool) -> None:
    guard = Guard(FakePool(), [])
    given = headers(Host="127.0.0.1:7420", Origin=origin)
    if taken:
        guard.check_place(method, given, "127.0.0.1")
    else:
        with pytest.raises(Rejected, match="Origin"):
            guard.check_place(method, given, "127.0.0.1")


async def test_host_and_origin_are_checked_before_anything_is_done(node: Node) -> None:
    body = {"event": "ADD", "tasks": [{"work": WORK}]}
    for bad in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        answer = await node.client.ask("POST", "/v1/events", body, headers=bad)
        assert (answer.status, answer.code) == (403, "forbidden")
    assert (await node.client.get("/healthz", headers={"Host": "evil.example"}, token=None)).status == 403
    assert node.pool.calls == []


@pytest.mark.parametrize("host", [b"", b"Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n"])
async def test_a_request_has_exactly_one_host(node: Node, host: bytes) -> None:
    answer = await node.say(b"GET /healthz HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n")
    assert answer.split()[1] == b"400"
    assert b"application/problem+json" in answer


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN} x",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {'x' * 5000}",
    ],
)
async def test_without_a_good_token_nothing_is_told(client: Client, authorization: str | None) -> None:
    for route in ROUTES:
        if not route.open:
            given = {} if authorization is None else {"Authorization": authorization}
            place = route.path.replace("{", "").replace("}", "")
            answer = await client.ask(route.method, place, token=None, headers=given)
            assert (answer.status, answer.code) == (401, "unauthorized")
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="quvatlh"'
    assert (await client.get("/nowhere", token=None)).status == 401


def test_what_needs_no_token_is_a_short_list() -> None:
    files = ["/web/{digest}/{file}", "/web/{digest}/{folder}/{file}"]
    assert sorted(route.path for route in ROUTES if route.open) == ["/", "/healthz", "/login", "/readyz", *files]


async def test_with_two_files_it_speaks_tls_and_nothing_else(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=cert)
    async with serving(Options("127.0.0.1:0", cert, key), trust=trust) as node:
        assert (await node.client.add({"work": WORK})).status == 201
        with pytest.raises(aiohttp.ClientConnectionError):
            await Client(node.client.session, f"http://{node.address}").get("/healthz")


@pytest.mark.parametrize("broken", ["cert", "key", "missing", "other"])
async def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path, broken: str) -> None:
    cert, key = certificate(tmp_path)
    if broken in {"cert", "key"}:
        Path(cert if broken == "cert" else key).write_text("nothing")
    elif broken == "missing":
        Path(cert).unlink()
    else:
        (tmp_path / "other").mkdir()
        key = certificate(tmp_path / "other")[1]
    with pytest.raises(ListenRefused, match=r"http\.tls: cannot use .*cert\.pem with .*key\.pem"):
        await Server(FakePool(), Options("127.0.0.1:0", cert, key)).start()


async def test_an_address_in_use_is_named(node: Node) -> None:
    words = rf"http\.listen: cannot listen at {node.address}: another process listens there; end it, or give another"
    with pytest.raises(ListenRefused, match=words):
        await Server(FakePool(), Options(node.address)).start()


@pytest.mark.parametrize("given", ["Basic Zm9vOmJhcg==", "Bearer", "Bearer a b", TOKEN])
def test_a_header_without_a_bearer_token_is_told_what_it_must_be(given: str) -> None:
    with pytest.raises(Rejected, match="it must be Bearer TOKEN"):
        Guard(FakePool(), ()).principal("GET", headers(Authorization=given))
