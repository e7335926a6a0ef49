"""Every number the replicated log is run with: its unit, its reason, and how it must stand to the others.

All of them are here; a module below takes a `Settings` and has no numbers of its own. `check` holds the relations, so
that a set of numbers that cannot keep the promises never starts.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024

ENTRY_HEAD_BYTES = 64
"""Room for what stands around the only item of an entry."""

FORMAT_VERSION = 1
"""Of the data directory. A directory of a newer one is refused."""

WIRE_VERSION = 1
"""Of the peer protocol, named in the first frame."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Too small and too large are both wrong; each field says how."""

    heartbeat_s: float = 0.05
    """Between appends of an idle master. Smaller costs CPU on idle nodes; larger makes elections fire by accident."""
    election_min_s: float = 0.3
    """Shortest silence after which a node asks for votes. Also the length of a voter's promise, so of the lease."""
    election_max_s: float = 0.6
    """Longest. Too near to the shortest, and candidates split votes."""
    lease_fraction: float = 0.9
    """The master trusts a promise for this part of election_min_s: what clocks may differ in speed."""
    slice_s: float = 0.01
    """Applying a backlog holds the loop at most this long at a time."""
    in_flight_entries: int = 2
    """Own entries not yet committed. More does not speed up, it splits the groups."""
    entry_bytes_max: int = 8 * MIB
    """Greatest entry. pysyncobj sends larger ones in parts, wrongly."""
    group_bytes_max: int = 512 * 1024
    """Proposals are grouped into one entry up to this. An entry is applied without a pause: at 10 µs for
    each 100 bytes of tasks, a megabyte holds the loop for 100 ms. Smaller means more syncs, which a slow disk shows."""
    queue_bytes_max: int = 64 * MIB
    """Proposals that wait for a place in an entry; beyond it they are refused as unavailable."""
    append_bytes_max: int = 1 * MIB
    """Entries in one message to a follower that catches up (one entry may be larger)."""
    append_window_bytes: int = 4 * MIB
    """Unanswered bytes to one follower. Larger holds up heartbeats behind bulk on slow links."""
    append_entries_max: int = 500
    """Entries in one message, however small: each costs some microseconds of both loops, so that a megabyte of small ones
    held up the master for tens of milliseconds. Fewer make catching up slower."""
    append_window_messages: int = 8
    """Unanswered messages to one follower: with append_entries_max it bounds what is packed in one turn of the loop."""
    segment_bytes: int = 16 * MIB
    """Size at which a log file is followed by the next. Only whole files are dropped."""
    keep_bytes: int = 64 * MIB
    """Log kept before the last checkpoint for followers that are a little behind; less means more snapshots."""
    cache_bytes: int = 4 * MIB
    """Newest entries held in memory; older ones are read from the file."""
    checkpoint_bytes: int = 32 * MIB
    """Log growth after which the state is checkpointed. More means a longer replay after a power failure."""
    checkpoint_s: float = 60.0
    """Checkpoint at least this often while there is anything new."""
    snapshot_chunk_bytes: int = 256 * 1024
    """Read, sent and written at a time while a snapshot is streamed."""
    snapshot_stall_s: float = 10.0
    """A transfer without progress for so long is given up."""
    pin_s: float = 120.0
    """How long the log that a follower needs after its snapshot is kept for it."""
    handshake_s: float = 5.0
    """A connection that has not proved the secret by then is closed."""
    handshakes_max: int = 64
    """Unproved connections at once; more are closed at the door."""
    hello_bytes_max: int = 64 * 1024
    """Greatest frame before the secret is proved (it carries the membership)."""
    frame_bytes_max: int = 16 * MIB
    """Greatest frame after. Above entry_bytes_max, so that one entry always fits."""
    link_buffer_bytes_max: int = 32 * MIB
    """Unsent bytes on a link; a peer that lets more pile up is disconnected."""
    ping_s: float = 0.5
    """Between signs of life on a link that carries nothing else."""
    silence_s: float = 2.0
    """A link that brought nothing for so long is dead."""
    redial_min_s: float = 0.05
    """Between attempts to connect, doubling up to redial_max_s."""
    redial_max_s: float = 0.5
    dial_s: float = 2.0
    """One attempt takes at most this."""
    tick_max_s: float = 0.1
    """The engine is looked at at least this often, whatever its deadlines say."""
    rank_step_s: float = 0.01
    """When the master's connection is reset, survivors ask for votes this much apart, by rank of id."""
    look_after_s: tuple[float, ...] = (0.0, 0.005, 0.02)
    """Pauses between looks at whether anything still listens where the master's connection was reset."""
    learner_lag_entries: int = 100
    """A learner no further behind than this becomes a voter."""
    transfer_s: float = 1.0
    """A hand-over that has not happened by then is over, and so is the term of the master that tried it."""
    voters_max: int = 7

    @property
    def item_bytes_max(self) -> int:
        """Greatest item: alone in an entry it fits, with what is around it."""
        return self.entry_bytes_max - ENTRY_HEAD_BYTES

    def check(self) -> list[str]:
        """The relations that do not hold, in words; empty when all do."""
        wrong = []

        def must(holds: bool, text: str) -> None:  # noqa: FBT001 - it is what is asked
            if not holds:
                wrong.append(text)

        must(self.election_min_s > 3 * self.heartbeat_s, "election_min_s must be more than three heartbeat_s")
        must(self.election_max_s > self.election_min_s, "election_max_s must be above election_min_s")
        must(0 < self.lease_fraction < 1, "lease_fraction must lie between 0 and 1")
        must(
            self.lease_fraction * self.election_min_s > 2 * self.heartbeat_s,
            "the lease, lease_fraction of election_min_s, must outlast two heartbeat_s",
        )
        must(self.entry_bytes_max >= self.group_bytes_max, "group_bytes_max must not exceed entry_bytes_max")
        must(self.frame_bytes_max > self.entry_bytes_max, "frame_bytes_max must be above entry_bytes_max")
        must(self.frame_bytes_max > self.append_bytes_max, "frame_bytes_max must be above append_bytes_max")
        must(
            self.link_buffer_bytes_max > self.frame_bytes_max + self.append_window_bytes,
            "link_buffer_bytes_max must be above frame_bytes_max and append_window_bytes together",
        )
        must(self.append_window_bytes >= self.append_bytes_max, "append_bytes_max must not exceed append_window_bytes")
        must(self.append_entries_max >= 1, "append_entries_max must be at least 1")
        must(
            self.append_window_messages > self.in_flight_entries,
            "append_window_messages must be above in_flight_entries: an entry may be a message",
        )
        must(self.redial_max_s >= self.redial_min_s, "redial_min_s must not exceed redial_max_s")
        must(self.silence_s > 2 * self.ping_s, "silence_s must be more than two ping_s")
        must(1 <= self.voters_max <= 7, "voters_max must lie between 1 and 7")
        must(self.in_flight_entries >= 1, "in_flight_entries must be at least 1")
        return wrong
