"""No search: the configurations that somebody named, in their order. Re-validation measures the few that were best."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tuner.space import Space
from tuner.trial import Config, Trial, config_key


class Listed:
    """Those that the space does not hold are passed over: this GPU or kernel cannot run them."""

    def __init__(self, space: Space, configs: Sequence[Config]) -> None:
        self._waiting = deque(config for config in configs if config in space)
        self._known: set[str] = set()

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while self._waiting and len(asked) < n:
            config = self._waiting.popleft()
            key = config_key(config)
            if key not in self._known:
                self._known.add(key)
                asked.append(config)
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        self._known |= {config_key(trial.config) for trial in trials}
