"""One frozen, checked Config from YAML, environment and flags. Says everything that is wrong at once."""

from quvatlh.config.faults import ConfigError, Fault
from quvatlh.config.load import Flags, load
from quvatlh.config.model import (
    Config,
    HttpConfig,
    HttpTlsConfig,
    LogConfig,
    NodeConfig,
    PeerConfig,
    TlsConfig,
    WorkerConfig,
)

__all__ = [
    "Config",
    "ConfigError",
    "Fault",
    "Flags",
    "HttpConfig",
    "HttpTlsConfig",
    "LogConfig",
    "NodeConfig",
    "PeerConfig",
    "TlsConfig",
    "WorkerConfig",
    "load",
]
