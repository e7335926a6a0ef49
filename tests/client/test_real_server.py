"""The same client against the real HTTP server: shapes agree; without a loop; over TLS."""

from __future__ import annotations

import datetime as dt
import io
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from quvatlh.client import BlockingClient, Options, Rejected, Unreachable
from tests.cli.stage import Stage
from tests.fakes.pool import TOKEN

TASK = {"work": {"command": ["true"]}}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


@pytest.fixture
def client(stage: Stage) -> Iterator[BlockingClient]:
    with BlockingClient(Options((stage.url,), TOKEN)) as made:
        yield made


def test_a_link_leads_into_the_dashboard_of_the_node_that_answered(client: BlockingClient, stage: Stage) -> None:
    link = client.link()
    assert link.startswith(f"{stage.url}/login?once=")
    assert link != client.link()


def test_tasks_are_added_once_found_and_deleted(client: BlockingClient) -> None:
    added = client.add([TASK | {"id": "a"}, TASK | {"id": "a"}, TASK], key="k")
    assert added == client.add([TASK | {"id": "a"}, TASK | {"id": "a"}, TASK], key="k")
    assert (added.ids[:2], added.existing) == (["a", "a"], {1: "id"})
    assert [task["id"] for task in client.all_tasks(limit=1)] == [added.ids[2], "a"]
    assert client.tasks(group_by="state") == {"groups": [{"value": "pending", "count": 2}]}
    assert client.act("delete", ids=["a"]).done == 1
    assert client.task("a")["state"] == "deleted"


def test_verbs_change_tasks_and_balance_moves_them(client: BlockingClient) -> None:
    client.add([TASK | {"id": f"t{n}", "group": "g", "limit": 2} for n in range(3)])
    assert client.act("update", ids=["t0"], changes={"priority": 7, "limit": None}).done == 1
    assert (client.task("t0")["priority"], client.task("t0")["limit"]) == (7, None)
    assert client.act("relocate", match={"group": "g"}, to="one").done == 3
    with pytest.raises(Rejected, match="there is no worker named two"):
        client.act("relocate", ids=["t0"], to="two")
    assert client.balance("g", dry_run=True, most=5).moves == []
    killed = client.act("kill", ids=["t1"])
    assert (killed.matched, killed.done) == (1, 0)
    assert client.act("retry", match={"error": "killed"}).matched == 0
    assert client.explain("t1")["workers"] == [{"name": "one", "verdict": "would_run", "detail": "", "score": None}]
    assert client.announcements("g") == []
    assert client.live({"group": "g"}, "worker") == {"groups": []}
    assert client.live({"kind": "service"})["items"] == []


def test_workers_and_policies(client: BlockingClient) -> None:
    assert [one["name"] for one in client.workers()] == ["one"]
    assert client.patch_worker("one", {"slots": 4})["slots"] == client.worker("one")["slots"] == 4
    assert (client.drain("one")["state"], client.undrain("one")["state"]) == ("draining", "up")
    assert client.put_policy("p", "return true")["version"] == 1
    assert (client.policies()[0]["name"], client.policy("p")["source"]) == ("p", "return true")
    assert client.test_policy("return true", TASK)[0]["verdict"] == "bid"
    client.delete_policy("p")
    with pytest.raises(Rejected, match="there is no policy p"):
        client.policy("p")


def test_lines_are_added_cut_by_cut(client: BlockingClient) -> None:
    text = b"".join(b'{"id":"n%d","work":{"command":["true"]}}\n' % number for number in range(2500))
    cuts = list(client.add_lines(io.BytesIO(text).read))
    assert [(cut.first, cut.end, len(cut.ids)) for cut in cuts] == [
        (0, 1000, 1000),
        (1000, 2000, 1000),
        (2000, 2500, 500),
    ]


def test_what_happens_is_heard_from_the_place_on_where_one_left(client: BlockingClient) -> None:
    client.add([TASK | {"id": "a"}])
    happened = client.events("0")
    first = next(happened)
    happened.close()  # type: ignore[attr-defined]
    client.act("delete", ids=["a"])
    later = client.events(first.id)
    assert ((first.kind, first.data["id"]), next(later).kind) == (("task.added", "a"), "task.deleted")
    later.close()  # type: ignore[attr-defined]


def test_logs_backup_cluster_and_tokens_have_the_shapes_of_the_server(
    client: BlockingClient, stage: Stage, tmp_path: Path
) -> None:
    client.add([TASK | {"id": "a"}])
    stage.tell(["start", "a"])
    stage.tell(["write", "a", "stderr", "oh"])
    assert b"".join(client.log("a", "stderr", action="a1")) == b"oh\n"
    assert [action["id"] for action in client.actions("a")] == ["a1"]
    assert client.backup(str(tmp_path / "b")) == (tmp_path / "b").stat().st_size
    assert client.cluster()["master"] == "one"
    assert [node["id"] for node in client.add_member({"id": "n2", "peer": "h:1"})["nodes"]] == ["n1", "n2"]
    assert len(client.remove_member("n2")["nodes"]) == 1
    assert client.tokens()[0]["name"] == "root"


def test_a_result_that_is_not_there_is_a_rejection(client: BlockingClient) -> None:
    client.add([TASK | {"id": "a"}])
    with pytest.raises(Rejected) as caught:
        client.result("a")
    assert caught.value.code == "conflict"


def test_over_tls_the_certificate_must_be_one_of_the_named_authority(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with Stage(cert, key) as stage:
        with BlockingClient(Options((stage.url,), TOKEN, ca=str(cert))) as client:
            assert client.cluster()["node"] == "one"
        with BlockingClient(Options((stage.url,), TOKEN)) as client, pytest.raises(Unreachable, match="not trusted"):
            client.cluster()
        plain = stage.url.replace("https", "http")
        with BlockingClient(Options((plain,), TOKEN, deadline_s=0.2)) as client, pytest.raises(Unreachable):
            client.cluster()


def certificate(directory: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = directory / "cert.pem", directory / "key.pem"
    cert_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_path, key_path
