"""A daemon to be killed: opens the executor of a directory, starts what it is told on standard input, says what it hears.

python -m tests.runner.daemon_side DIRECTORY ISOLATION LEASE_S, then a shell's text a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from quvatlh.core.work import check
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted
from tests.runner.perch import real


class Mouth:
    def started(self, event: ActionStarted) -> None:
        say("started", event.action_id)

    def progressed(self, event: ActionProgress) -> None:
        say("progressed", event.action_id)

    def finished(self, event: ActionFinished) -> None:
        say("finished", event.action_id)

    def gone(self, why: str) -> None:
        say("gone", why)


def say(*words: object) -> None:
    print(json.dumps(words), flush=True)


async def main() -> None:
    directory, isolation, lease_s = sys.argv[1:]
    executor = real(Path(directory), isolation=isolation)  # type: ignore[arg-type]
    executor.listen(Mouth())
    life = await executor.open()
    say("open", life.session, life.isolated)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    fence = life.fence
    while line := await lines.readline():
        fence += 1
        executor.renew(await executor.ask())
        work = check({"shell": line.decode()})
        executor.start(ActionSpec(f"a{fence}", "t", 1, fence, "w1", work, lease_s=float(lease_s)))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
