"""One policy as a Lua state: compiled, called, its answer as plain data. The only module that knows lupa.

Runs in the process of the policies. What may take long or much goes through `Clockwork`, which ends the process; nothing
here survives a policy that overruns, and nothing has to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from lupa.lua54 import LuaError, LuaRuntime

from quvatlh.policy import faults
from quvatlh.policy.bounds import DEPTH_MAX, ERROR_BYTES_MAX, KEPT_BYTES_MAX, MEMORY_BYTES_MAX, STATES_MAX
from quvatlh.policy.faults import Fault


def _compiled_prelude() -> bytes:
    """As Lua's own code: read in a third of the time that compiling takes, which each new policy would wait for."""
    with open(os.path.join(os.path.dirname(__file__), "prelude.lua"), "rb") as file:
        dump = LuaRuntime(encoding=None).eval(
            "function(text) return string.dump(assert(load(text, '=prelude')), true) end"
        )
        code: bytes = dump(file.read())
    return code


PRELUDE: Final = _compiled_prelude()

Data = Mapping[str, Any]
OUT_OF_MEMORY: Final = f"needed more than {MEMORY_BYTES_MAX >> 20} MiB"


class Answer(NamedTuple):
    """`told.Answer`, as it is written here."""

    word: str
    score: float = 0.0
    text: str = ""
    line: int = 0
    column: int = 0


class Meter(NamedTuple):
    """Starts and ends the account of processor time; what overdraws it does not come back."""

    begin: Callable[[], None]
    end: Callable[[], None]


class Policy:
    """A source in a state of its own."""

    def __init__(self, source: str) -> None:
        runtime = LuaRuntime(
            encoding="utf-8",
            unpack_returned_tuples=True,
            register_eval=False,
            register_builtins=False,
            attribute_filter=_no_attribute,
            max_memory=MEMORY_BYTES_MAX,
        )
        self._runtime = runtime
        prelude = runtime.globals().load(PRELUDE, "=prelude", "b")
        self._compiles, self._settle, self._judge, self._announce = prelude(ERROR_BYTES_MAX, DEPTH_MAX)
        self._source = source
        self.fault: Fault | None = None
        """Why there is no function to call."""

    def settle(self, meter: Meter) -> None:
        """Compile, and run what has to run to get the function."""
        meter.begin()
        wrong = [self._compiles(self._source, as_expression) for as_expression in (True, False)]
        if None in wrong:
            ok, message = self._told(self._settle(self._source, wrong[0] is None))
            meter.end()
            self.fault = None if ok else _of_running(message)
            return
        meter.end()
        # The form that came further is the one that was meant. Prefixes are compiled, not run: no account is needed.
        tries = [
            faults.of_source(self._source, wrong[n], lambda text, n=n: self._compiles(text, n == 0))  # type: ignore[misc]
            for n in (0, 1)
        ]
        self.fault = max(reversed(tries), key=lambda fault: fault[:2])

    def judge(self, state: Data, task: Data) -> Answer:
        word, score, text = self._judge(*self._tables(state, task))
        if word == "failed" and text.endswith(faults.MEMORY):
            return Answer("overran", text=OUT_OF_MEMORY)
        return Answer(word, float(score), faults.for_people(text))

    def announce(self, state: Data, task: Data, action: Data, bytes_max: int) -> Answer:
        made, why = self._told(self._announce(*self._tables(state, task, action), bytes_max))
        if why.endswith(faults.MEMORY):
            return Answer("overran", text=OUT_OF_MEMORY)
        return Answer("made", text=made) if made else Answer("failed", text=faults.for_people(why))

    def is_lean(self) -> bool:
        """Whether so little is left behind that the state may be kept."""
        if self._runtime.get_memory_used() > KEPT_BYTES_MAX:
            self._runtime.gccollect()
        return bool(self._runtime.get_memory_used() <= KEPT_BYTES_MAX)

    def _tables(self, *data: Data) -> list[Any]:
        return [self._runtime.table_from(each, recursive=True) for each in data]

    @staticmethod
    def _told(answer: Any) -> tuple[Any, str]:
        return answer if isinstance(answer, tuple) else (answer, "")


class Policies:
    """Compiled ones by their source, the least lately asked forgotten first."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._kept: dict[str, Policy] = {}

    def check(self, source: str) -> Answer:
        try:
            policy = self._get(source)
        except LuaError as error:
            return _of_error(error)
        if policy.is_lean():
            self._keep(source, policy)
        fault = policy.fault
        if fault is None:
            return Answer("fit")
        word = "overran" if fault.message == OUT_OF_MEMORY else "unfit"
        return Answer(word, text=fault.message, line=fault.line, column=fault.column)

    def judge(self, source: str, state: Data, task: Data) -> Answer:
        return self._metered(source, lambda policy: policy.judge(state, task))

    def announce(self, source: str, state: Data, task: Data, action: Data, bytes_max: int) -> Answer:
        return self._metered(source, lambda policy: policy.announce(state, task, action, bytes_max))

    def _metered(self, source: str, call: Callable[[Policy], Answer]) -> Answer:
        try:
            policy = self._get(source)
            # Making the tables is part of it, and so is clearing up: whoever leaves much pays for that too.
            self._meter.begin()
            answer = call(policy) if policy.fault is None else _unfit(policy.fault)
            if policy.is_lean():
                self._keep(source, policy)
            del policy
            return answer
        except OverflowError:
            return Answer("failed", text="the task holds a number beyond 64 bits")
        except LuaError as error:
            return _of_error(error)
        finally:
            self._meter.end()

    def _get(self, source: str) -> Policy:
        """Taken out of the cache: it is put back only when it has ended well."""
        policy = self._kept.pop(source, None)
        if policy is None:
            policy = Policy(source)
            policy.settle(self._meter)
        return policy

    def _keep(self, source: str, policy: Policy) -> None:
        if len(self._kept) >= STATES_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[source] = policy


def _unfit(fault: Fault) -> Answer:
    if fault.message == OUT_OF_MEMORY:
        return Answer("overran", text=OUT_OF_MEMORY)
    return Answer("failed", text=f"line {fault.line}, column {fault.column}: {fault.message}")


def _of_running(message: str) -> Fault:
    fault = faults.of_running(message)
    return fault._replace(message=OUT_OF_MEMORY) if fault.message == faults.MEMORY else fault


def _of_error(error: LuaError) -> Answer:
    """Of what was raised outside of the policy's own call: mostly memory that does not suffice for its tables."""
    if isinstance(error, MemoryError) or faults.MEMORY in str(error):
        return Answer("overran", text=OUT_OF_MEMORY)
    return Answer("failed", text=str(error)[:ERROR_BYTES_MAX])


def _no_attribute(_object: object, name: object, _is_setting: bool) -> object:  # noqa: FBT001 - as lupa calls it
    """No object of Python is ever within reach; were one, it would have nothing."""
    raise AttributeError(name)
