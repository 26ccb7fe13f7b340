"""How log records are shortened."""

import logging


class OneLine(logging.Filter):
    """The message without its trace: for events whose cause is outside, such as a foreign Host header."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True
