"""The log's lines: what stands in each, as text or as JSON, and which traces say nothing."""

from __future__ import annotations

import logging
from typing import Any

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from workers import trail
from workers.redact import redact

OUTAGES = (503, 507)


class AddTrail(logging.Filter):
    """Adds the request, and the person and route as far as they are known."""

    def filter(self, record: logging.LogRecord) -> bool:
        now = trail.current()
        record.suffix = f" [{now.request_id}]" if now else ""
        if now is not None:
            fields = {"request_id": now.request_id, "person": now.person, "route": now.route}
            record.__dict__.update({name: value for name, value in fields.items() if value})
        return True


class ExpectedInOneLine(logging.Filter):
    """Refusals (4xx) and outages have no trace. Within a request their line is dropped: the request's says the same, and why."""

    def filter(self, record: logging.LogRecord) -> bool:
        status = getattr(record, "status_code", 0)
        if not 400 <= status < 500 and status not in OUTAGES:
            return True
        cause = record.exc_info[1] if record.exc_info and status in OUTAGES else None
        record.exc_info = record.exc_text = None
        now = trail.current()
        if now is not None:
            text = f"{record.getMessage()}: {cause}" if cause else record.getMessage()
            now.why = now.why or " ".join(text.split())[:300]
        return now is None


class OutageInOneLine(logging.Filter):
    """Drops the trace where a server is away or a disk full."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            from webapp.outage import outage_of  # the settings name this filter before applications are loaded

            if outage_of(record.exc_info[1]):
                record.msg, record.args = " ".join(f"{record.getMessage()}: {record.exc_info[1]}".split()), ()
                record.exc_info = record.exc_text = None
        return True


class TextLine(logging.Formatter):
    """One line for people. Of addresses with a secret the route stands there: in the message and in its trace."""

    def __init__(self) -> None:
        super().__init__("%(levelname).1s %(name)s: %(message)s%(suffix)s")

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class JsonLine(JsonFormatter):
    """One object a line: time (UTC), level, logger, message, and whatever the record carries besides; secrets as in `TextLine`."""

    def __init__(self) -> None:
        super().__init__("{levelname}{name}{message}", style="{", timestamp="time", json_ensure_ascii=False,
                         rename_fields={"levelname": "level", "name": "logger", "exc_info": "trace"},
                         reserved_attrs=[*RESERVED_ATTRS, "request", "suffix", "server_time"])

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        return {"time": log_data.pop("time", None), "level": str(log_data.pop("level", "")).lower(), **log_data}
