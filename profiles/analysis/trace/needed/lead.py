"""Whether what need not be leads, or a cause of the account does: the one with the most to win."""

from __future__ import annotations

from profiles.analysis.trace.account.account import Account
from profiles.analysis.trace.account.causes import CAUSES
from profiles.analysis.trace.needed.account import Claim, Needs
from profiles.analysis.trace.needed.topic import GENERIC, told_claims

LEAST_PCT = 5.0                     # of the time: a kind with less to win does not lead
LEAST_GENERIC_PCT = 10.0
HOST_BOUND = ("host_launch", "small_kernels", "host_code")
HOST_SHARE = 0.5                    # of what they win in the recording: with shapes recorded a host takes 1.5 to 1.8 times as long
EXPLAINED = 0.5                     # of what the account's lead wins: pieces that win as much are why the host is late


def leading_claim(needs: Needs, account: Account) -> Claim | None:
    """Return the kind that leads a trace, None where a cause of the account does.

    Compared is the share of the time: GPU time that goes, of pieces in a loop the host's too, with what the cause would win. Of the
    generic kind only a cause without any gain is behind.
    """
    wall_ns = sum(gpu.wall_ns for gpu in needs.gpus)
    if not wall_ns or account.lead is None:
        return None
    claims = [claim for claim in told_claims(needs) if claim.certain or claim.gain_ns[0]]
    named = [claim for claim in claims if claim.kind.name != GENERIC and 100 * claim.worth_ns >= LEAST_PCT * wall_ns]
    cause = (account.lead.recoverable_ns or 0) / max(1, account.wall_ns)
    weighed = cause * (HOST_SHARE if account.lead.cause in HOST_BOUND else 1.0)
    best = max(named, key=lambda claim: claim.worth_ns, default=None)
    if best is not None:
        explains = best.is_region and CAUSES[account.lead.cause].side == "idle" and best.gain_ns[1] / wall_ns >= EXPLAINED * cause
        return best if explains or best.worth_ns / wall_ns >= weighed else None
    generic = next((claim for claim in claims if claim.kind.name == GENERIC), None)
    if generic is None or 100 * generic.gone_ns < LEAST_GENERIC_PCT * wall_ns:
        return None
    return generic if generic.gone_ns / wall_ns >= cause and CAUSES[account.lead.cause].side == "busy" else None
