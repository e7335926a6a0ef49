"""Rows of figures: printed as they come, and kept as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Rows:
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, what: str, **figures: Any) -> None:
        self.rows.append({"what": what, **figures})
        told = ", ".join(f"{name} {shown(value)}" for name, value in figures.items())
        print(f"{what:<52} {told}", flush=True)

    def write(self, path: Path | None) -> None:
        if path is not None:
            path.write_text(json.dumps({"machine": machine(), "rows": self.rows}, indent=1) + "\n")


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_before": os.getloadavg(),
    }


def parser(module: str, text: str | None, parts: Sequence[str] = ()) -> argparse.ArgumentParser:
    """With what every bench takes."""
    made = argparse.ArgumentParser(
        prog=f"python -m {module}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if parts:
        made.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts) + "; without any: all")
    made.add_argument("--json", type=Path, help="write the figures there too")
    return made


def chosen(parts: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """SystemExit for what is not known."""
    wrong = set(parts) - set(known)
    if wrong:
        raise SystemExit(f"no such part: {', '.join(sorted(wrong))}; there are {', '.join(known)}")
    return parts or known
