"""Puts the sources together: flags before environment before file before defaults, checked, all faults at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from quvatlh.config import relations, sources
from quvatlh.config.defaults import data_directory
from quvatlh.config.faults import ConfigError, Fault
from quvatlh.config.keys import KEYS
from quvatlh.config.model import (
    Config,
    HttpConfig,
    HttpTlsConfig,
    LogConfig,
    MarketConfig,
    NodeConfig,
    NotifyConfig,
    PeerConfig,
    TlsConfig,
    WorkerConfig,
)

Flags = Mapping[str, tuple[str, object]]
"""Path to (name of the flag, value); a value of None was not given."""

TLS_KEYS = (("peer.tls.cert", "peer.tls.key", "peer.tls.ca"), ("http.tls.cert", "http.tls.key"))


def load(
    file: str | None = None,
    *,
    environ: Mapping[str, str],
    flags: Flags | None = None,
    is_root: bool | None = None,
) -> Config:
    """The configuration of a node, or ConfigError with every fault. Files that it names are not opened here."""
    root = os.geteuid() == 0 if is_root is None else is_root
    found = [sources.from_environment(environ), sources.from_flags(flags or {})]
    if file is not None:
        found.insert(0, sources.from_file(file))
    faults = [fault for _, wrong in found for fault in wrong]
    given = {path: value for values, _ in found for path, value in values.items()}
    checked, wrong = _check_kinds(given)
    wrong += _check_tls(given)
    config = _build(checked, data_directory(environ, is_root=root))
    faults += wrong
    at_fault = {fault.path for fault in wrong}
    faults += [_named(fault, given) for fault, hangs_on in relations.broken(config) if not _any_in(at_fault, hangs_on)]
    if faults:
        raise ConfigError(faults)
    return config


def _check_kinds(given: Mapping[str, sources.Given]) -> tuple[dict[str, Any], list[Fault]]:
    values: dict[str, Any] = {}
    faults = []
    for path, one in given.items():
        try:
            values[path] = KEYS[path](one.value)
        except ValueError as error:
            faults.append(Fault(path, str(error), one.source))
    return values, faults


def _check_tls(given: Mapping[str, sources.Given]) -> list[Fault]:
    """All files of a side or none; told apart by what was given, so that a file of a wrong kind is not also missing."""
    return [
        Fault(path, f"must be given with the others of {path.rpartition('.')[0]}")
        for keys in TLS_KEYS
        if any(key in given for key in keys)
        for path in keys
        if path not in given
    ]


def _any_in(paths: set[str], places: frozenset[str]) -> bool:
    """Whether one of the paths is one of the places, or a key of a section among them."""
    return any(path in places or path.rsplit(".", 1)[0] in places for path in paths)


def _named(fault: Fault, given: Mapping[str, sources.Given]) -> Fault:
    source = given[fault.path].source if fault.path in given else ""
    return Fault(fault.path, fault.message, source)


def _build(values: Mapping[str, Any], data: str) -> Config:
    def section(prefix: str) -> dict[str, Any]:
        depth = prefix.count(".") + 1
        return {
            path[len(prefix) + 1 :]: value
            for path, value in values.items()
            if path.startswith(f"{prefix}.") and path.count(".") == depth
        }

    peer_tls, http_tls = (all(path in values for path in keys) for keys in TLS_KEYS)
    return Config(
        node=NodeConfig(**{"data": data, **section("node")}),
        peer=PeerConfig(**section("peer"), tls=TlsConfig(**section("peer.tls")) if peer_tls else None),
        http=HttpConfig(**section("http"), tls=HttpTlsConfig(**section("http.tls")) if http_tls else None),
        worker=WorkerConfig(**section("worker")),
        market=MarketConfig(**section("market")),
        notify=NotifyConfig(**section("notify")),
        log=LogConfig(**section("log")),
    )
