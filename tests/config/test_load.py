from __future__ import annotations

from pathlib import Path

import pytest

from quvatlh.config import (
    Config,
    ConfigError,
    Fault,
    HttpConfig,
    LogConfig,
    NodeConfig,
    PeerConfig,
    TlsConfig,
    WorkerConfig,
    load,
)
from quvatlh.config.keys import env_name

HOME = {"HOME": "/home/ann"}


def loaded(yaml: str = "", tmp: Path | None = None, **environ: str) -> Config:
    file = None
    if tmp is not None:
        path = tmp / "config.yaml"
        path.write_text(yaml)
        file = str(path)
    return load(file, environ=HOME | environ, is_root=False)


def faults(yaml: str, tmp: Path, **environ: str) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        loaded(yaml, tmp, **environ)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def test_nothing_given_is_a_node_of_its_own_on_loopback() -> None:
    expected = Config(
        NodeConfig("/home/ann/.local/state/quvatlh"), PeerConfig(), HttpConfig(), WorkerConfig(), LogConfig()
    )
    assert loaded() == expected
    assert loaded().http.advertised == "127.0.0.1:7420"
    assert loaded().peer.listen == "127.0.0.1:7421"
    assert loaded().peer.advertised == "127.0.0.1:7421"


@pytest.mark.parametrize(
    ("environ", "is_root", "expected"),
    [
        ({"HOME": "/home/ann"}, False, "/home/ann/.local/state/quvatlh"),
        ({"HOME": "/home/ann", "XDG_STATE_HOME": "/state"}, False, "/state/quvatlh"),
        ({"HOME": "/home/ann", "XDG_STATE_HOME": "relative"}, False, "/home/ann/.local/state/quvatlh"),
        ({"HOME": "/root", "XDG_STATE_HOME": "/state"}, True, "/var/lib/quvatlh"),
    ],
)
def test_data_stands_in_the_state_directory_of_who_runs_it(
    environ: dict[str, str], is_root: bool, expected: str
) -> None:
    assert load(environ=environ, is_root=is_root).node.data == expected


def test_flags_go_before_environment_before_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("node: {name: file, data: /file}\nlog: {level: error}\n")
    config = load(
        str(path),
        environ=HOME | {"QUVATLH_NODE_NAME": "environment", "QUVATLH_NODE_DATA": "/environment"},
        flags={"node.name": ("--name", "flag"), "node.data": ("--data", None)},
        is_root=False,
    )
    assert (config.node.name, config.node.data, config.log.level) == ("flag", "/environment", "error")


def test_every_key_has_a_variable(tmp_path: Path) -> None:
    config = loaded(
        "",
        tmp_path,
        QUVATLH_PEER_PEERS="10.0.0.1:7421, 10.0.0.2:7421",
        QUVATLH_PEER_SECRET_FILE="/secret",
        QUVATLH_PEER_TLS_CERT="/cert",
        QUVATLH_PEER_TLS_KEY="/key",
        QUVATLH_PEER_TLS_CA="/ca",
        QUVATLH_PEER_INSECURE="no",
        QUVATLH_LOG_FORMAT="json",
    )
    assert config.peer.peers == ("10.0.0.1:7421", "10.0.0.2:7421")
    assert config.peer.tls == TlsConfig("/cert", "/key", "/ca")
    assert config.log.format == "json"


def test_an_empty_variable_and_those_of_other_meaning_are_not_given() -> None:
    config = loaded(QUVATLH_NODE_NAME="", QUVATLH_URL="http://x", QUVATLH_TASK_ID="1", QUVATLH_TOKEN="t")
    assert config.node.name is None


def test_all_faults_are_told_at_once_with_path_and_source(tmp_path: Path) -> None:
    yaml = "node: {name: a/b, dat: /x}\npeer: {listen: nowhere, peers: [10.0.0.1:7421]}\nlogs: {level: info}\n"
    with pytest.raises(ConfigError) as caught:
        loaded(yaml, tmp_path, QUVATLH_LOG_LEVEL="loud")
    file = str(tmp_path / "config.yaml")
    assert sorted((fault.path, fault.source) for fault in caught.value.faults) == [
        ("log.level", "QUVATLH_LOG_LEVEL"),
        ("logs", file),
        ("node.dat", file),
        ("node.name", file),
        ("peer.listen", file),
        ("peer.peers", file),
        ("peer.secret_file", ""),
    ]


@pytest.mark.parametrize(
    ("yaml", "path", "words"),
    [
        ("node: {nmae: x}", "node.nmae", "is not a key; did you mean node.name?"),
        ("peer: {tls: {cret: x}}", "peer.tls.cret", "is not a key; did you mean peer.tls.cert?"),
        ("zebra: 1", "zebra", "is not a key"),
        ("node: 3", "node", "must be a mapping of keys"),
        ("- 1", "", "must be a mapping of keys"),
        ("node: {name: {a: 1}}", "node.name", "must be text"),
        ("node: {name: 12}", "node.name", "must be text; write it in quotes: '12'"),
        ("node: {name: ''}", "node.name", "must not be empty"),
        ('node: {name: "a\\nb"}', "node.name", "must not hold control characters"),
        (f"node: {{name: {'x' * 257}}}", "node.name", "must be 1 to 256 characters, not 257"),
        ("peer: {insecure: perhaps}", "peer.insecure", "must be true or false"),
        ("peer: {listen: 'host'}", "peer.listen", "must be host:port, such as 10.0.0.1:7421 or [::1]:7421, not 'host'"),
        ("peer: {listen: '1.2.3:7421'}", "peer.listen", "'1.2.3' is neither a host name nor an IP address"),
        (
            "peer: {listen: '127.0.0.1:65536'}",
            "peer.listen",
            "must be host:port, such as 10.0.0.1:7421 or [::1]:7421, not '127.0.0.1:65536'",
        ),
        ("log: {level: loud}", "log.level", "must be one of debug, info, warning, error"),
        ("log: {format: xml}", "log.format", "must be one of auto, people, json"),
    ],
)
def test_a_fault_says_what_must_be(yaml: str, path: str, words: str, tmp_path: Path) -> None:
    assert faults(yaml, tmp_path) == [(path, words)]


@pytest.mark.parametrize("yaml", ["a: [", "node: {name: a, name: b}", "\x00", "!!python/object:os.system {}"])
def test_a_file_that_is_no_yaml_is_one_fault_of_the_whole(yaml: str, tmp_path: Path) -> None:
    assert [path for path, _ in faults(yaml, tmp_path)] == [""]


def test_a_missing_file_is_a_fault() -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load("/nowhere/config.yaml", environ=HOME, is_root=False)


def test_peers_without_a_secret_are_refused(tmp_path: Path) -> None:
    assert faults("peer: {peers: ['127.0.0.1:1']}", tmp_path) == [
        ("peer.secret_file", "must be given with peers: nodes prove to each other that they know the secret")
    ]


def test_peers_named_twice_are_refused(tmp_path: Path) -> None:
    yaml = "peer: {peers: ['127.0.0.1:1', '127.0.0.1:1'], secret_file: /s}"
    assert faults(yaml, tmp_path) == [("peer.peers", "names 127.0.0.1:1 twice")]


def test_an_address_that_nobody_can_dial_is_no_peer(tmp_path: Path) -> None:
    yaml = "peer: {peers: ['0.0.0.0:7421'], secret_file: /s}"
    assert faults(yaml, tmp_path) == [("peer.peers", "must be an address that other nodes can dial, not 0.0.0.0:7421")]


def test_listening_everywhere_with_peers_needs_an_address_to_dial(tmp_path: Path) -> None:
    yaml = "peer: {listen: '0.0.0.0:7421', peers: ['10.0.0.1:7421'], secret_file: /s, insecure: true}"
    assert faults(yaml, tmp_path) == [("peer.advertise", "must be given: other nodes cannot dial 0.0.0.0:7421")]


@pytest.mark.parametrize("listen", ["0.0.0.0:7420", "[::]:7420"])
def test_answering_everywhere_with_peers_needs_an_address_to_tell(listen: str, tmp_path: Path) -> None:
    http = f"http: {{listen: '{listen}', insecure: true"
    peers = "peer: {peers: ['127.0.0.1:7421'], secret_file: /s}"
    told = f"must be given with peers, as an address to dial: nobody can dial {listen}"
    assert faults(f"{http}}}\n{peers}", tmp_path) == [("http.advertise", told)]
    assert loaded(f"{http}, advertise: 'n1:7420'}}\n{peers}", tmp_path).http.advertised == "n1:7420"
    assert loaded(f"{http}}}", tmp_path).http.advertised == listen, "alone it tells nobody"


OPEN = "is not loopback: give peer.tls, or say peer.insecure: true"


@pytest.mark.parametrize(
    ("yaml", "path", "address"),
    [
        ("listen: '0.0.0.0:7421'", "peer.listen", "0.0.0.0:7421"),
        ("listen: '[::]:7421'", "peer.listen", "[::]:7421"),
        ("advertise: node1:7421", "peer.advertise", "node1:7421"),
        ("peers: ['127.0.0.1:1', '10.0.0.1:1'], secret_file: /s", "peer.peers", "10.0.0.1:1"),
    ],
)
def test_what_is_not_loopback_needs_tls_or_a_word(yaml: str, path: str, address: str, tmp_path: Path) -> None:
    assert faults(f"peer: {{{yaml}}}", tmp_path) == [(path, f"{address} {OPEN}")]
    tls = "tls: {cert: /c, key: /k, ca: /a}"
    assert loaded(f"peer: {{{yaml}, {tls}}}", tmp_path).peer.tls == TlsConfig("/c", "/k", "/a")
    assert loaded(f"peer: {{{yaml}, insecure: true}}", tmp_path).peer.insecure


@pytest.mark.parametrize("address", ["localhost:1", "127.3.2.1:1", "[::1]:1"])
def test_loopback_needs_nothing(address: str, tmp_path: Path) -> None:
    assert loaded(f"peer: {{listen: '{address}'}}", tmp_path).peer.listen == address


def test_a_part_of_tls_is_a_fault_and_says_nothing_about_addresses(tmp_path: Path) -> None:
    yaml = "peer: {listen: '10.0.0.1:1', tls: {cert: /c}}"
    assert faults(yaml, tmp_path) == [
        ("peer.tls.key", "must be given with the others of peer.tls"),
        ("peer.tls.ca", "must be given with the others of peer.tls"),
    ]


def test_an_open_http_address_needs_tls_or_a_word(tmp_path: Path) -> None:
    open_http = "http: {listen: '0.0.0.0:7420'}\n"
    assert faults(open_http, tmp_path) == [
        ("http.listen", "0.0.0.0:7420 is not loopback: give http.tls, or say http.insecure: true")
    ]
    assert loaded("http: {listen: '0.0.0.0:7420', insecure: true}\n", tmp_path).http.insecure
    assert loaded("http: {listen: '0.0.0.0:7420', tls: {cert: c, key: k}}\n", tmp_path).http.tls is not None


def test_half_of_http_tls_is_named(tmp_path: Path) -> None:
    assert faults("http: {tls: {cert: c}}\n", tmp_path) == [
        ("http.tls.key", "must be given with the others of http.tls")
    ]


def test_a_worker_is_told_by_file_or_environment(tmp_path: Path) -> None:
    assert loaded("worker: {slots: 3, tags: [gpu, zone=eu-1], queues: ['mail-*']}\n", tmp_path).worker == WorkerConfig(
        3, ("gpu", "zone=eu-1"), ("mail-*",)
    )
    told = loaded(QUVATLH_WORKER_SLOTS="0", QUVATLH_WORKER_TAGS="a,b", QUVATLH_WORKER_DRAIN_MS="5")
    assert told.worker == WorkerConfig(0, ("a", "b"), drain_ms=5)
    assert loaded(QUVATLH_WORKER_EXECUTOR="userns").worker.executor == "userns"


LISTS = [
    ("worker.tags", "a,,b==", "item 2: must not be empty; item 3: must be a tag such as gpu or zone=eu-1, not b=="),
    ("worker.tags", "=x", "must be a tag such as gpu or zone=eu-1, not =x"),
    ("worker.tags", "x=", "must be a tag such as gpu or zone=eu-1, not x="),
    ("worker.tags", "zone =eu", "must be a tag such as gpu or zone=eu-1, not zone =eu"),
    ("worker.tags", "a,!b", "item 2: must not begin with '!', by which tasks say what they do not want, not !b"),
    ("worker.queues", "mail,", "item 2: must not be empty"),
    ("worker.queues", "a,!b", "item 2: must not begin with '!': only what is taken is named, not !b"),
    ("worker.queues", "a/b", "must not hold '/'"),
    ("http.hosts", ",", "item 1: must not be empty; item 2: must not be empty"),
    ("notify.allow", "10.0.0.0/8,,", "item 2: must not be empty; item 3: must not be empty"),
    (
        "peer.peers",
        "127.0.0.1:1,,127.0.0.1:0",
        "item 2: must not be empty; item 3: must be an address that other nodes can dial, not 127.0.0.1:0",
    ),
    ("node.server", "http://127.0.0.1:1,x", "item 2: must be URLs such as http://127.0.0.1:7420, not x"),
]


@pytest.mark.parametrize(("path", "text", "message"), LISTS)
def test_what_is_wrong_in_a_list_is_told_by_its_place_wherever_it_comes_from(
    tmp_path: Path, path: str, text: str, message: str
) -> None:
    section, key = path.split(".")
    more = "" if path != "node.server" else ", role: worker"
    listed = [part.strip() for part in text.split(",")]
    assert faults(f"{section}: {{{key}: {listed!r}{more}}}", tmp_path) == [(path, message)]
    assert (path, message) in faults("", tmp_path, **{env_name(path): text})
    with pytest.raises(ConfigError) as caught:
        load(environ=HOME, flags={path: ("--flag", text)}, is_root=False)
    assert Fault(path, message, "--flag") in caught.value.faults


def test_tags_are_words_and_words_with_values_and_nothing_at_all(tmp_path: Path) -> None:
    tags = "a, os=lin ux,k=v=w,b64=eA==,é=ü"
    assert loaded("", tmp_path, QUVATLH_WORKER_TAGS=tags).worker.tags == ("a", "os=lin ux", "k=v=w", "b64=eA==", "é=ü")
    for nothing in ("", " "):
        assert load(environ=HOME, flags={"worker.tags": ("--tags", nothing)}, is_root=False).worker.tags == ()


def test_numbers_of_a_worker_are_whole_and_bounded(tmp_path: Path) -> None:
    assert faults("worker: {slots: -1, drain_ms: 1.5}\n", tmp_path) == [
        ("worker.slots", "must be a whole number from 0 to 100000"),
        ("worker.drain_ms", "must be whole milliseconds, at most 86400000 (a day)"),
    ]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("node: {name: a}\nnode: {name: b}", "line 2, column 1: 'node' stands twice"),
        ("? [a]\n: b", "line 1, column 3: a key must be text"),
        ("[" * 5000, "line 1, column 17: is nested more than 16 levels deep"),
        ("node: [", "line 2, column 1: did not find expected node content"),
    ],
)
def test_a_file_that_is_no_yaml_is_told_with_its_place(yaml: str, message: str, tmp_path: Path) -> None:
    assert faults(yaml, tmp_path) == [("", message)]


def test_aliases_that_multiply_are_not_written_out(tmp_path: Path) -> None:
    yaml = BOMB + "node: {name: *i}\nworker: {slots: *i}\n"
    assert faults(yaml, tmp_path) == [("", "has more than 10000 values, aliases counted at each use")]


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "https://meta.example:8443/v1?recursive=true", "http://[::1]/"]
)
def test_the_cloud_is_asked_at_an_address_of_http(url: str, tmp_path: Path) -> None:
    assert loaded(f"worker: {{cloud_metadata: '{url}'}}", tmp_path).worker.cloud_metadata == url


@pytest.mark.parametrize(
    "url", ["169.254.169.254", "ftp://a/b", "http://", "http://a:99999/", "http://a/b c", "http://[::1"]
)
def test_any_other_address_of_the_cloud_is_a_fault(url: str, tmp_path: Path) -> None:
    assert [path for path, _ in faults(f"worker: {{cloud_metadata: '{url}'}}", tmp_path)] == ["worker.cloud_metadata"]


def test_networks_that_requests_may_go_to() -> None:
    given = loaded(QUVATLH_NOTIFY_ALLOW="10.0.0.0/8, 127.0.0.1, fd00::/8")
    assert given.notify.allow == ("10.0.0.0/8", "127.0.0.1/32", "fd00::/8")
    for wrong in ("10.0.0.1/8", "10.0.0.0/33", "example.org"):
        with pytest.raises(ConfigError, match="must be networks such as"):
            loaded(QUVATLH_NOTIFY_ALLOW=wrong)
