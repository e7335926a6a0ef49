"""Seeds that once broke: each showed a fault of the product, which stays mended. A change of the world makes other runs of
them, so what they showed has a test or a planted fault of its own, or a check that every seed makes."""

from __future__ import annotations

from typing import Final

FOUND: Final = [
    ("log", 4, 10.0),  # what came after a snapshot was told before the snapshot itself
    ("log", 90221, 60.0),  # who stayed candidate counted each voter's vote in its first campaign only, and never won
    ("table", 165309260, 20.0),  # a claim began that the master's answer had taken away before the node told of it
    ("table", 610007, 20.0),  # who was told to take over, and voted for another before it could, deposed that one
    (
        "table",
        8,
        20.0,
    ),  # a pull worker asked again for what was over, and the master asked itself for as long as it waited
]
