"""Arguments of `manage.py gate`, and the reports it writes: what both of its halves share. No rows: files are judged without."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.gate import client
from tuner.gate.reports import REPORTS, github, words

FILES = {"markdown": "md", "junit": "junit", "github": "github"}       # option -> kind of report
PLACES = ("gpu", "toolkit", "driver", "device")


def add_arguments(parser: ArgumentParser) -> None:
    """Of the server half; those of `write_reports` hold for files too."""
    rows = parser.add_argument_group("over this server's rows")
    rows.add_argument("--suite", default="", help="name of the benchmark suite")
    rows.add_argument("--build", default="", help="commit or name")
    rows.add_argument("--gate", type=int, metavar="ID", help="follow a gate that was started before")
    for name, what in (("against", "compare with this build; without it, with the baseline"), ("branch", "it is of"),
                       ("parent", "the build before this one"),
                       ("title", "first line of the commit message"), ("url", "of the pull request or pipeline")):
        rows.add_argument(f"--{name}", default="", help=what)
    for name in PLACES:
        rows.add_argument(f"--{name}", default="", help="of the environment to measure in")
    rows.add_argument("--runs", metavar="FILE", help="runs that were measured elsewhere, for a suite of uploaded runs")
    rows.add_argument("--shard", default="", metavar="I/N", help="of --runs: one of N jobs that measure parts of the build")
    rows.add_argument("--attempt", default="", help="of --runs: the pipeline's job and try (default: by the CI's variables)")
    rows.add_argument("--fresh-runs", type=int, metavar="N", help="fresh processes to measure (default: the suite's)")
    rows.add_argument("--configs", metavar="FILE", help="JSON: kernel key -> configuration that this build is measured with")
    parser.add_argument("--allow-gone", action="store_true",
                        help="kernels that the baseline has and the build has not are meant (else NO DATA, exit 2)")
    rows.add_argument("--timeout", type=float, default=3600.0, metavar="S", help="then exit 2; the gate goes on (default 3600)")
    for name in FILES:
        parser.add_argument(f"--{name}", metavar="FILE", help=f"write the {REPORTS[FILES[name]].title} here")
    parser.add_argument("--head-sha", default="", help="with --github: the commit, where the build is not called by it")
    parser.add_argument("--undecided", default="neutral", choices=github.UNDECIDED, help="with --github: conclusion of AMBIGUOUS")


def check_reports(options: Mapping[str, Any], build: str = "") -> None:
    """Before anything is run: can the files be written, is the commit of a check run known? Raises GateError."""
    client.check_files([*(options.get(name) for name in FILES), options.get("json")])
    if options.get("gate") is None:
        client.check_commit(options.get("github"), options.get("head_sha", ""), build)


def write_reports(found: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """The files that were asked for, of a gate's document or of the offline command's. Raises OSError, GateError."""
    for name, kind in FILES.items():
        path = options.get(name)
        if path and kind == "github":
            body = github.check_run(found, head_sha=options["head_sha"], undecided=options["undecided"])     # type: ignore[arg-type]
            if not body["head_sha"]:
                raise client.GateError("--head-sha: name the commit's whole sha, the build is not called by it")
            Path(path).write_text(words.as_text(body))
        elif path:
            Path(path).write_bytes(REPORTS[kind].make(found))
