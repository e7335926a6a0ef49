"""Each side proves to the other that it knows the cluster secret, and says who it is. Then a channel is open.

    dialer    HELLO      [magic, version, nonce, kind]
    acceptor  CHALLENGE  [version, nonce]
    dialer    PROOF      [mac, document]
    acceptor  ACCEPT     ["accept", mac, document]   or   REFUSE ["refuse", mac, document, why]

A mac is HMAC-SHA256 under the secret over a label of its own, both nonces, the kind and the digests of all documents
sent so far: it is worth nothing on another connection, in the other direction or beside another document. Nothing of a
document is looked at before its mac is checked, and a stranger learns nothing but our version. A refusal is proved too,
so that nobody else can talk a dialer out of dialling. Versions come first and may differ; the rest may then not.

Whether a proved peer is wanted is the caller's to decide (`Judge`), at once, before ACCEPT is sent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quvatlh.raft.settings import WIRE_VERSION, Settings
from quvatlh.raft.wire import Channel, Message, WireError, encode, pack, unpack

MAGIC = "QVTL"
NONCE_BYTES = 32
LINK = "link"
SNAPSHOT = "snapshot"
KINDS = (LINK, SNAPSHOT)
NODE_ID_CHARS_MAX = 256
SEQ_MAX = 2**62
"""Of the connection's number in a document; one more must still fit into msgpack's 64 bits."""
REASON_CHARS_MAX = 1000
PEER_CHARS_MAX = 256
"""Of an announced address."""

OWN = "own"
"""The dialer has the id of the acceptor."""
NOT_ADMITTED = "not_admitted"
"""The acceptor's owner does not want it."""
STALE = "stale"
"""There is a newer connection; newest.py."""

Doc = dict[str, Any]
"""A hello document. `id` and `incarnation` are text, `seq` an integer; the rest is the owners' business."""

_STRANGERS = (
    (b"\x16\x03", "a TLS handshake (TLS is off on this side)"),
    (b"\x15\x03", "a TLS alert (TLS is on at the other side)"),
    (b"GET ", "an HTTP request"),
    (b"POST", "an HTTP request"),
    (b"HEAD", "an HTTP request"),
    (b"PUT ", "an HTTP request"),
    (b"PRI ", "an HTTP request"),
    (b"HTTP", "an HTTP answer"),
    (b"SSH-", "an SSH greeting"),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """No, from a peer that proved the secret."""

    code: str
    """One of OWN, NOT_ADMITTED, STALE."""
    reason: str
    seq: int = 0
    """With stale: the number that the next attempt must exceed."""


Judge = Callable[[str, Doc], Refusal | None]
"""(kind, document of the dialer) -> why it is not wanted, or None."""


@dataclass(frozen=True, slots=True)
class Ours:
    """What this side brings to a handshake."""

    secret: bytes
    nonce: bytes
    """Never used before."""
    describe: Callable[[], Doc]
    """Our document, asked for at the moment it is sent."""


def peer_of(doc: Doc) -> str | None:
    """The address that a node says it listens at."""
    peer = doc.get("peer")
    return peer if isinstance(peer, str) and 0 < len(peer) <= PEER_CHARS_MAX else None


async def dial(channel: Channel, ours: Ours, kind: str, settings: Settings) -> tuple[Doc, Refusal | None]:
    """Run the dialer's side: the acceptor's document, and its refusal if it has refused. WireError when it is no peer."""
    _say(channel, [MAGIC, WIRE_VERSION, ours.nonce, kind])
    answer = await _first(channel)
    if not answer or type(answer[0]) is not int:
        raise _stranger(channel)
    _check_version(answer[0])
    nonce = _nonce(answer, 1, 2)
    doc = _pack_doc(ours.describe(), settings)
    asked = [ours.nonce, nonce, kind, _digest(doc)]
    _say(channel, [_mac(ours.secret, "dialer", asked), doc])
    verdict = await _next(channel, "after our proof; has it another cluster secret?", "secret")
    if len(verdict) == 3 and verdict[0] == "accept":
        _check_mac(verdict[1], ours.secret, "acceptor", [*asked, _digest(_bytes(verdict[2]))])
        peer_doc = _unpack_doc(verdict[2])
        channel.proved(kind, peer_doc)
        return peer_doc, None
    if len(verdict) == 4 and verdict[0] == "refuse":
        _check_mac(verdict[1], ours.secret, "refuser", [*asked, _digest(_bytes(verdict[2])), _bytes(verdict[3])])
        return _unpack_doc(verdict[2]), _unpack_refusal(verdict[3])
    raise WireError("an answer to our proof that is none", "handshake")


async def accept(channel: Channel, ours: Ours, judge: Judge, settings: Settings) -> tuple[Doc, Refusal | None]:
    """Run the acceptor's side: the dialer's document, and our refusal if we have refused.

    Between the call of `judge` and the return nothing else runs: what it found still holds.
    """
    hello = await _first(channel)
    if len(hello) < 2 or hello[0] != MAGIC or type(hello[1]) is not int:
        raise _stranger(channel)
    _say(channel, [WIRE_VERSION, ours.nonce])
    _check_version(hello[1])
    nonce = _nonce(hello, 2, 4)
    kind = hello[3]
    if kind not in KINDS:
        raise WireError("a connection of unknown kind", "handshake")
    proof = await _next(channel, "before it proved the secret", "closed")
    if len(proof) != 2:
        raise WireError("a proof that is none", "handshake")
    asked = [nonce, ours.nonce, kind, _digest(_bytes(proof[1]))]
    _check_mac(proof[0], ours.secret, "dialer", asked)
    peer_doc = _unpack_doc(proof[1])
    refusal = judge(kind, peer_doc)
    doc = _pack_doc(ours.describe(), settings)
    if refusal is None:
        _say(channel, ["accept", _mac(ours.secret, "acceptor", [*asked, _digest(doc)]), doc])
        channel.proved(kind, peer_doc)
    else:
        why = pack([refusal.code, refusal.reason[:REASON_CHARS_MAX], refusal.seq])
        _say(channel, ["refuse", _mac(ours.secret, "refuser", [*asked, _digest(doc), why]), doc, why])
    return peer_doc, refusal


def _mac(secret: bytes, label: str, parts: Sequence[object]) -> bytes:
    return hmac.digest(secret, pack([MAGIC, WIRE_VERSION, label, *parts]), "sha256")


def _check_mac(mac: object, secret: bytes, label: str, parts: Sequence[object]) -> None:
    if not hmac.compare_digest(_bytes(mac), _mac(secret, label, parts)):
        raise WireError("it did not prove the cluster secret", "secret")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _say(channel: Channel, message: Message) -> None:
    channel.send(message)


async def _first(channel: Channel) -> Message:
    """The first frame, where anything at all may arrive."""
    try:
        return await _next(channel, "before the handshake was done", "closed")
    except WireError as error:
        raise error if error.code == "closed" else _stranger(channel) from error


async def _next(channel: Channel, when: str, code: str) -> Message:
    message = await channel.receive()
    if message is None:
        raise WireError(f"the connection ended {when}", code)
    return message


def _stranger(channel: Channel) -> WireError:
    opening = channel.decoder.head()
    what = next((text for start, text in _STRANGERS if opening.startswith(start)), "something else")
    return WireError(f"not a Qu'vatlh peer: it sent {what}", "stranger")


def _check_version(theirs: int) -> None:
    if theirs != WIRE_VERSION:
        raise WireError(f"it speaks version {theirs} of the peer protocol, this node {WIRE_VERSION}", "version")


def _nonce(message: Message, at: int, length: int) -> bytes:
    if len(message) != length or len(_bytes(message[at])) != NONCE_BYTES:
        raise WireError("a greeting of the wrong shape", "handshake")
    return _bytes(message[at])


def _bytes(value: object) -> bytes:
    if type(value) is not bytes:
        raise WireError("bytes were expected", "handshake")
    return value


def _pack_doc(doc: Doc, settings: Settings) -> bytes:
    """A document that the other side could not read is a bug of ours, and said before it goes out."""
    packed = pack(doc)
    if len(encode(["refuse", bytes(NONCE_BYTES), packed, bytes(8 * REASON_CHARS_MAX)])) > settings.hello_bytes_max:
        raise ValueError(f"our hello document has {len(packed)} bytes, too many for {settings.hello_bytes_max}")
    return packed


def _unpack_doc(packed: bytes) -> Doc:
    doc = unpack(packed)
    if not isinstance(doc, dict) or not all(isinstance(key, str) for key in doc):
        raise WireError("a hello document that is no map", "handshake")
    node_id, incarnation, seq = doc.get("id"), doc.get("incarnation"), doc.get("seq")
    if not (isinstance(node_id, str) and 0 < len(node_id) <= NODE_ID_CHARS_MAX and isinstance(incarnation, str)):
        raise WireError("a hello document without id", "handshake")
    if type(seq) is not int or not 0 <= seq <= SEQ_MAX:
        raise WireError("a hello document without seq", "handshake")
    return doc


def _unpack_refusal(packed: bytes) -> Refusal:
    why = unpack(packed)
    if not (isinstance(why, list) and [type(one) for one in why] == [str, str, int] and 0 <= why[2] <= SEQ_MAX):
        raise WireError("a refusal of the wrong shape", "handshake")
    return Refusal(*why)
