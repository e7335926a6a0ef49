from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from quvatlh.api.spool import Spool

STEPS = st.lists(st.one_of(st.binary(min_size=1, max_size=40), st.just(None)), max_size=40)


@given(STEPS)
async def test_what_goes_in_comes_out_in_order_and_memory_stays_bounded(steps: list[bytes | None]) -> None:
    spool = Spool(memory_bytes_max=50, file_bytes_max=10_000)
    came = b""
    for step in steps:
        if step is not None:
            await spool.put(step)
        elif came != b"".join(part for part in steps[: steps.index(step)] if part):
            came += await asyncio.wait_for(spool.get(), 5) if _has(spool) else b""
        assert spool.memory_bytes <= 50
    spool.end()
    while data := await spool.get():
        came += data
    assert came == b"".join(step for step in steps if step)
    spool.close()


def _has(spool: Spool) -> bool:
    return bool(spool.memory_bytes) or spool._write_at > spool._read_at


async def test_a_reader_waits_for_what_is_put_and_for_the_end() -> None:
    spool = Spool()
    reading = asyncio.create_task(spool.get())
    await asyncio.sleep(0)
    await spool.put(b"x")
    assert await reading == b"x"
    reading = asyncio.create_task(spool.get())
    await asyncio.sleep(0)
    spool.end()
    assert await reading == b""


async def test_beyond_its_file_the_writer_waits_for_the_reader() -> None:
    spool = Spool(memory_bytes_max=1, file_bytes_max=10)
    await spool.put(b"x" * 20)
    writing = asyncio.create_task(spool.put(b"y"))
    await asyncio.sleep(0)
    assert not writing.done()
    assert await spool.get() == b"x" * 20
    await writing
    assert await spool.get() == b"y"
    spool.close()
