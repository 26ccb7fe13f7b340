"""Sends what lies in a spool until it is empty, as the node agent does: `… -m tests.workers.agent.send_child FOLDER URL TOKEN`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from workers.agent.send import Sender, Spool


def main(folder: str, url: str, token: str) -> None:
    spool = Spool(Path(folder))
    sender = Sender(spool, url, lambda: token)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while spool.batches:
        time.sleep(min(0.3, sender.step()) + 0.05)
    sys.stdout.write(f"sent {sender.sent} refused {spool.refused} dropped {spool.dropped}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
