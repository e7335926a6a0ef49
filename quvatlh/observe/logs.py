"""How log lines look: for people on a terminal, as JSON for machines, always on standard error.

Modules log through the standard library, or call a `noter` that they are given; only this one knows how a line is
formatted. Standard output belongs to what a command prints.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

FIELDS = "quvatlh_fields"
OWN_FIELDS = frozenset({"event", "level", "logger", "timestamp", "exception", "_record", "_from_structlog"})


def set_up(form: str, level: str, stream: TextIO | None = None) -> None:
    """`form` is auto, people or json. Replaces what was set up before."""
    stream = sys.stderr if stream is None else stream
    for_people = form == "people" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(for_people=for_people, colors=stream.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    logging.captureWarnings(capture=True)


# Local variables may be payloads or the cluster's secret: no traceback shows them.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


def _formatter(*, for_people: bool, colors: bool) -> logging.Formatter:
    rendering: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
        if for_people
        else [_TRACEBACKS, structlog.processors.JSONRenderer()]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            _with_fields,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )


def noter(name: str, level: str = "info") -> Callable[..., None]:
    """A way to log one event with fields, for packages that know no logging: note("snapshot in force", index=7)."""
    logger, number = logging.getLogger(name), LEVELS[level]

    def note(event: str, /, **fields: object) -> None:
        logger.log(number, event, extra={FIELDS: fields})

    return note


def _with_fields(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Fields of a noter, under whatever names: `extra` itself refuses those that a LogRecord has already."""
    record = event.get("_record")
    for key, value in getattr(record, FIELDS, {}).items():
        event[f"{key}_" if key in OWN_FIELDS else key] = value
    return event
