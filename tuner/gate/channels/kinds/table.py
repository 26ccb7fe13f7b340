"""The kinds of channels, in the order of the form. Another kind is a module beside these and a line here."""

from __future__ import annotations

from tuner.gate.channels.kinds import mail, teams, webhook
from tuner.gate.channels.kinds.kind import ChannelKind

KINDS: dict[str, ChannelKind] = {kind.name: kind for kind in (webhook.KIND, mail.KIND, teams.KIND)}
