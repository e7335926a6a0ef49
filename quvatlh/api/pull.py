"""The handlers of pull workers: workers in any language, that ask for work and say what became of it.

Bytes travel as with an ADD: `payload` or `payload_base64` to the worker, `result` or `result_base64` back. An answer that
cannot be sent any more gives its actions back; once the first byte of it is out, their leases decide.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from aiohttp import web

from quvatlh.api import shapes
from quvatlh.api.checks import (
    Fault,
    Faults,
    Field,
    Kind,
    anything,
    boolean,
    choice,
    duration,
    integer,
    list_of,
    named,
    object_of,
    shown,
    text,
)
from quvatlh.api.exchange import Exchange
from quvatlh.api.formats import duration_text, encode
from quvatlh.core import limits
from quvatlh.service.pool import Json
from quvatlh.service.pullasks import Report, Verb
from quvatlh.service.pullpool import CLAIM_MAX, LEASE_MS_DEFAULT, RESULT_BYTES_MAX, WAIT_MS_DEFAULT, Pulled, Wanted

OUTPUT_CHARS_MAX: Final = 64 * 1024
"""Of what an action wrote, as its worker tells it; the last 4 KiB are kept."""
SLICE: Final = 50
"""Actions made ready between two turns of the loop: a few milliseconds."""

_CLAIM: Final = object_of(
    {
        "worker": Field(named()),
        "queues": Field(list_of(named(), items_min=1)),
        "max": Field(integer(1, CLAIM_MAX), "most"),
        "wait": Field(duration(0, limits.LEASE_MS_MAX), "wait_ms"),
        "lease": Field(duration(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX), "lease_ms"),
        "order": Field(choice("fair", "greedy")),
        "tags": Field(list_of(named())),
    },
    "worker",
)


def _claim(given: Any) -> Wanted:
    checked: dict[str, Any] = _CLAIM.check(given)
    lease_ms = checked.get("lease_ms", LEASE_MS_DEFAULT)
    wait_ms = checked.get("wait_ms", min(WAIT_MS_DEFAULT, lease_ms * 2 // 3))
    if wait_ms >= lease_ms:
        lease = duration_text(lease_ms)
        raise Faults(
            Fault(".wait", f"must be shorter than lease, {lease}: a lease counts from when the claim was sent")
        )
    tags = checked.get("tags")
    return Wanted(
        checked["worker"],
        tuple(checked.get("queues", ("*",))),
        checked.get("most", 1),
        wait_ms,
        lease_ms,
        greedy=checked.get("order") == "greedy",
        tags=None if tags is None else tuple(tags),
    )


CLAIM: Final = Kind(_claim, _CLAIM.schema)

_ACTION: Final = {"action": Field(named()), "token": Field(integer(1, limits.INTEGER_MAX))}
_BASE64: Final = Kind(lambda given: given, {"type": "string", "contentEncoding": "base64"})


def _result_base64(given: Any) -> bytes:
    try:
        raw = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ValueError("is not base64") from None
    return limits.RAW_RESULT + _sized(raw)


def _sized(raw: bytes) -> bytes:
    if len(raw) > RESULT_BYTES_MAX:
        words = f"must be at most {RESULT_BYTES_MAX} bytes, not {len(raw)}: put it where others find it, and say where"
        raise Faults(Fault("", words, "too_large"))
    return raw


_ERROR: Final = object_of({"code": Field(named()), "text": Field(text())})


def _output(given: Any) -> str:
    """Its end is kept. What people print may hold anything, and so may this."""
    found: str = text(OUTPUT_CHARS_MAX).check(
        given.replace("\0", "\N{REPLACEMENT CHARACTER}") if type(given) is str else given
    )
    return found[-limits.OUTPUT_TAIL_BYTES_MAX :]


def _error(given: Any) -> dict[str, Any]:
    if isinstance(given, dict):
        return cast("dict[str, Any]", _ERROR.check(given))
    return {"text": text().check(given)}


_OUTPUT: Final = {"output": Field(Kind(_output, text(OUTPUT_CHARS_MAX).schema))}

_RENEW: Final = object_of(_ACTION, "action", "token")
_PROGRESS: Final = object_of(
    {**_ACTION, "percent": Field(integer(0, 100)), "text": Field(text(limits.ERROR_CHARS_MAX))}, "action", "token"
)
_FINISH: Final = object_of(
    {
        **_ACTION,
        **_OUTPUT,
        "result": Field(Kind(lambda given: _sized(encode(given)), anything().schema)),
        "result_base64": Field(Kind(_result_base64, _BASE64.schema)),
    },
    "action",
    "token",
)
_FAIL: Final = object_of(
    {
        **_ACTION,
        **_OUTPUT,
        "error": Field(Kind(_error, {"anyOf": [text().schema, _ERROR.schema]})),
        "permanent": Field(boolean()),
        "retry_after": Field(duration(), "retry_after_ms"),
    },
    "action",
    "token",
)


def _renewed(given: dict[str, Any]) -> Report:
    return Report(given["action"], given["token"])


def _progressed(given: dict[str, Any]) -> Report:
    if "percent" not in given and "text" not in given:
        raise ValueError("must name at least one of percent, text")
    return Report(given["action"], given["token"], given.get("percent"), given.get("text"))


def _finished(given: dict[str, Any]) -> Report:
    if "result" in given and "result_base64" in given:
        raise Faults(Fault(".result_base64", "must not be given together with result"))
    return Report(
        given["action"],
        given["token"],
        result=given.get("result", given.get("result_base64")),
        output=given.get("output"),
    )


def _failed(given: dict[str, Any]) -> Report:
    error = given.get("error", {})
    return Report(
        given["action"],
        given["token"],
        text=error.get("text"),
        error=error.get("code"),
        permanent=given.get("permanent", False),
        retry_after_ms=given.get("retry_after_ms"),
        output=given.get("output"),
    )


def _one_or_many(kind: Kind, made: Callable[[dict[str, Any]], Report]) -> Kind:
    one = Kind(lambda given: made(kind.check(given)), kind.schema)
    many = list_of(one, CLAIM_MAX, items_min=1)

    def check(given: Any) -> list[Report]:
        if type(given) is list:
            if len(given) > CLAIM_MAX:
                raise Faults(Fault("", f"must be at most {CLAIM_MAX} reports, not {len(given)}", "too_large"))
            return cast("list[Report]", many.check(given))
        if type(given) is not dict:
            raise ValueError(f"must be an object or a list of them, not {shown(given)}")
        return [one.check(given)]

    return Kind(check, {"anyOf": [kind.schema, many.schema]})


REPORTS: Final[Mapping[Verb, Kind]] = {
    "renew": _one_or_many(_RENEW, _renewed),
    "progress": _one_or_many(_PROGRESS, _progressed),
    "finish": _one_or_many(_FINISH, _finished),
    "fail": _one_or_many(_FAIL, _failed),
}


async def post_claim(exchange: Exchange) -> web.StreamResponse:
    wanted, key = await exchange.json()
    pool = exchange.pool
    pulled = await pool.claim(exchange.call(key), wanted)
    try:
        answer = exchange.answer({"actions": await _shown(pulled)})
        transport = exchange.request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("who claimed is gone")
    except (ConnectionError, asyncio.CancelledError):
        await pool.give_back(pulled)
        raise
    return answer


async def _shown(pulled: Pulled) -> Sequence[Json]:
    found: list[Json] = []
    for action in pulled.actions:
        found.append(_action(action))
        if len(found) % SLICE == 0:
            await asyncio.sleep(0)
    return found


def _action(action: Json) -> Json:
    """As it is owned, its task, and the payload beside that."""
    told = {name: action[name] for name in ("action", "token", "lease_ms")}
    task = shapes.task(action["task"]) | {"work": action["task"]["spec"]["work"]}
    return told | {"task": task, "payload": None} | shapes.payload(action)


async def post_report(exchange: Exchange) -> web.StreamResponse:
    """The verb is the last part of its route's path."""
    reports, _ = await exchange.json()
    verb = cast("Verb", exchange.route.path.rpartition("/")[2])
    codes = await exchange.pool.report(exchange.call(), verb, reports)
    results = [
        {"action": report.action, "code": code} if code else {"action": report.action, "ok": True}
        for report, code in zip(reports, codes, strict=True)
    ]
    return exchange.answer({"results": results})
