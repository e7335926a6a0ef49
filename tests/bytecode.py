"""Where the environment forbids bytecode beside the source, each process of a run would compile the whole package."""

from __future__ import annotations

import os
import tempfile


def directory_of_its_own() -> str | None:
    """Where the bytecode of this process's children goes from now on, to be removed by the caller; none if that is settled."""
    if not os.environ.pop("PYTHONDONTWRITEBYTECODE", "") or "PYTHONPYCACHEPREFIX" in os.environ:
        return None
    os.environ["PYTHONPYCACHEPREFIX"] = made = tempfile.mkdtemp(prefix="quvatlh-bytecode-")
    return made
