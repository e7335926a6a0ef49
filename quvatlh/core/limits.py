"""Every bound of the task table: a named number with its unit, why it is there, and how it stands to the others.

What arrives from outside is held to these at the door and by the types of model.py; the tables are kept to them by the
chores. Nothing here is configuration: two nodes with different numbers would make different states of one log.
"""

from __future__ import annotations

from typing import Final

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

INTEGER_MAX: Final = 2**53 - 1
"""Of tokens, times and counts: beyond it JavaScript and Lua would round."""
TIME_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: later times have no RFC 3339 form."""

ID_CHARS_MAX: Final = 128
NAME_CHARS_MAX: Final = 256
TEXT_CHARS_MAX: Final = 64 * 1024
"""Of Lua sources: what a person writes is far below, and each is kept once a task."""
URL_CHARS_MAX: Final = 2048
LIST_ITEMS_MAX: Final = 1000
"""Of tags, queues, arguments of a list and other short lists in one object."""
PAYLOAD_BYTES_MAX: Final = 1024 * 1024

WORK_BYTES_MAX: Final = 128 * 1024
"""All strings of a work together. It travels in the log; what is larger belongs into the payload."""
WORK_NODES_MAX: Final = 4096
"""Scalars, lists and mappings of a work, aliases counted wherever they are used."""
WORK_DEPTH_MAX: Final = 8
"""A valid work has three levels; the rest is for the faults to be found with their paths."""
WORK_STRING_BYTES_MAX: Final = 128 * 1024 - 1
"""Linux takes no longer argument or environment entry (MAX_ARG_STRLEN, with the zero at its end)."""
WORK_COMMANDS_MAX: Final = 100

ADD_TASKS_MAX: Final = 5000
"""One event; the longest stall of the loop that one request may cost (100 ms) is made of it."""
BATCH_MAX: Final = 1000
"""Tasks of one verb by ids, and rows of one chore: a slice of apply stays near 10 ms."""

SPEC_INLINE_BYTES_MAX: Final = 512
"""A longer spec stands in its own row, so that award and finish do not write it again and again."""
ERROR_CHARS_MAX: Final = 1024
"""Of an error's text in the task row; the action row has the same text."""
OUTPUT_TAIL_BYTES_MAX: Final = 4096
OUTPUT_HEAD_BYTES: Final = 40
"""Of them, for what says how long both outputs were: an array, two counts and two lengths."""
OUTPUT_SHORT_BYTES_MAX: Final = 2000
"""Of one output that needs no file: two of them have room in the tail, and so has one beside any other."""
RESULT_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
LARGE_RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of what a call returns, the record of which says only where it is; as `runner/inside/functions.py` has it."""
RAW_RESULT: Final = b"\0"
"""Before a result that is bytes: no JSON begins so."""
FILED_RESULT: Final = b"\1"
"""Before what tells of a result that is a file of its worker. Executors write it; no value that a task returns begins so."""
PACKED_RESULT: Final = b"\2"
"""Before a result in msgpack: what has no form in JSON, or what a task wants so."""
PULL_SESSION: Final = "pull."
"""Begins the ids of sessions without an executor, and of no other."""
JSON_BYTES_MAX: Final = 64 * 1024
"""Of an announcement, facts of a worker, progress text."""

LEASE_MS_DEFAULT: Final = 2 * SECOND_MS
LEASE_MS_MIN: Final = SECOND_MS
LEASE_MS_MAX: Final = HOUR_MS

ATTEMPTS_DEFAULT: Final = 25
ATTEMPTS_MAX: Final = 10_000
BACKOFF_MS_MAX_DEFAULT: Final = HOUR_MS
"""Of waits that are reckoned; those of a list are as somebody gave them."""
DEATHS_MAX: Final = 3
"""Workers that died with a task before it is taken for the cause."""

SERVICE_REST_FIRST_MS: Final = SECOND_MS
SERVICE_REST_MAX_MS: Final = MINUTE_MS
SERVICE_STEADY_MS: Final = MINUTE_MS
"""An instance that ran so long starts the backoff over."""

LOST_MS: Final = DAY_MS
"""A worker that has been lost for so long, and owns nothing, leaves the table."""

KNOWN_MS: Final = DAY_MS
"""Chosen ids after their task is gone, request ids and Idempotency-Keys."""
KNOWN_MAX: Final = 1_000_000
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
ANSWER_ROW_BYTES: Final = 100
"""What the row of a remembered request counts beside its answer."""

KEEP_MS_DEFAULT: Final = DAY_MS
KEEP_MAX_DEFAULT: Final = 100_000
KEEP_FAILED_MS_DEFAULT: Final = 30 * DAY_MS
KEEP_FAILED_MAX_DEFAULT: Final = 1_000_000

LEDGER_ROWS_MAX: Final = 10_000
SLOT_ON_TIME_MS: Final = MINUTE_MS
"""Of a slot that is later than that, `catchup` says what becomes of it."""
CATCH_UP_MAX: Final = 1000
POSITION_MAX: Final = 10_000
TOTAL_COUNT_MAX: Final = 10_000
"""A total that no counter knows is counted so far and no further."""
ACTIONS_SHOWN_MAX: Final = 10
ACTIONS_KEPT_MAX: Final = 100
"""Ended actions of a task that are remembered. A service that ends each minute would else grow every replica for ever; and
one answer holds all of them, with up to 4 KiB of output each."""

DIGEST_EVERY_ENTRIES: Final = 10_000
DIGEST_WINDOW_ROWS: Final = 4000
"""Rows of each large table that one digest covers, the next ones each time: about 10 ms."""

NO_LIMIT: Final = INTEGER_MAX
"""Stands for `no limit` where limits are compared and sorted."""

assert LEASE_MS_MIN <= LEASE_MS_DEFAULT <= LEASE_MS_MAX
assert SERVICE_REST_FIRST_MS < SERVICE_REST_MAX_MS <= SERVICE_STEADY_MS
assert BATCH_MAX <= ADD_TASKS_MAX <= TOTAL_COUNT_MAX
assert ATTEMPTS_DEFAULT <= ATTEMPTS_MAX
assert WORK_STRING_BYTES_MAX <= WORK_BYTES_MAX
assert WORK_COMMANDS_MAX <= WORK_NODES_MAX
assert 2 * OUTPUT_SHORT_BYTES_MAX + OUTPUT_HEAD_BYTES <= OUTPUT_TAIL_BYTES_MAX
assert ACTIONS_SHOWN_MAX <= ACTIONS_KEPT_MAX
assert TIME_MS_MAX <= INTEGER_MAX < 2**63
assert KEEP_MS_DEFAULT <= KEEP_FAILED_MS_DEFAULT
