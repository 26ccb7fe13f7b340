"""Why nothing was made or changed: the field and what would be right. A module of its own, so that everybody may import it."""

from __future__ import annotations

from collections.abc import Mapping


class GateRefused(ValueError):
    """`fields`: field -> what is wrong with it; `status`: what HTTP answers (404: no such row, 409: not now)."""

    def __init__(self, fields: Mapping[str, str], status: int = 400) -> None:
        self.fields = dict(fields)
        self.status = status
        super().__init__("; ".join(f"{name}: {what}" for name, what in fields.items()))
