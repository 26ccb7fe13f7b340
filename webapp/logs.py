"""Filters that shorten log records."""

import logging


class OneLine(logging.Filter):
    """Drops the trace of events whose cause is outside, such as a foreign Host header."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


class OutageInOneLine(logging.Filter):
    """Drops the trace where a server is away or a disk full."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            from webapp.outage import outage_of  # the settings name this filter before applications are loaded

            if outage_of(record.exc_info[1]):
                record.msg, record.args = " ".join(f"{record.getMessage()}: {record.exc_info[1]}".split()), ()
                record.exc_info = record.exc_text = None
        return True
