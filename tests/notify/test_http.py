"""The sender, against a server on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import ResolveResult

from quvatlh.notify.http import BODY_BYTES_KEPT, HttpSender
from quvatlh.notify.signing import of_works, signed
from quvatlh.ports import Incoming, Outgoing, SendFault
from tests.fakes.clock import FakeClock

LOOPBACK = ("127.0.0.0/8", "::1")
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def sender(*keys: bytes, allowed: tuple[str, ...] = LOOPBACK) -> AsyncIterator[HttpSender]:
    made = HttpSender(FakeClock(), keys, allowed)
    try:
        yield made
    finally:
        await made.close()


async def ask(handler: Handler, **request: Any) -> Incoming:
    async with serving(handler) as url, sender() as one:
        return await one.send(Outgoing(request.pop("method", "GET"), url + request.pop("path", "/"), **request))


async def test_a_request_goes_out_as_it_is_and_its_answer_comes_back() -> None:
    seen: dict[str, Any] = {}

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.update(method=request.method, path=request.path_qs, body=await request.read(), headers=request.headers)
        return web.Response(status=201, body=b"made", headers={"X-Some": "thing"})

    found = await ask(handler, method="PUT", path="/a?b=c", body=b"{}", headers={"X-Own": "1"})
    assert (seen["method"], seen["path"], seen["body"]) == ("PUT", "/a?b=c", b"{}")
    assert (seen["headers"]["X-Own"], seen["headers"]["User-Agent"]) == ("1", "quvatlh")
    assert (found.status, found.body, found.body_bytes, found.headers["x-some"]) == (201, b"made", 4, "thing")


async def test_an_answer_is_wanted_as_it_is_unless_the_request_says_otherwise() -> None:
    seen: list[dict[str, list[str]]] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append({name: request.headers.getall(name) for name in ("Accept-Encoding", "User-Agent")})
        return web.Response()

    await ask(handler)
    await ask(handler, headers={"accept-encoding": "gzip", "user-agent": "me"})
    assert seen == [
        {"Accept-Encoding": ["identity"], "User-Agent": ["quvatlh"]},
        {"Accept-Encoding": ["gzip"], "User-Agent": ["me"]},
    ]


async def test_a_delivery_is_signed_and_what_is_none_is_not() -> None:
    seen: list[Any] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append({name for name in request.headers if name.startswith("webhook-")})
        return web.Response()

    async with serving(handler) as url, sender(b"a key that is long enough") as one:
        await one.send(Outgoing("POST", url, body=b"x", delivery="notify-1"))
        await one.send(Outgoing("POST", url, body=b"x"))
    assert seen == [{"webhook-id", "webhook-timestamp", "webhook-signature"}, set()]


async def test_a_signature_says_who_wants_it_said_and_its_headers_are_its_own() -> None:
    key = b"a key that is long enough"
    seen: list[Any] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(({name.lower(): text for name, text in request.headers.items()}, len(request.headers)))
        return web.Response()

    own = {"Webhook-Id": "notify-7", "WEBHOOK-SIGNATURE": "v1,AAAA"}
    async with serving(handler) as url, sender(key) as one:
        await one.send(Outgoing("POST", url, body=b"x", delivery="notify-1", is_end=True))
        await one.send(Outgoing("POST", url, body=b"x", delivery="mine", headers=own))
    (end, count), (work, same) = seen
    assert (work["webhook-id"], same) == ("mine", count)
    for headers, keys in ((end, (key,)), (work, of_works((key,)))):
        wanted = signed(headers["webhook-id"], int(headers["webhook-timestamp"]), b"x", keys)
        assert headers["webhook-signature"] == wanted["webhook-signature"]


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    asked: list[str] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        raise web.HTTPFound("/elsewhere")

    assert (await ask(handler)).status == 302
    assert asked == ["/"]


async def test_a_long_answer_is_cut_off_and_not_waited_for() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x" * 16_384)
        return response

    found = await ask(handler)
    assert (len(found.body), found.body_bytes) == (BODY_BYTES_KEPT, BODY_BYTES_KEPT)


async def test_an_answer_that_is_larger_than_it_may_be_is_a_fault_and_not_read_to_its_end() -> None:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"12345")

    assert (await ask(handler, answer_bytes_max=5)).body == b"12345"
    with pytest.raises(SendFault, match="status 200, with more than 4 bytes") as caught:
        await ask(handler, answer_bytes_max=4)
    assert caught.value.code == "too_large"


async def test_a_name_counts_by_what_it_resolves_to_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its addresses only those are tried that may be; and one that changes its mind gains nothing."""
    told = [["127.0.0.2", "169.254.169.254", "127.0.0.1"], ["127.0.0.2"]]

    async def resolve(_self: object, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        found = told.pop(0)
        return [ResolveResult(hostname=host, host=each, port=port, family=family, proto=0, flags=0) for each in found]

    async def handler(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        return web.Response(text=request.transport.get_extra_info("sockname")[0])

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", resolve)
    async with serving(handler) as url, sender(allowed=("127.0.0.1",)) as one:
        named = url.replace("127.0.0.1", "changing.example")
        assert (await one.send(Outgoing("GET", named))).body == b"127.0.0.1"
        with pytest.raises(SendFault, match=r"changing\.example \(127\.0\.0\.2\) is no public address") as caught:
            await one.send(Outgoing("GET", named))
    assert caught.value.code == "forbidden"


async def test_no_answer_in_time_is_a_timeout() -> None:
    async def handler(_request: web.BaseRequest) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    with pytest.raises(SendFault, match=r"no answer within 0\.1 s") as caught:
        await ask(handler, timeout_s=0.1)
    assert caught.value.code == "timeout"


async def test_no_cookie_is_kept() -> None:
    seen: list[bool] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append("Cookie" in request.headers)
        return web.Response(headers={"Set-Cookie": "a=b"})

    async with serving(handler) as url, sender() as one:
        for _ in range(2):
            await one.send(Outgoing("GET", url))
    assert seen == [False, False]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://localhost:1/", "https://localhost:1/"])
async def test_where_nobody_listens_it_is_unreachable(url: str) -> None:
    async with sender() as one:
        with pytest.raises(SendFault) as caught:
            await one.send(Outgoing("GET", url))
    assert caught.value.code == "unreachable"
    assert caught.value.text


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "it hung up before it had answered"),
        (b"HTTP/1.1 200 OK\r\nX-Key: a", "it hung up before it had answered"),
        (b"what?\r\n\r\n", "what it answered is no HTTP"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "what it answered is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nX y: z\r\n\r\n", "what it answered is no proper HTTP: invalid header token"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "no proper HTTP: too many headers"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", "its answer has a line of more than 16384 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid character in chunk size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "its answer broke off before its end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "its answer broke off before its end"),
    ],
)  # fmt: skip
async def test_who_hangs_up_or_talks_nonsense_is_unreachable_and_no_secret_of_the_url_is_told(
    said: bytes, words: str
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, sender() as one:
        with pytest.raises(SendFault) as caught:
            await one.send(Outgoing("GET", f"http://me:mine@127.0.0.1:{port}/path?key=hidden"))
    assert caught.value.code == "unreachable"
    assert words in caught.value.text
    for each in ("400", "mine", "hidden", "127.0.0.1"):
        assert each not in caught.value.text


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433", "0x7f000001", "0", "[::ffff:127.0.0.1]", "017700000001",
     "127\u30020\u30020\u30021", "\uff11\uff12\uff17\uff0e0\uff0e0\uff0e1", "\u2460\u2461\u2466.0.0.1"],
)  # fmt: skip
async def test_the_machine_itself_is_not_asked_however_it_is_called(host: str) -> None:
    connected = 0

    async def count(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        writer.close()

    server = await asyncio.start_server(count, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, sender(allowed=()) as one:
        with pytest.raises((SendFault, ValueError)) as caught:
            await one.send(Outgoing("GET", f"http://{host}:{port}/"))
    assert not isinstance(caught.value, SendFault) or caught.value.code in {"forbidden", "unreachable"}
    if host in {"127.0.0.1", "localhost", "[::1]"}:
        assert "notify.allow" in str(caught.value)
    assert connected == 0


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://example.org/",
        "http://",
        "example.org",
        "http:///path",
        "file:///etc/passwd",
        "http://me:mine@a\u2100b/",
    ],
)
async def test_what_is_no_url_is_no_request(url: str) -> None:
    async with sender() as one:
        with pytest.raises(ValueError, match="must be http or https") as caught:
            await one.send(Outgoing("GET", url))
    assert "mine" not in str(caught.value)


@pytest.mark.parametrize("method", ["GET / HTTP/1.1\r\nX: y", "get", "", "A" * 17])
async def test_what_is_no_method_is_no_request(method: str) -> None:
    async with sender() as one:
        with pytest.raises(ValueError, match="method"):
            await one.send(Outgoing(method, "http://127.0.0.1/"))
