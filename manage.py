#!/usr/bin/env python
"""Django's entry. Starts the private servers where the environment names none."""

import os
import sys
from pathlib import Path

from webapp.embedded import ensure


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    ensure.servers(Path(__file__).resolve().parent)
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
