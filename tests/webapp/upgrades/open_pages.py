"""Asks for pages of the database that DATABASE_URL names, as the single user of this machine: prints {path: status}.

Ends with 1 where a migration is left to do.

    python -m tests.webapp.upgrades.open_pages PATH…
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
    import django

    django.setup()
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", check_unapplied=True, verbosity=0)
    client = Client(HTTP_HOST="localhost", raise_request_exception=False)
    sys.stdout.write(json.dumps({path: client.get(path).status_code for path in sys.argv[1:]}))


if __name__ == "__main__":
    main()
