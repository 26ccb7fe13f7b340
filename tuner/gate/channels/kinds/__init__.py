"""Ways to tell people, in the order of the form: one module for each. Another one is a module here and a line in KINDS."""

from __future__ import annotations

from tuner.gate.channels.kinds import mail, teams, webhook
from tuner.gate.channels.kinds.kind import ChannelKind

KINDS: dict[str, ChannelKind] = {kind.name: kind for kind in (webhook.KIND, mail.KIND, teams.KIND)}



