"""Changes of the membership, as values: one node at a time, and only what keeps every majority overlapping the last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from quvatlh.config import address
from quvatlh.ports import Member, Membership, Refused

if TYPE_CHECKING:
    from quvatlh.raft.settings import Settings


def _by_id(members: tuple[Member, ...]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda m: m.id))


def with_learner(now: Membership, member: Member, settings: Settings) -> Membership:
    """Admit as a learner; of a member that is in already, bring name and addresses up to date."""
    taken = next((m for m in (*now.voters, *now.learners) if m.id != member.id and m.peer == member.peer), None)
    if taken is not None:
        raise Refused(f"the address {member.peer} belongs to node {taken.id} ({taken.name}); remove that one first")
    if now.is_voter(member.id):
        return replace(now, voters=_by_id((*(m for m in now.voters if m.id != member.id), member)))
    if len(now.voters) >= settings.voters_max:
        raise Refused(f"a cluster has at most {settings.voters_max} voters; run it as a worker instead")
    return replace(now, learners=_by_id((*(m for m in now.learners if m.id != member.id), member)))


def renewed(now: Membership, own: Member, listed: Collection[str]) -> Member | None:
    """A voter as it should be known now that it was started as `own`; None where that is how it is known.

    Its peers may reach it by another address than it listens at: one that stands in its own peer list stays. So does what
    the new one cannot replace: an address that nobody can dial, a name that another node has.
    """
    known = next((m for m in now.voters if m.id == own.id), None)
    if known is None:
        return None
    others = {m.name for m in (*now.voters, *now.learners) if m.id != own.id}
    wanted = Member(
        own.id,
        known.name if own.name in others else own.name,
        known.peer if known.peer in listed or not _can_be_dialled(own.peer) else own.peer,
        own.http if _can_be_dialled(own.http) else known.http,
    )
    return None if wanted == known else wanted


def _can_be_dialled(place: str) -> bool:
    if not place:
        return False
    host, port = address.parse(place)
    return port != 0 and not address.is_wildcard(host)


def with_voter(now: Membership, node_id: str, settings: Settings) -> Membership:
    """Make a voter of a learner."""
    if now.is_voter(node_id):
        return now
    member = now.get(node_id)
    if member is None:
        raise Refused(f"node {node_id} was removed meanwhile", "not_found")
    if len(now.voters) >= settings.voters_max:
        raise Refused(f"a cluster has at most {settings.voters_max} voters")
    learners = tuple(m for m in now.learners if m.id != node_id)
    return replace(now, voters=_by_id((*now.voters, member)), learners=learners)


def without(now: Membership, node_id: str) -> Membership:
    if now.get(node_id) is None:
        raise Refused(f"there is no node {node_id}", "not_found")
    if now.is_voter(node_id) and len(now.voters) == 1:
        raise Refused("the last voter cannot be removed")
    return Membership(
        now.cluster, tuple(m for m in now.voters if m.id != node_id), tuple(m for m in now.learners if m.id != node_id)
    )


def heir(
    now: Membership, own_id: str, wanted: str | None, progress: Mapping[str, int], is_linked: Callable[[str], bool]
) -> str:
    """To whom leadership is handed: the voter asked for, or the reachable one that is furthest on."""
    others = [m.id for m in now.voters if m.id != own_id]
    if wanted is not None:
        if wanted not in others:
            raise Refused(f"node {wanted} is no other voter of this cluster", "not_found")
        others = [wanted]
    reachable = [i for i in others if is_linked(i)]
    if not reachable:
        raise Refused("no voter that could take over can be reached")
    return max(reachable, key=lambda i: (progress.get(i, 0), i))
