"""How the ingest commands log: structlog lines, JSON or text, on stderr. Libraries never configure this."""

import logging
import sys

import structlog

_NOISY = ("urllib3", "clickhouse_connect")
"""What they warn of is in the error that they raise, and that we report."""


def configure_logging(log_format: str) -> None:
    """Sends every log record of the process to stderr as one line.

    Args:
        log_format: `json` (one object a line) or `text` (for people).
    """
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
            foreign_pre_chain=shared,
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
