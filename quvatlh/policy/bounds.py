"""What a policy may take, and what its process may. Named numbers with their units and their reasons."""

from __future__ import annotations

from typing import Final

CPU_S: Final = 0.010
"""Of its own processor time, for compiling and for each call. The kernel counts in ticks: it ends after 13 to 15 ms."""
WALL_S: Final = 0.5
"""By the clock, since the process was last heard: for what no processor time is spent on, and for a starved machine."""
MEMORY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of one policy's Lua state, beyond what an empty one has."""
MARK_S: Final = 60.0
"""Two overruns within it mark a policy, and the mark lasts as long."""
MARKS_MAX: Final = 10_000

KEPT_BYTES_MAX: Final = 256 * 1024
"""What a policy may leave behind in its state from call to call; with more it starts over in a new one."""
STATES_MAX: Final = 128
"""Compiled policies. With the line above: at most 32 MiB are held by policies that nobody asks."""

SLICE_S: Final = 0.020
"""A batch gives way to other questions after it; so does the loop of who asks."""
FLUSH_S: Final = 0.001
"""Answers wait no longer than that, and the question that runs, for the next one to be made."""
JOBS_MAX: Final = 256
"""In one frame: packing them stays below a millisecond or two."""
FRAME_JOBS_BYTES: Final = 256 * 1024
"""A frame is closed once it has so much; one job more may make it larger."""
JOB_BYTES_MAX: Final = 4 * 1024 * 1024
"""A task with all its fields, a payload of 1 MiB written out as text among them."""
FRAME_BYTES_MAX: Final = FRAME_JOBS_BYTES + 2 * JOB_BYTES_MAX
"""The longest frame: what is full, one job, and the state."""

ERROR_BYTES_MAX: Final = 1000
"""Of what a policy says when it fails: its text is replicated with the verdict."""
DEPTH_MAX: Final = 32
"""Tables in tables of an announcement."""

TOLD_MAX: Final = 2 * JOBS_MAX
"""Frames that wait to be read here: a process that tells more than it was asked is ended."""
START_S: Final = 10.0
"""A process that has not said that it is there by then is given up."""
IDLE_S: Final = 60.0
"""Without a question for so long, the process ends."""
REST_S: Final = 1.0
"""Between two attempts to start a process that cannot be started."""
DEATHS_IDLE_MAX: Final = 3
"""So often in a row may the process end outside any policy, before its questions are answered as failed."""

assert FLUSH_S < CPU_S < SLICE_S < WALL_S < MARK_S
assert STATES_MAX * KEPT_BYTES_MAX <= MEMORY_BYTES_MAX
