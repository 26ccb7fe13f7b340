"""A try to fetch the code of a build: nothing is measured, what was found or went wrong is said."""

from __future__ import annotations

from tuner.gate.code import services
from tuner.gate.code.models import CodeFetch
from workers.code.build import LIMITS, BuildCode
from workers.code.git import Limits
from workers.core.child import SandboxError
from workers.core.stopping import watch_for_stop

MAX_ATTEMPTS = 3


def run(fetch_id: int, worker: str, *, limits: Limits = LIMITS) -> None:
    """Claim the row and end it; a row that another holds is left."""
    fetch = services.fetch_claim(fetch_id, worker)
    if fetch is None:
        return
    if fetch.attempts > MAX_ATTEMPTS:
        services.fetch_fail(fetch, worker, f"{MAX_ATTEMPTS} workers died over this try", "see the workers' logs")
        return
    with watch_for_stop(lambda: not CodeFetch.leases.is_held(fetch.pk, worker)) as stop:
        code = BuildCode(fetch.code.suite, say=lambda said: services.fetch_say(fetch, worker, said), limits=limits,
                         should_stop=stop)
        try:
            code.folder(fetch.build)
            facts = code.facts(fetch.build)
            services.fetch_done(fetch, worker, commit=facts["commit"], files=facts["files"], size_bytes=facts["bytes"])
        except SandboxError as error:
            services.fetch_fail(fetch, worker, error.what, error.hint)
        finally:
            code.release()
