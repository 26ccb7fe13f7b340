"""A job that holds the clocks of a GPU: says so, and ends when its input does.

    python -m tests.workers.clocks.job UUID BY GRAPHICS [MEMORY_MHZ] [persistence] [required]
"""

import json
import os
import signal
import sys

import django


def main(uuid, by, graphics, *rest):
    from tuner.clocks.wish import ClockWish
    from workers.clocks import hold
    from workers.core.child import SandboxError

    memory = next((word for word in rest if word.isdigit()), "")
    wish = ClockWish.read(graphics, memory, "persistence" in rest, "required" in rest)
    try:
        with hold.hold_as(wish, uuid, by) as told:
            print(json.dumps(told), flush=True)
            sys.stdin.read()
    except SandboxError as error:
        print(json.dumps({"failed": error.what, "hint": error.hint}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    signal.signal(signal.SIGINT, signal.default_int_handler)         # a shell's background ignores it, and so would we
    django.setup()
    main(*sys.argv[1:])
