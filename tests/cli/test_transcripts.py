"""Each story of tests/cli/transcripts is what the commands print today."""

from __future__ import annotations

import pytest

from tests.cli import transcript


@pytest.mark.parametrize("story", transcript.stories())
def test_the_commands_print_what_the_transcript_says(story: str) -> None:
    expected, actual = transcript.play(story)
    assert actual == expected
