from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from quvatlh.api import pages
from quvatlh.api.server import Options
from quvatlh.api.sessions import LINK_S, LINKS_MAX, SESSION_S, SESSIONS_MAX, Sessions
from quvatlh.service.summary import Summary
from quvatlh.service.tokens import hash_of
from quvatlh.web import Files
from tests.api.client import WORK, Answer, Client, Node, serving
from tests.fakes.pool import TOKEN
from tests.support.certificates import certificate

DIGEST = hash_of(TOKEN)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


def cookie_in(answer: Answer) -> str:
    return answer.headers["Set-Cookie"].partition(";")[0]


async def followed(client: Client, link: str) -> Answer:
    return await client.get(link, token=None)


async def logged_in(node: Node) -> dict[str, str]:
    """Headers as the node's own page sends them."""
    answer = await followed(node.client, node.server.link(TOKEN))
    return {"Cookie": cookie_in(answer), "Origin": node.client.base, "Sec-Fetch-Site": "same-origin"}


async def test_a_link_begins_a_session_once(node: Node) -> None:
    link = node.server.link(TOKEN)
    answer = await followed(node.client, link)
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    sent = answer.headers["Set-Cookie"]
    assert re.fullmatch(r"quvatlh-\d+=[\w-]{32}; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict", sent)
    told = await node.client.get("/v1/session", token=None, headers={"Cookie": cookie_in(answer)})
    assert (told.json["name"], told.json["role"]) == ("root", "admin")
    again = await followed(node.client, link)
    assert (again.headers["Location"], "Set-Cookie" in again.headers) == ("/#/login?link=used", False)


async def test_a_session_may_do_what_its_token_may_from_its_own_page_alone(node: Node) -> None:
    own = await logged_in(node)
    assert (await node.client.add({"work": WORK}, token=None, headers=own)).status == 201
    elsewhere = [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
    ]
    for other in elsewhere:
        for method, path in (("POST", "/v1/events"), ("GET", "/v1/tasks"), ("GET", "/v1/work/connect")):
            answer = await node.client.ask(method, path, token=None, headers=own | other)
            assert (answer.status, answer.code) == (403, "forbidden"), (method, other)
    without = {name: value for name, value in own.items() if name != "Origin"}
    assert (await node.client.add({"work": WORK}, token=None, headers=without)).code == "forbidden"
    assert (await node.client.get("/v1/tasks", token=None, headers=without)).status == 200
    assert len(node.pool.records) == 1


async def test_a_cookie_that_stands_twice_is_none(node: Node) -> None:
    own = await logged_in(node)
    twice = {"Cookie": f"{own['Cookie']}; {own['Cookie'].partition('=')[0]}=other"}
    assert (await node.client.get("/v1/tasks", token=None, headers=twice)).status == 401


async def test_a_session_ends_with_its_token_and_when_it_is_left(node: Node) -> None:
    own, other = await logged_in(node), await logged_in(node)
    left = await node.client.ask("DELETE", "/v1/session", token=None, headers=own)
    assert (left.status, "Max-Age=0;" in left.headers["Set-Cookie"]) == (200, True)
    assert (await node.client.get("/v1/tasks", token=None, headers=own)).status == 401
    assert (await node.client.get("/v1/tasks", token=None, headers=other)).status == 200
    node.pool.watching.principals.clear()
    assert (await node.client.get("/v1/tasks", token=None, headers=other)).status == 401


async def test_a_token_begins_a_session_and_makes_links(node: Node) -> None:
    begun = await node.client.ask("POST", "/v1/session")
    assert (begun.status, begun.json["name"]) == (201, "root")
    own = {"Cookie": cookie_in(begun), "Origin": node.client.base}
    for more in ({"token": TOKEN}, {"token": None, "headers": own}):
        made = await node.client.ask("POST", "/v1/session/link", **more)
        assert made.status == 201
        assert (await followed(node.client, made.json["url"])).headers["Location"] == "/"


async def test_over_tls_the_cookie_never_travels_open(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=cert)
    async with serving(Options("127.0.0.1:0", cert, key), trust=trust) as node:
        sent = (await followed(node.client, node.server.link(TOKEN))).headers["Set-Cookie"]
        assert sent.startswith("__Host-quvatlh-")
        assert sent.endswith("; Secure")


def test_links_and_sessions_grow_old_and_are_bounded() -> None:
    clock = Clock()
    sessions = Sessions(now=clock)
    link = sessions.link(DIGEST).partition("=")[2]
    clock.now_s += LINK_S + 1
    assert sessions.redeem(link) is None
    links = [sessions.link(DIGEST).partition("=")[2] for _ in range(LINKS_MAX + 1)]
    assert [sessions.redeem(one) for one in (links[0], links[1], links[-1])] == [None, DIGEST, DIGEST]
    secrets = [sessions.begin(DIGEST) for _ in range(SESSIONS_MAX + 1)]
    assert [sessions.find(one) is not None for one in (secrets[0], secrets[1], secrets[-1])] == [False, True, True]
    clock.now_s += SESSION_S + 1
    assert sessions.find(secrets[-1]) is None


def test_no_token_can_log_out_the_browsers_of_others() -> None:
    sessions, other = Sessions(), hash_of("of a viewer, who has a loop")
    secret, link = sessions.begin(DIGEST), sessions.link(DIGEST).partition("=")[2]
    for _ in range(2 * SESSIONS_MAX):
        sessions.begin(other)
        sessions.link(other)
    assert sessions.find(secret) is not None
    assert sessions.redeem(link) == DIGEST


def test_sessions_outlive_a_restart_and_no_secret_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "sessions"
    before = Sessions(str(path))
    secret = before.begin(DIGEST)
    assert (path.stat().st_mode & 0o777, secret in path.read_text()) == (0o600, False)
    found = Sessions(str(path)).find(secret)
    assert found is not None
    assert found.digest == DIGEST
    path.write_text("[[1")
    assert Sessions(str(path)).find(secret) is None


async def test_the_page_may_be_framed_by_nobody_and_runs_nothing_but_its_own_files(node: Node) -> None:
    page = await node.client.get("/", token=None)
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    for part in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert part in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert b"{base}" not in page.body
    assert (await node.client.get("/", token=None, headers={"If-None-Match": page.headers["Etag"]})).status == 304


async def test_files_may_be_kept_for_ever_and_come_packed(node: Node) -> None:
    page = await node.client.get("/", token=None)
    found = re.findall(r'(?:href|src)="(/web/[0-9a-f]{18}/[\w./-]+)"', page.body.decode())
    assert len(found) >= 3
    for path in found:
        answer = await node.client.get(path, token=None, headers={"Accept-Encoding": "gzip"})
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert (answer.status, answer.headers["Content-Encoding"]) == (200, "gzip")
    for wrong in ("index.html", "__init__.py", "DESIGN.md", "%2e%2e/daemon.py"):
        assert (await node.client.get(found[0].rpartition("/")[0] + "/" + wrong, token=None)).status == 404


async def test_the_last_hour_is_told_in_columns(node: Node) -> None:
    told = (await node.client.get("/v1/history")).json
    assert (told["step"], told["from"]) == ("5s", "2023-11-14T22:13:20.000Z")
    assert (told["counts"]["added"], told["waits"]["wait_p50_ms"]) == ([1, 2], [None, 3])


async def test_a_stream_may_sum_up(node: Node) -> None:
    node.pool.watching.told += [
        Summary(7, {"task.added": 2}, {"task"}, {"q"}, {"b", "a"}),
        Summary(9, {}, {"policy"}, set(), None),
    ]
    reader, writer = await node.dial()
    writer.write(node.head("GET", "/v1/stream?every=100ms"))
    raw = await reader.readuntil(b'"whole":false}\n\n')
    assert (
        b'id: 7\nevent: changes\ndata: {"kinds":{"task.added":2},"topics":["task"],"queues":["q"],"ids":["a","b"]'
        in raw
    )
    raw = await reader.readuntil(b'"whole":false}\n\n')
    assert b"id: 9\nevent: changes\n" in raw
    assert b'"ids":null' in raw
    writer.close()
    reader, writer = await node.dial()
    writer.write(node.head("GET", "/v1/stream?every=100ms", "Last-Event-ID: 7"))
    assert b"id: 7" not in await reader.readuntil(b'"whole":false}\n\n')


async def test_a_summing_stream_that_is_behind_what_is_kept_is_refused(node: Node) -> None:
    node.pool.watching.forgotten = 100
    answer = await node.client.get("/v1/stream?every=1s&since=5")
    assert (answer.status, answer.code) == (410, "gone")


async def test_the_dashboard_is_that_of_the_start_whatever_is_installed_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An upgrade beside a running node takes its files away, if only for a moment."""
    for kept in (pages.assets, pages._page, pages._packed):
        kept.cache_clear()
    async with serving() as node:
        monkeypatch.setattr(pages, "files", lambda: Files("", {}))
        page = await node.client.get("/", token=None)
        module = page.body.decode().partition('modulepreload" href="')[2].partition('"')[0]
        assert (page.status, (await node.client.get(module, token=None)).status) == (200, 200)
