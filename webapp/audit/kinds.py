"""What is written to the audit log: one line a kind of row. Extending it is a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

# names of routes that hand out what is stored as files
EXPORTS = {"api-export-trace", "api-export-slices", "api-export-hits", "api-launches", "cache-export", "trials-export",
           "api-export", "api-trials-export"}


def host_of(address: Any) -> str:
    """Return the host of an address, or what follows the @ of a mailbox: what stands before may be a secret."""
    return urlsplit(str(address)).hostname or str(address).rpartition("@")[2]


@dataclass(frozen=True)
class Kind:
    """A kind of row (`app.Model`): the columns whose changes are told, and how each is told; without columns deletes alone are."""

    model: str
    columns: tuple[str, ...] = ()
    told: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


KINDS = (
    Kind("auth.User", ("username", "email", "is_active", "is_superuser", "password"),
         {"password": lambda hashed: "•" if hashed else ""}),
    Kind("webapp.Project", ("name",)),
    Kind("webapp.Membership", ("role",)),
    Kind("webapp.ApiToken", ("name", "scope", "expiry")),
    Kind("webapp.AgentBudget", ("writes_per_day", "gpu_s_per_day")),
    Kind("webapp.ShareLink", ("expires",)),
    Kind("webapp.Invitation", ("email", "role", "expires", "used")),
    Kind("mfa.Authenticator", ("type",)), Kind("socialaccount.SocialAccount", ("provider",)),
    Kind("profiles.CaptureTarget", ("name", "argv", "cwd", "env", "enabled"), {"env": sorted}),     # names: values may be secret
    Kind("profiles.EngineServer", ("name", "address", "results", "folder", "enabled"), {"address": host_of}),
    Kind("profiles.CaptureSchedule", ("name", "when", "enabled")),
    Kind("tuner.OperatorPackage", ("name", "enabled")),
    Kind("tuner.GpuClockRule", ("graphics", "memory_mhz", "persistence", "required")),
    Kind("tuner.KernelCheck", ("file",)), Kind("tuner.OwnKernel", ("name", "file", "source_hash")),
    Kind("tuner.CandidatePermit", ("operator", "per_day", "seconds")), Kind("tuner.Candidate", ("review", "review_note")),
    Kind("tuner.SuiteCode", ("kind", "address", "folder")), Kind("tuner.SuiteArchive", ("build", "sha256")),
    Kind("tuner.Notified", ("kind", "address", "enabled"), {"address": host_of}),
    Kind("webapp.Forge", ("kind", "name", "api", "place", "account", "enabled", "checks", "comments", "resolves"),
         {"api": host_of}),
    Kind("tuner.BucketPolicy", ("operator",)),
    Kind("tuner.BaselineChange", ("action", "note")),
    Kind("profiles.Profile"), Kind("profiles.Capture"), Kind("profiles.SavedQuery"), Kind("tuner.Suite"), Kind("tuner.TuneJob"),
    Kind("tuner.CachedConfig"),
)
