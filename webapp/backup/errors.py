"""What can go wrong with a backup, each kind with the exit code of its command."""

from __future__ import annotations


class BackupError(Exception):
    """It was not done; the text says what, where and what to do."""

    exit_code = 1


class Damaged(BackupError):
    """A backup lacks something or holds other bytes than it was made of."""

    exit_code = 3


class Refused(BackupError):
    """It would overwrite data, or meet a running product."""

    exit_code = 4
