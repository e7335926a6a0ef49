"""Where a node keeps its data when nobody says so: with the user's state, or with the system's when it runs as root."""

from __future__ import annotations

import os
from collections.abc import Mapping

SYSTEM_DATA = "/var/lib/quvatlh"


def data_directory(environ: Mapping[str, str], *, is_root: bool) -> str:
    if is_root:
        return SYSTEM_DATA
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # a relative one is to be ignored, says its specification
        home = environ.get("HOME") or os.path.expanduser("~")
        state = os.path.join(home, ".local", "state")
    return os.path.join(state, "quvatlh")
