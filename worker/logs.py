"""Sets up the log of workers: one line per event on standard error, with its job, and never with a password."""

import contextlib
import logging
import sys
from collections import deque
from collections.abc import Collection, Iterator

import structlog

from tilewatch.text import without_passwords

KEPT_LINES = 60
"""Lines of a failed job's log that are stored with it: what came before its end, on one page of the dashboard."""

LONGEST_LINE = 500


def set_up(level: int | str) -> None:
    """Formats our events and other libraries' records alike: as JSON, or for people on a terminal."""
    shared = _shared()
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.processors.format_exc_info],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _scrub, renderer],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


@contextlib.contextmanager
def keep_lines() -> Iterator[Collection[str]]:
    """Gives the last lines of this process's log, as they come: what they say while it is open."""
    kept = _LastLines()
    root = logging.getLogger()
    root.addHandler(kept)
    try:
        yield kept.lines
    finally:
        root.removeHandler(kept)


class _LastLines(logging.Handler):
    """A text line for each event. The end of a long line is cut off: a traceback has a column of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=_shared(),
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    _scrub,
                    structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
                ],
            )
        )

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record).replace("\n", " ")[:LONGEST_LINE])


def _shared() -> list[structlog.types.Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _scrub(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    return {name: without_passwords(value) if isinstance(value, str) else value for name, value in event.items()}
