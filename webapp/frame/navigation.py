"""The sections of the product, their tabs and actions: what the bar, the tabs, the keys and the palette are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

from django.urls import get_script_prefix, reverse

from webapp.frame.documents import titles

NO_TABS = re.compile(r"/(?:profiles/\d|timelines/)|/fleet/(?!regressions/)")      # pages that have tabs of their own


class Allowed(Protocol):
    """Who asks: a person of Django's, or nobody."""

    def has_perm(self, perm: str) -> bool: ...


@dataclass(frozen=True)
class Page:
    """One address: `keys` open it after "g", `needs` is the permission without which it is not offered."""

    title: str
    route: str
    keys: str = ""
    needs: str = ""
    words: str = ""                     # what else people call it
    also: tuple[str, ...] = ()          # other addresses that light this tab
    docs: tuple[str, ...] = ()          # documents that explain it

    @cached_property
    def path(self) -> str:
        """Return the address within the site, whichever project is worked in."""
        return f"/{reverse(self.route).removeprefix(get_script_prefix())}"

    @property
    def url(self) -> str:
        """Return the address in the project that is worked in."""
        return get_script_prefix().rstrip("/") + self.path


@dataclass(frozen=True)
class Section:
    """A part of the bar; its first page is where its name leads."""

    title: str
    pages: tuple[Page, ...]

    @property
    def url(self) -> str:
        return self.pages[0].url


WHOLE = "profiles.view_fleetcontext"        # a role in the whole installation
SECTIONS = (
    Section("Overview", (Page("Overview", "home", "h", words="home start", docs=("features",)),)),
    Section("Profiles", (
        Page("Profiles", "profile-list", "p", words="traces reports", also=("/timelines/", "/sharing/"),
             docs=("formats", "causes", "storage")),
        Page("Compare", "compare", "c", words="diff two builds progress", docs=("compare", "builds")),
        Page("SQL", "sql", "s", words="query duckdb", docs=("sql",)),
        Page("Captures", "capture-list", "r", words="nsys ncu record", docs=("formats",)),
    )),
    Section("Kernels", (
        Page("Kernels", "kernel-list", "k", words="families", docs=("features", "causes")),
        Page("Roofline", "rooflines", words="ceilings intensity", docs=("features",)),
        Page("Occupancy", "occupancy", "o", words="calculator registers warps"),
        Page("Ceilings", "ceilings", words="peak bandwidth measured GPU"),
        Page("Audit log", "advice", words="advice decisions"),
        Page("Threads", "thread-list", words="comments discussion assigned status",
             also=("/comments/",), docs=("threads",)),
    )),
    Section("Fleet", (
        Page("Kernels", "fleet", "f", needs=WHOLE, words="hours production", docs=("fleet", "fleet-store", "fleet-loss")),
        Page("Slow GPUs", "fleet-gpus", needs=WHOLE, words="outliers"),
        Page("Utilisation", "fleet-utilisation", needs=WHOLE, words="busy", docs=("fleet", "fleet-monitoring")),
        Page("Regressions", "production-list", needs=WHOLE, words="production change points", docs=("fleet-regressions",)),
        Page("Captures", "fleet-captures", words="deep capture vllm sglang schedules nightly",
             docs=("captures-running", "fleet-agent")),
        Page("Agents", "fleet-agents", words="hosts", docs=("fleet-agent", "fleet-loss")),
    )),
    Section("Tune", (
        Page("Jobs", "tune-list", "t", words="tune autotune trials", docs=("tuning", "measurement", "tuner-bench")),
        Page("Kernels", "operators", words="operators own packages team drop file", docs=("bring", "operators", "client")),
        Page("Candidates", "candidate-list", words="submit kernel patch diff agent review verdict", docs=("candidates", "agents")),
        Page("Configs", "cache-list", "a", words="cache winners served", docs=("config-cache", "client")),
    )),
    Section("Guard", (
        Page("Builds", "build-list", "b", words="commits trend bisect", docs=("builds",)),
        Page("Gates", "gate-list", words="verdicts CI", docs=("gate", "gate-ci", "gate-bench")),
        Page("Suites", "suite-list", words="benchmarks", docs=("suites", "baselines")),
        Page("Regressions", "regression-list", words="slower", docs=("builds", "gate")),
        Page("Environments", "environments", words="driver toolkit CUDA stale", docs=("environments",)),
        Page("Channels", "notified", words="notifications webhook slack mail", docs=("gate-ci",)),
    )),
)
SETTINGS = Section("Settings", (
    Page("Inbox", "inbox", "i", words="unread mentions notifications following", also=("/follow/",), docs=("threads",)),
    Page("Workers", "workers", "w", words="queues GPUs jobs", docs=("tuning",)),
    Page("Status", "status", words="health disk database clock queues", docs=("operate",)),
    Page("Capture targets", "capture-targets", needs="profiles.add_capturetarget", words="scripts programs"),
    Page("Forges", "forge-list", words="github gitlab jira issues checks webhook", also=("/issues/",), docs=("threads",)),
    Page("API tokens", "tokens", words="CI authorization", docs=("gate-ci",)),
    Page("Agents", "agents", words="MCP model context protocol tools programs calls budgets LLM", docs=("agents",)),
    Page("Storage", "storage", words="retention quota disk delete old keep days", docs=("retention",)),
    Page("Sessions", "sessions", words="signed in devices browsers sign out", docs=("people",)),
    Page("People", "people", needs="auth.view_user", words="users roles owners invite deactivate administration", docs=("people",)),
    Page("Projects", "project-list", words="teams spaces members roles people", docs=("people",)),
    Page("Audit log", "audit", needs="webapp.view_auditentry", words="who changed rights deletes exports",
         docs=("people",)),
))
FURTHER = (                             # of a section's pages, without a tab
    Page("GPU clocks", "gpu-clocks", words="lock clocks persistence mode nvidia-smi frequency MHz", docs=("measurement",)),
    Page("Quarantine", "quarantine-list", words="failed configurations"),
    Page("Configs: why this one", "cache-why", words="resolution rules"),
    Page("Configs: portability", "cache-portability", words="other GPUs"),
    Page("Configs: shape buckets", "cache-buckets"),
    Page("Configs: served", "cache-served", words="launches"),
    Page("Configs: revalidations", "cache-revalidations", words="stale"),
    Page("Docs", "document-list", "d", words="documentation manual help"),
    Page("API reference", "api-docs", words="REST openapi swagger"),
    Page("Second factor", "mfa_index", words="two-factor TOTP codes security"),
    Page("Password", "password", words="change account"),
)
ACTIONS = (
    Page("Import a profile", "profile-upload", needs="profiles.add_profile", words="upload drop trace file"),
    Page("New capture", "capture-new", needs="profiles.add_capture", words="record nsys ncu"),
    Page("New tune job", "tune-new", needs="tuner.add_tunejob", words="autotune start"),
    Page("Check a kernel", "kernel-check-new", needs="tuner.add_kernelcheck", words="paste bring triton CUDA file adapter init"),
    Page("Submit a candidate", "candidate-new", needs="tuner.add_candidate", words="kernel patch diff file judge"),
    Page("New suite", "suite-new", needs="tuner.add_suite", words="benchmark watch kernels"),
    Page("Start a gate", "gate-new", needs="tuner.add_gate", words="new check build CI"),
    Page("Compare two profiles", "compare", words="diff builds"),
    Page("Capture running jobs", "fleet-captures", needs="profiles.add_fleetcapture", words="deep agent"),
    Page("Capture a serving engine", "engine-servers", needs="profiles.add_enginecapture", words="vllm sglang"),
    Page("Schedule captures", "capture-schedules", needs="profiles.add_captureschedule", words="nightly every build"),
    Page("Measure ceilings of a GPU", "ceilings", needs="profiles.add_capture", words="peak bandwidth"),
    Page("Import or export configs", "cache-exchange", words="file"),
    Page("Add a channel", "notified", needs="tuner.add_notified", words="webhook mail notifications"),
    Page("New API token", "tokens", words="make authorization"),
)


@dataclass(frozen=True)
class Place:
    """Where a page lies: its section, and the tab of it that is lit."""

    section: Section
    page: Page


@cache
def _prefixes() -> list[tuple[str, Place]]:
    pairs = [(prefix, Place(section, page)) for section in (*SECTIONS, SETTINGS) for page in section.pages
             for prefix in (page.path, *page.also) if prefix != "/"]
    return sorted(pairs, key=lambda each: -len(each[0]))


def place_of(path: str) -> Place | None:
    """Return where an address lies, by the longest prefix; None for search, documents and what belongs nowhere."""
    if path == "/":
        return Place(SECTIONS[0], SECTIONS[0].pages[0])
    return next((place for prefix, place in _prefixes() if path.startswith(prefix)), None)


def tabs_of(path: str) -> tuple[Page, ...]:
    """Return the tabs of an address; none where its section has one page or the page has its own."""
    place = place_of(path)
    return place.section.pages if place and len(place.section.pages) > 1 and not NO_TABS.match(path) else ()


def allowed(pages: tuple[Page, ...], user: Allowed | None) -> list[Page]:
    """Return the pages that this person may open."""
    return [page for page in pages if not page.needs or (user is not None and user.has_perm(page.needs))]


def entries(user: Allowed | None) -> list[dict[str, Any]]:
    """Return what the palette and the keys know at once: pages and actions that this person may open."""
    tables = [(section.pages, "page", section.title) for section in (*SECTIONS, SETTINGS)]
    tables += [(FURTHER, "page", ""), (ACTIONS, "action", "")]
    rows = [{"kind": kind, "title": _full_title(page, section), "url": page.url, "words": page.words, "keys": page.keys}
            for pages, kind, section in tables for page in allowed(pages, user)]
    return rows + _document_entries()


def _document_entries() -> list[dict[str, Any]]:
    return [{"kind": "document", "title": title, "url": reverse("document", args=[name]), "words": "", "keys": ""}
            for name, title in titles().items()]


def _full_title(page: Page, section: str) -> str:
    return page.title if section in ("", page.title, SETTINGS.title) else f"{section}: {page.title}"
