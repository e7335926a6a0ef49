"""Seeds that once broke: each showed a fault of the product, which stays mended."""

from __future__ import annotations

from typing import Final

FOUND: Final = [
    ("table", 165309260, 20.0),  # a claim began that the master's answer had taken away before the node told of it
]
