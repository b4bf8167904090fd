"""Sets up the log of workers: one line per event on standard error, with its job, and never with a password."""

import logging
import re
import sys

import structlog


def set_up(level: int | str) -> None:
    """Formats our events and other libraries' records alike: as JSON, or for people on a terminal."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
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


def _scrub(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    return {name: without_passwords(value) if isinstance(value, str) else value for name, value in event.items()}


_IN_URL = re.compile(r"(?P<before>[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@]*:)[^\s@/]+@")


_NAMED = re.compile(
    r"(?i)(?P<before>\b(?:password|passwd|secret|token|api_?key)\b['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,;&]+)"
)


def without_passwords(text: str) -> str:
    """The text with *** for the passwords in scheme://user:password@host and password=..."""
    return _NAMED.sub(r"\g<before>***", _IN_URL.sub(r"\g<before>***@", text))
