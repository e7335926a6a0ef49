"""How a call ended, in the words of ports.RunError: by its own answer, or by the end of its process."""

from __future__ import annotations

import signal
from typing import Final

from quvatlh.ports import RunError
from quvatlh.runner.pools import lines
from quvatlh.runner.pools.call import CallRun
from quvatlh.runner.pools.child import Child

NAME_CHARS_MAX: Final = 256
AFTER_S_MAX: Final = 365 * 86_400.0
_HINTS: Final = {"KILL": ": out of memory, or somebody killed it", "SEGV": ": memory that was not its own"}


def outcome(said: lines.Said, run: CallRun) -> tuple[RunError | None, bytes | None]:
    """Error and result of an answer."""
    if said.type == "result":
        return _result(said, run)
    if said.stopped and run.wish is not None:
        return run.wish, None
    if said.unfit:
        return RunError("unrunnable", said.text or ""), None
    if said.trace:
        run.wrote("stderr", said.trace.encode("utf-8", "replace"))
    name = (said.class_ or "")[:NAME_CHARS_MAX]
    short = name.removeprefix("builtins.")
    text = f"{short}: {said.text}" if said.text and short else said.text or short or "it failed, and did not say why"
    if said.stopped:
        text = f"{text} (and nobody had asked it to)"
    after = said.after if said.after is None else min(max(0.0, said.after), AFTER_S_MAX)
    return RunError("exception", text, name, said.permanent, after), None


def _result(said: lines.Said, run: CallRun) -> tuple[RunError | None, bytes | None]:
    try:
        found = lines.value(said)
        return None, None if found is None else run.kept_result(found)
    except lines.TooLarge as error:
        return RunError("unrunnable", str(error)), None
    except lines.Garbage as error:
        return RunError("protocol", str(error)), None
    except OSError as error:
        return RunError("resources", f"its result could not be kept: {error.strerror}"), None


def begun(child: Child, given: list[CallRun], status: int | None) -> list[CallRun]:
    """Of what a child that is no more had in its hands."""
    if child.has_left:
        return [run for run in given if run.outcome is not None]
    found = given if child.is_shared else given[:1]
    by_itself = child.is_leaving and not child.killed and status is not None
    return [] if by_itself and not any(run.outcome or run.wish for run in found) else found


def how(status: int) -> tuple[int | None, str | None]:
    """Exit status and signal."""
    if status >= 0:
        return status, None
    try:
        return None, signal.Signals(-status).name.removeprefix("SIG")
    except ValueError:
        return None, f"RT{-status}"


def crash(status: int | None) -> RunError:
    return RunError("crash", f"its process {_ended(status)}, before the task did")


def lost(child: Child) -> RunError:
    return RunError("crash", f"its process {child.lost} before the task's end, and was ended")


def beside(status: int | None, *, killed: bool) -> RunError:
    """Of calls that shared a process: nobody knows whose fault it was, so each goes on by itself."""
    why = "was ended for another task" if killed else _ended(status)
    return RunError("stopped", f"its process {why}; it runs again, alone")


def before_ready(child: Child, status: int | None) -> str:
    return child.refusal or f"its process {_ended(status)}, before it was ready"


def babble(said: lines.Said) -> str:
    return said.text or "" if said.type == "garbage" else f"answered what it was not asked: {said.id[:80]!r}"


def _ended(status: int | None) -> str:
    if status is None:
        return "ended with its server"
    code, name = how(status)
    return f"ended by signal {name}{_HINTS.get(name or '', '')}" if name else f"ended with exit status {code}"
