"""A node agent of the soak: a batch every few seconds, until the file `last-minute` is there and all is sent.

    python -m tests.soak.agent_child FOLDER NUMBER URL TOKEN
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from workers.agent.aggregate import Aggregator
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.send import Sender, Spool
from workers.agent.wire import make_batch, pack

BATCH_EVERY_S, LAUNCHES = 10.0, 300
START_NS = 1_793_800_000_000_000_000 // 3_600_000_000_000 * 3_600_000_000_000
SIGNATURES = [Signature(f"soak_kernel_{number}", (1, 1, 1), (128, 1, 1), 0) for number in range(5)]


def durations(agent: int, sequence: int) -> np.ndarray:
    """Return the durations of a batch in ns: always the same ones, so that a batch that was cut off is made again alike."""
    return np.random.default_rng((agent, sequence)).integers(1000, 10**6, LAUNCHES)


def fill(spool: Spool, agent: int) -> None:
    def make(sequence: int) -> bytes:
        sums, values = Aggregator(), durations(agent, sequence)
        chosen = np.random.default_rng((agent, sequence, 1)).integers(0, len(SIGNATURES), LAUNCHES)
        sums.add(Window(Context(f"soak-{agent}", "b1", "NVIDIA H200"), Gpu(f"GPU-{agent}", "NVIDIA H200", f"soak-host-{agent}"),
                        START_NS + sequence * 60 * 10**9, 6 * 10**9, 60 * 10**9, sum_durations(chosen, values, SIGNATURES)))
        return pack(make_batch(spool.agent, sequence, 0, sums.take()))
    note(spool, [spool.put(make)])


def note(spool: Spool, sequences: Iterable[int]) -> None:
    with (spool.folder / "made").open("a") as file:
        file.writelines(f"{sequence}\n" for sequence in sequences)


def main(folder: str, number: str, url: str, token: str) -> None:
    spool = Spool(Path(folder) / f"spool-{number}")
    sender = Sender(spool, url, lambda: token)
    note(spool, (int(path.stem) for path in spool.folder.glob("*.batch")))       # stored, and killed before it was noted
    ends, next_s = Path(folder) / "last-minute", time.monotonic()
    while not ends.exists() or spool.batches:
        if time.monotonic() >= next_s and not ends.exists():
            fill(spool, int(number))
            next_s = time.monotonic() + BATCH_EVERY_S
        time.sleep(min(1.0, sender.step()) + 0.05)
    (spool.folder / "end").write_text(f"{spool.refused} {spool.dropped}")


if __name__ == "__main__":
    main(*sys.argv[1:])
