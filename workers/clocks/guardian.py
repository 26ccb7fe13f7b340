"""Holds a GPU's clocks until its standard input closes, then puts everything back.

`python -m workers.clocks.guardian UUID FOLDER LOCK`: LOCK is a descriptor of `held.lock_file(UUID)` that the asker shares, FOLDER
where the state is kept, and the wish comes as one line of JSON. It answers with one line: the conditions. The asker holds the
other end of the input and nothing else does, so that it closes however the asker dies. Signals that are meant for the asker's
group or service do not end it before it has put back.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path

from tuner.clocks.wish import ClockWish
from workers.clocks import held


def main(uuid: str, folder: Path, lock: int) -> int:
    """Return 0 where everything was put back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    line = sys.stdin.buffer.readline()
    if not line:
        return 0
    request = json.loads(line)
    try:
        conditions = held.take(lock, uuid, folder, ClockWish(**request["wish"]), request["by"])
    except (held.Busy, OSError) as error:
        conditions = {"locked": False, "asked": ClockWish(**request["wish"]).text, "why": str(error)}
    with suppress(OSError):                 # a full disk: the page does without
        held.note_last(uuid, folder, conditions)
    with suppress(BrokenPipeError):         # the asker died meanwhile
        print(json.dumps(conditions), flush=True)
    sys.stdin.buffer.read()
    left = held.leave(lock, uuid, folder)
    with suppress(OSError):
        held.note_last(uuid, folder, conditions, left)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
