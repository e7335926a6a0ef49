"""What a task returned, in the forms that it may have."""

from __future__ import annotations

from pathlib import Path

import msgspec

from quvatlh.core.limits import PACKED_RESULT
from tests.api.judged import judged


async def test_a_result_in_msgpack_is_readable_and_raw_to_who_accepts_that(tmp_path: Path) -> None:
    data = msgspec.msgpack.encode({1: b"\0\xff"})
    async with judged(tmp_path, slots=1) as door:
        await door.token("eve", "admin")
        await door.stand.working()
        await door.fill("mail.a")
        await door.stand.until_state("mail.a", "running")
        (name,) = door.stand.running()
        door.stand.process.answer(name, result=PACKED_RESULT + data)
        await door.stand.until_state("mail.a", "succeeded")
        shown = await door.as_("eve", "GET", "/v1/tasks/mail.a/result")
        assert (shown.headers["Content-Type"], shown.json) == ("application/json", {"1": "AP8="})
        raw = await door.as_("eve", "GET", "/v1/tasks/mail.a/result", headers={"Accept": "application/msgpack"})
        assert (raw.headers["Content-Type"], raw.body) == ("application/msgpack", data)
        task = await door.get("eve", "/v1/tasks/mail.a")
        assert (task["result"], task["result_msgpack"]) == ({"1": "AP8="}, "gQHEAgD/")
