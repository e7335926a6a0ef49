"""lib/dom.js by itself: whatever was drawn before, the page is brought to what is described, with the least that moves."""

from __future__ import annotations

from tests.web.seen import Seen

TRIAL = """async (rounds) => {
    const { draw, h } = await import(new URL('lib/dom.js', document.querySelector('script').src));
    let seed = 1;
    const chance = (n) => (seed = (seed * 48271) % 2147483647) % n;
    const some = () => {
        const left = [...'abcdefghijkl'], found = [];
        while (left.length && chance(12)) found.push(left.splice(chance(left.length), 1)[0]);
        return found;
    };
    const root = document.createElement('div');
    document.body.append(root);
    let before = [];
    for (let round = 0; round < rounds; round += 1) {
        const keys = some();
        const stood = new Map([...root.children].map((each) => [each.dataset.key, each]));
        const watch = new MutationObserver(() => {});
        watch.observe(root, { childList: true });
        draw(root, keys.map((key) => h('i', { key, 'data-key': key, title: String(round) }, `${key}${round}`)));
        const drawn = [...root.children];
        const said = drawn.map((each) => each.textContent).join();
        if (said !== keys.map((key) => `${key}${round}`).join()) return `${before} to ${keys} is ${said}`;
        if (drawn.some((each) => stood.has(each.dataset.key) && stood.get(each.dataset.key) !== each)) return `${keys}: made anew`;
        const put = watch.takeRecords().flatMap((one) => [...one.addedNodes]);
        const moved = new Set(put.filter((each) => stood.get(each.dataset.key) === each));
        const places = keys.filter((key) => stood.has(key)).map((key) => before.indexOf(key));
        if (moved.size > places.length - longest(places)) return `${before} to ${keys} moved ${moved.size}`;
        before = keys;
    }
    root.remove();
    return '';

    function longest(places) {
        const best = places.map(() => 1);
        places.forEach((place, i) => { for (let j = 0; j < i; j += 1) if (places[j] < place) best[i] = Math.max(best[i], best[j] + 1); });
        return Math.max(0, ...best);
    }
}"""


async def test_lists_are_brought_to_any_other_with_the_least_that_moves(seen: Seen) -> None:
    assert await seen.page.evaluate(TRIAL, 2000) == ""


async def test_nothing_that_loads_or_runs_is_made(seen: Seen) -> None:
    tried = """async () => {
        const { draw, h } = await import(new URL('lib/dom.js', document.querySelector('script').src));
        const refused = (what) => { try { draw(document.createElement('div'), what); return false; } catch { return true; } };
        return [...['script', 'iframe', 'object', 'embed', 'style', 'link', 'base', 'meta'].map((tag) => h(tag, {})),
            h('a', { href: 'javascript:alert(1)' }), h('a', { href: '//elsewhere' }), h('a', { href: 'data:text/html,x' }),
            h('b', { onclick: 'alert(1)' })].map(refused);
    }"""
    assert set(await seen.page.evaluate(tried)) == {True}


async def test_a_url_is_shown_without_its_secrets(seen: Seen) -> None:
    shown = """async (urls) => {
        const { work } = await import(new URL('lib/format.js', document.querySelector('script').src));
        return urls.map((url) => work({ http: { method: 'PUT', url } }));
    }"""
    urls = ["https://me:mine@example.org/a?key=b@c", "http://x/a@b", "http://x?a/b", "http://x#a"]
    assert await seen.page.evaluate(shown, urls) == [
        "PUT https://example.org/a?…",
        "PUT http://x/a@b",
        "PUT http://x?…",
        "PUT http://x#…",
    ]
