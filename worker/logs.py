"""Sets up the log of workers, with one line per event and without passwords."""

import contextlib
import logging
import sys
from collections import deque
from collections.abc import Collection, Iterator

import structlog

from tilewatch.text import without_passwords

KEPT_LINES = 60
"""The number of last log lines that are stored with a failed job. As many fit on a page of the dashboard."""

LONGEST_LINE = 500


def set_up(level: int | str) -> None:
    """Sets up one log format for Tilewatch and other libraries: JSON, or readable text on a terminal."""
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
    """Yields a collection that always holds the last log lines of this process."""
    kept = _LastLines()
    root = logging.getLogger()
    root.addHandler(kept)
    try:
        yield kept.lines
    finally:
        root.removeHandler(kept)


class _LastLines(logging.Handler):
    """Keeps the last log lines as text, and cuts long lines."""

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
