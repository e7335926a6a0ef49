"""How a cluster begins, and how an empty node finds the one it belongs to.

Founding needs every node of the peer list at once, all of them empty and all with the same list: each then computes the
same first membership from the ids it sees, and writes it before it can vote. A part of the peers never founds, so no two
parts can. An empty node that meets a membership in which its own id stands takes that over instead. Everybody else has
no vote, and says how to add it. This module only judges what others announced; it writes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from quvatlh.ports import Member, Membership
from quvatlh.raft.entries import BadEntry, unpack_membership


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing can be decided yet; `why` is for the operator."""

    why: str


def cluster_id(node_ids: Iterable[str]) -> str:
    """The id of the cluster that these nodes found."""
    return hashlib.blake2b("\n".join(sorted(node_ids)).encode(), digest_size=10).hexdigest()


def found_alone(own: Member) -> Membership:
    return Membership(cluster_id([own.id]), (own,))


def decide(own: Member, founders: tuple[str, ...], hellos: Iterable[Mapping[str, Any]]) -> Membership | Waiting:
    """What an empty node may write, given the hellos of the nodes that it is connected to now.

    `founders` are the addresses of the peer list, the own one among them.
    """
    by_address: dict[str, Mapping[str, Any]] = {}
    for hello in hellos:
        packed = hello.get("membership")
        if packed:
            membership = unpack_membership(packed)
            if membership.get(own.id) is not None:
                return membership
        by_address[str(hello.get("peer"))] = hello
    members = [own]
    for address in founders:
        if address == own.peer:
            continue
        theirs = by_address.get(address)
        if theirs is None:
            return Waiting(
                f"waiting for {address}: every node of the peer list must be reached before the cluster is founded"
            )
        if theirs.get("membership"):
            return Waiting(
                f"{address} is in a cluster already, and this node is not: on one of its nodes run "
                f"`quvatlh cluster add {own.id} {own.peer}`"
            )
        listed = tuple(sorted(theirs.get("founders", ())))
        if listed != tuple(sorted(founders)):
            return Waiting(
                f"{address} has another peer list ({', '.join(listed)}); the list must be the same on every node"
            )
        members.append(Member(str(theirs["id"]), str(theirs.get("name", "")), address, str(theirs.get("http", ""))))
    if len({m.id for m in members}) != len(founders):
        return Waiting("two nodes of the peer list have the same id: a data directory was copied")
    return Membership(cluster_id(m.id for m in members), tuple(sorted(members, key=lambda m: m.id)))


def refuses(own_cluster: str | None, hello: Mapping[str, Any]) -> str | None:
    """Why a node of this hello is not talked to, or None."""
    founders, packed = hello.get("founders", []), hello.get("membership")
    if not isinstance(founders, list) or not {str}.issuperset(map(type, founders)):
        return "its peer list is not readable"
    try:
        if packed:
            unpack_membership(packed)
    except BadEntry as error:
        return f"its membership is not readable: {error}"
    theirs = hello.get("cluster")
    if own_cluster is not None and theirs is not None and theirs != own_cluster:
        return f"it belongs to cluster {theirs}, not to {own_cluster}"
    return None
