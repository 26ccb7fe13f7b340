"""Ask Ridgepoint whether a build made kernels slower, from a CI pipeline. One file, standard library only, Python 3.8 or later.

    export RIDGEPOINT_URL=https://guard.example RIDGEPOINT_TOKEN=rp_…      # a token of scope "read and write"
    python ridgepoint_gate.py --suite serving --build "$GITHUB_SHA" --markdown comment.md --junit gate.xml

Exit code: 0 pass (PASS, FASTER, a suite's first build), 1 SLOWER, 2 could not decide (AMBIGUOUS, NO DATA, stopped, or no answer
within --timeout), 3 error. Progress goes to standard error, the verdict and the table to standard output.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

PASS, SLOWER, UNDECIDED, ERROR = 0, 1, 2, 3
FORMS = {"markdown": "md", "junit": "junit", "json": "json", "github": "github"}     # option -> ?format=
WAIT_S = 10.0                    # of one question: shorter than the patience of common proxies
ASK_S, ANSWER_S = 60.0, 300.0    # without a byte; for the whole answer: some send a byte a minute
MAX_ANSWER, MAX_RUNS = 64 * 2**20, 256 * 2**20      # bytes
RETRIED = (408, 425, 429, 502, 503, 504)
SHA = re.compile("[0-9a-f]{40}([0-9a-f]{24})?")
SHOWN = 40                       # kernels in the table
SHA_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT", "CIRCLE_SHA1", "BUILD_SOURCEVERSION",
                 "DRONE_COMMIT_SHA", "BITBUCKET_COMMIT", "TRAVIS_PULL_REQUEST_SHA", "TRAVIS_COMMIT",
                 "APPVEYOR_PULL_REQUEST_HEAD_COMMIT", "APPVEYOR_REPO_COMMIT", "SEMAPHORE_GIT_SHA", "CIRRUS_CHANGE_IN_REPO",
                 "CODEBUILD_RESOLVED_SOURCE_VERSION")
BRANCH_VARIABLES = ("GITHUB_ACTIONS", "GITHUB_REF", "GITLAB_CI", "CI_COMMIT_REF_NAME", "JENKINS_URL", "GIT_BRANCH", "BUILDKITE",
                    "BUILDKITE_BRANCH", "CIRCLECI", "CIRCLE_BRANCH", "TF_BUILD", "BUILD_SOURCEBRANCH", "DRONE",
                    "BITBUCKET_BUILD_NUMBER", "TRAVIS", "APPVEYOR", "SEMAPHORE", "CIRRUS_CI", "CODEBUILD_BUILD_ID",
                    "CI")                                # by which a CI is known: two of them where older ones set but the second
MAIN = ("main", "master", "trunk")
MOST_ANCESTORS = 100             # first parents of the build, sent so that builds stand in their order whoever ends first
GIT_S, DAY_S = 20.0, 86400.0
FIRST_COMMIT_S = 10**9           # 2001: older commits say nothing of when they were made
MARK = {"SLOWER": "▲", "FASTER": "▼", "AMBIGUOUS": "?", "NO DATA": "-", "PASS": " "}
if TYPE_CHECKING:
    Document = dict[str, Any]


class GateError(Exception):
    """What ends with exit code 3; str is one line for a person."""


class NoAnswer(GateError):
    """The server could not be reached, or does not answer."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        raise GateError(f"the server redirects to {newurl[:200]}: give that address as --server")


class Server:
    """The API of one Ridgepoint. A request is tried again while the network fails, for up to `patience_s`."""

    def __init__(self, address: str, token: str, patience_s: float = 120.0, say: Callable[[str], None] = lambda line: None) -> None:
        address, token = address.strip(), token.strip()          # files and secrets of CI end with a line's end
        try:
            parts = urllib.parse.urlsplit(address)
            fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and parts.username is None
        except ValueError:                                       # of a port that is none, of half an IPv6 address
            fine = False
        if not fine or re.search(r"\s", address) or not re.fullmatch("[!-~]*", parts.path):
            raise GateError(f"--server: write an address like https://guard.example, not {_hide_password(address)[:100]!r}")
        if token and not re.fullmatch("[!-~]+", token):
            raise GateError("the token holds a space or a letter that no token has: copy it again")        # and is not printed
        self.address, self.token, self.patience_s, self.say = address.rstrip("/"), token, patience_s, say
        self._opener = urllib.request.build_opener(_NoRedirect)

    def ask(self, method: str, path: str, body: Document | None = None, **more: str) -> bytes:
        """The answer's bytes. Raises NoAnswer when the network failed for too long, GateError when the server refused.

        `more` are headers.
        """
        url = path if path.startswith(("http://", "https://")) else self.address + path
        try:
            data = None if body is None else json.dumps(body, allow_nan=False).encode()
        except ValueError as error:                      # 1e999 is infinite
            raise GateError(f"what is asked cannot be written as JSON: {error}") from error
        headers = {"Accept": "application/json", "User-Agent": "ridgepoint-gate", **more}
        if self.token:
            headers["Authorization"] = "Token " + self.token
        if data is not None:
            headers["Content-Type"] = "application/json"
        until, wait = time.monotonic() + self.patience_s, 1.0
        while True:
            try:
                with self._opener.open(urllib.request.Request(url, data, headers, method=method), timeout=ASK_S) as answer:
                    return _read_bounded(answer)
            except urllib.error.HTTPError as error:
                if error.code not in RETRIED:
                    raise GateError(_refusal(error)) from error
                why, later = f"answers {error.code}", _seconds(error.headers.get("Retry-After"))
            except (OSError, EOFError, http.client.HTTPException) as error:      # URLError and timeouts are OSError
                why, later = "does not answer: {}".format(getattr(error, "reason", error)), None
            pause = max(later or 0.0, wait * random.uniform(0.75, 1.25))         # "Retry-After: 0" is no leave to hammer
            if time.monotonic() + pause > until:
                raise NoAnswer(f"{self.address} {why}, tried for {self.patience_s:.0f} s")
            self.say(f"{self.address} {why}; trying again in {pause:.0f} s")
            time.sleep(pause)
            wait = min(wait * 2, 20.0)

    def document(self, method: str, path: str, body: Document | None = None, **more: str) -> Document:
        try:
            document = json.loads(self.ask(method, path, body, **more))
        except (ValueError, RecursionError) as error:
            raise GateError(f"{self.address}{path} does not answer with JSON: is this the address of a Ridgepoint?") from error
        if not isinstance(document, dict):
            raise GateError(f"{self.address}{path} answers with something else than a gate")
        return document

    def gate_create(self, asked: Document) -> Document:
        """One gate, however often it must be asked: where an answer was lost, the key finds the gate that was made."""
        return self.document("POST", "/api/gates/", asked, **{"Idempotency-Key": uuid.uuid4().hex})

    def gate(self, gate: int, wait_s: float = 0.0) -> Document:
        return self.document("GET", f"/api/gates/{gate}/" + (f"?wait={wait_s:g}" if wait_s > 0 else ""))

    def gate_stop(self, gate: int) -> Document:
        return self.document("POST", f"/api/gates/{gate}/stop/", {})

    def report(self, gate: int, form: str, **more: str) -> bytes:
        query = urllib.parse.urlencode({"format": form, **{name: value for name, value in more.items() if value}})
        return self.ask("GET", f"/api/gates/{gate}/report/?{query}")


def follow_gate(server: Server, gate: Document, timeout_s: float, say: Callable[[str], None]) -> Document:
    """The gate when it has ended, or as it is after `timeout_s`."""
    until, last_line = time.monotonic() + timeout_s, ""
    while gate.get("exit_code") is None:
        line = "gate {}: {}".format(gate.get("id"), (gate.get("progress") or {}).get("says") or gate.get("status"))
        if line != last_line:
            say(line)
            last_line = line
        left = until - time.monotonic()
        if left <= 0:
            return gate
        start_s = time.monotonic()
        gate = server.gate(int(gate["id"]), min(WAIT_S, left))
        if gate.get("exit_code") is None and time.monotonic() - start_s < 1.0:     # the server waits for no one now
            time.sleep(min(3.0, max(0.0, until - time.monotonic())))
    return gate


def read_runs(path: str) -> list[Any]:
    """A runs file (JSON Lines, gzip or not): one object per line. Says which line is wrong."""
    try:
        with open(path, "rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with (gzip.open(path, "rb") if zipped else open(path, "rb")) as file:
            text = file.read(MAX_RUNS + 1)
    except (OSError, EOFError) as error:
        raise GateError(f"{path}: {error}") from error
    if len(text) > MAX_RUNS:
        raise GateError(f"{path}: holds more than {MAX_RUNS // 2**20} MiB")
    runs = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            run = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise GateError(f"{path}, line {number}: {error}") from error
        if not isinstance(run, dict):
            raise GateError(f"{path}, line {number}: not an object")
        runs.append(run)
    if not runs:
        raise GateError(f"{path}: holds no run")
    return runs


# ---- what a person reads ----

def gate_table(gate: Mapping[str, Any]) -> str:
    """Verdict, reason and the kernels, worst first."""
    kernels = [kernel for kernel in gate.get("kernels") or [] if isinstance(kernel, dict)]
    verdict = gate.get("verdict") or str(gate.get("status", "")).upper()
    lines = ["{}: {}".format(verdict, gate.get("reason") or (gate.get("error") or {}).get("what") or "no reason was given")]
    rows = [("", "kernel", "baseline", "candidate", "p50", "interval", "runs")]
    for kernel in kernels[:SHOWN]:
        mark = MARK.get(str(kernel.get("verdict")), "")
        rows.append(("{} {}".format(mark, kernel.get("verdict", "")), _name(kernel), _us_text(kernel.get("baseline_us")),
                     _us_text(kernel.get("candidate_us")), _change_text(kernel.get("ratio_p50")), _interval_text(kernel.get("ci")),
                     "{}/{}".format(_count_text(kernel.get("baseline_runs")), _count_text(kernel.get("candidate_runs")))))
    if kernels:
        wide = [max(len(row[n]) for row in rows) for n in range(7)]
        lines += ["  ".join(f"{cell:{'<' if n < 2 else '>'}{wide[n]}}" for n, cell in enumerate(row)).rstrip() for row in rows]
    if len(kernels) > SHOWN:
        lines.append(f"… and {len(kernels) - SHOWN} more")
    for kernel in kernels[:SHOWN]:
        why = str(kernel.get("reason") or "")
        if kernel.get("verdict") in ("SLOWER", "AMBIGUOUS", "NO DATA") and why and why not in str(gate.get("reason")):
            lines.append("{} {}: {}".format(MARK[kernel["verdict"]], _name(kernel), why))
    for entry in gate.get("standing") or []:
        if isinstance(entry, dict) and entry.get("says") and str(entry["says"]) not in "\n".join(lines):
            lines.append(str(entry["says"]))
    lines += [f"Note: {note}" for note in (gate.get("notes") or [])[:SHOWN]]
    if gate.get("green"):
        lines.append(str(gate["green"]))
    page = (gate.get("links") or {}).get("page")
    if (gate.get("environment") or {}).get("recorded"):
        lines.append("These times are {}".format(gate["environment"]["recorded"]))
    if page:
        lines.append(f"Evidence: {page}")
    return _printable("\n".join(lines))


def _name(kernel: Mapping[str, Any]) -> str:
    shape = kernel.get("shape")
    parts = [str(kernel.get("op", ""))] + ["{}={}".format(*pair) for pair in (shape.items() if isinstance(shape, dict) else ())]
    return " ".join(str(kernel.get("key") or " ".join(parts)).split())[:90]


def _change_text(ratio: Any) -> str:
    return f"{_percent(ratio):+.1f} %" if _is_number(ratio) else "—"


def _interval_text(ci: Any) -> str:
    if not isinstance(ci, list) or len(ci) != 2 or not all(map(_is_number, ci)):
        return "—"
    return f"{_percent(ci[0]):+.1f} … {_percent(ci[1]):+.1f} %"


def _percent(ratio: float) -> float:
    return round(100 * (ratio - 1), 1) + 0.0        # + 0.0: never "-0.0"


def _us_text(value: Any) -> str:
    return f"{value:.4g} µs" if _is_number(value) else "—"


def _count_text(value: Any) -> str:
    return str(value) if _is_number(value) else "—"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _hide_password(address: str) -> str:
    return re.sub("//[^/]*@", "//…@", address)


def _printable(text: str) -> str:
    """Without what would steer a terminal."""
    return "".join(char if char == "\n" or char.isprintable() else " " for char in text)


# ---- the command ----

def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ridgepoint_gate.py", description="Ask whether a build made kernels slower.", epilog=(
        "Exit code: 0 pass, 1 slower, 2 could not decide, 3 error."))
    env = os.environ
    parser.add_argument("--server", default=env.get("RIDGEPOINT_URL", ""), metavar="URL", help="default: RIDGEPOINT_URL")
    parser.add_argument("--token", default="", help="better in RIDGEPOINT_TOKEN: a command line is seen by every user of a machine")
    parser.add_argument("--suite", default="", help="name of the benchmark suite")
    parser.add_argument("--build", default=_first_set(SHA_VARIABLES), help="commit or name; default: the CI's own variable")
    parser.add_argument("--gate", type=int, metavar="ID", help="follow a gate that was started before, instead of starting one")
    parser.add_argument("--against", default="", metavar="BUILD", help="compare with this build; without it, with the baseline")
    parser.add_argument("--parent", default="", metavar="BUILD", help="the build before this one")
    parser.add_argument("--branch", default=None, help="default: by the CI's variables; a pull request is never the main line")
    parser.add_argument("--title", default="", help="first line of the commit message")
    parser.add_argument("--url", default="", help="of the pull request or pipeline")
    for name in ("gpu", "toolkit", "driver", "device"):
        parser.add_argument("--" + name, default="", help="of the environment to measure in")
    parser.add_argument("--runs", metavar="FILE", help="runs that were measured here (JSON Lines, gzip or not), where the suite is "
                                                       "of kind uploaded")
    parser.add_argument("--shard", default="", metavar="I/N", help="of --runs: one of N jobs with parts of the build; the gate "
                                                                  "waits for all of them")
    parser.add_argument("--attempt", default=None, help="of --runs: the pipeline's job and try; in another one equal names of "
                                                        "runs are other processes; default: by the CI's variables")
    parser.add_argument("--fresh-runs", type=int, metavar="N", help="fresh processes to measure; default: the suite's")
    parser.add_argument("--configs", metavar="FILE", help="JSON: kernel key -> configuration that this build is measured with")
    parser.add_argument("--allow-gone", action="store_true", help="kernels that the baseline has and this build has not are meant; "
                                                                  "without it they are NO DATA, exit 2")
    parser.add_argument("--wait", action="store_true", help="until it is decided (this is so without the option too)")
    parser.add_argument("--start-only", action="store_true", help="start the gate, print its number, exit 0; ask later: --gate")
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="S", help="then exit 2; the gate goes on (default 3600)")
    parser.add_argument("--patience", type=float, default=120.0, metavar="S", help="for a failing network (default 120)")
    parser.add_argument("--keep", action="store_true", help="when this is interrupted, let the gate go on")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    for name, what in (("markdown", "a comment"), ("junit", "JUnit XML"), ("json", "all of it"), ("github", "a check run")):
        parser.add_argument("--" + name, metavar="FILE", help=f"write {what} here; - is standard output")
    parser.add_argument("--head-sha", default="", help="with --github: the commit, where the build is not called by it")
    parser.add_argument("--undecided", default="", choices=["", "neutral", "action_required", "failure"],
                        help="with --github: conclusion of AMBIGUOUS (default neutral, which GitHub lets pass)")
    return parser


def gate_request(given: argparse.Namespace) -> Document:
    """The body of POST /api/gates/."""
    if not given.suite or not given.build:
        raise GateError("name --suite and --build (or --gate)")
    query: Document = {"suite": given.suite, "build": given.build}
    if given.branch is None:
        given.branch = ci_branch(os.environ) or git_branch(given.build)
    query.update(git_history(given.build))
    query.update({name: getattr(given, name) for name in ("against", "parent", "branch", "title", "url") if getattr(given, name)})
    environment = {name: getattr(given, name) for name in ("gpu", "toolkit", "driver", "device") if getattr(given, name)}
    if environment:
        query["environment"] = environment
    if given.allow_gone:
        query["allow_gone"] = True
    if given.runs and given.fresh_runs is not None:
        raise GateError("--runs and --fresh-runs: one of them")
    if given.shard and not given.runs:
        raise GateError("--shard is said of --runs")
    if given.runs:
        query["runs"] = read_runs(given.runs)
        extras = {"shard": given.shard, "attempt": ci_attempt(os.environ) if given.attempt is None else given.attempt}
        query.update({name: value for name, value in extras.items() if value})
    elif given.fresh_runs is not None:
        query["runs"] = given.fresh_runs
    if given.configs:
        try:
            with open(given.configs, encoding="utf-8") as file:
                query["configs"] = json.load(file, parse_constant=_no_constant)
        except (OSError, ValueError, RecursionError) as error:
            raise GateError(f"{given.configs}: {error}") from error
    return query


# ---- which job and try ----

ATTEMPT_VARIABLES = (("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"), ("CI_JOB_ID",), ("BUILDKITE_JOB_ID",), ("CIRCLE_WORKFLOW_JOB_ID",),
                     ("CIRCLE_BUILD_NUM",), ("BUILD_BUILDID", "SYSTEM_STAGEATTEMPT", "SYSTEM_JOBATTEMPT"),
                     ("TRAVIS_JOB_ID",), ("APPVEYOR_JOB_ID",), ("SEMAPHORE_JOB_ID",), ("CIRRUS_TASK_ID",), ("CODEBUILD_BUILD_ID",),
                     ("DRONE_BUILD_NUMBER", "DRONE_STAGE_NUMBER"), ("BITBUCKET_BUILD_NUMBER", "BITBUCKET_STEP_RUN_NUMBER"),
                     ("BUILD_TAG",))
MOST_ATTEMPT = 120               # characters that the server takes


def ci_attempt(env: Mapping[str, str]) -> str:
    """What tells this try of a pipeline's job from every other, by the CI's variables; "" outside of one.

    A job that is run again measures other processes, though they are called 1 to 5 as before. The jobs of one matrix of GitHub
    have no variable that tells them apart: those say --shard.
    """
    for names in ATTEMPT_VARIABLES:
        if env.get(names[0]):
            return ".".join(env[name] for name in names if env.get(name))[-MOST_ATTEMPT:]
    return ""


# ---- which branch, by the variables that each CI documents ----

def ci_branch(env: Mapping[str, str]) -> str:
    """The branch that a pipeline runs for, "" where its variables do not say.

    "main" is said only of the base repository's own: a pull request from a fork's main is "pull/12/main", a tag "tags/v1".
    """
    if not any(env.get(name) for name in BRANCH_VARIABLES):
        return ""
    for reader in (_github, _gitlab, _jenkins, _buildkite, _circleci, _azure, _drone, _bitbucket, _codebuild, _others):
        branch = reader(env)
        if branch is not None:
            own, base = own_repository(env), env.get("RIDGEPOINT_REPOSITORY", "")
            # a pipeline of a fork's own
            is_other = bool(base and "/" in own and own.lower() != base.lower() and branch and not branch.startswith("pull/"))
            return "{}:{}".format(own.split("/")[0], branch) if is_other else branch
    return ""


REPOSITORY_VARIABLES = ("GITHUB_REPOSITORY", "CI_PROJECT_PATH", "DRONE_REPO", "BITBUCKET_REPO_FULL_NAME", "BUILD_REPOSITORY_NAME",
                        "TRAVIS_REPO_SLUG", "APPVEYOR_REPO_NAME", "SEMAPHORE_GIT_REPO_SLUG", "CIRRUS_REPO_FULL_NAME", "CI_REPO")


def own_repository(env: Mapping[str, str]) -> str:
    """The repository that the pipeline runs in, as owner/name; "" where nobody says."""
    if env.get("CIRCLE_PROJECT_USERNAME"):
        return "{}/{}".format(env["CIRCLE_PROJECT_USERNAME"], env.get("CIRCLE_PROJECT_REPONAME", ""))
    if env.get("BUILDKITE_REPO"):
        return "/".join(_repository(env["BUILDKITE_REPO"]).split("/")[-2:])
    return next((env[name] for name in REPOSITORY_VARIABLES if env.get(name)), "")


def _pull(number: str, source: str, fork: bool) -> str:
    """Of a pull request: its source branch, told apart where it is a fork's or is called like the main line."""
    source = _short_ref(source)
    return "/".join(filter(None, ("pull", number, source))) if fork or source in ("", *MAIN) else source


def _short_ref(ref: str) -> str:
    return re.sub("^(?:refs/heads/|refs/remotes/[^/]+/|refs/|(?:remotes/)?origin/)", "", ref)


def _github(env: Mapping[str, str]) -> str | None:
    if not env.get("GITHUB_ACTIONS") and not env.get("GITHUB_REF"):
        return None
    ref, event, kind = env.get("GITHUB_REF", ""), _github_event(env), env.get("GITHUB_EVENT_NAME", "")
    if kind.startswith("pull_request") or env.get("GITHUB_HEAD_REF"):
        head, base = (_dig(event, "pull_request", end, "repo", "full_name") for end in ("head", "base"))
        number = _dig(event, "number") or _dig(event, "pull_request", "number") or "".join(re.findall(r"^refs/pull/(\d+)", ref))
        # without the payload nobody knows whose branch it is
        return _pull(number, env.get("GITHUB_HEAD_REF") or _dig(event, "pull_request", "head", "ref"), head != base or not head)
    if kind == "workflow_run":                  # how forks' pull requests are measured with secrets: GITHUB_REF is the base's main
        branch, head = _dig(event, "workflow_run", "head_branch"), _dig(event, "workflow_run", "head_repository", "full_name")
        if head != _dig(event, "repository", "full_name"):
            return "{}:{}".format(head.split("/")[0] or "fork", branch)
        return _pull("", branch, False) if _dig(event, "workflow_run", "event").startswith("pull_request") else branch
    if kind == "issue_comment" and _dig(event, "issue", "pull_request", "url"):                # "/measure" under a pull request
        return _pull(_dig(event, "issue", "number"), "", True)
    return _short_ref(ref or env.get("GITHUB_REF_NAME", ""))           # a merge queue's is gh-readonly-queue/main/pr-…


def _dig(document: Any, *names: str) -> str:
    """The text or number at these names, "" without one."""
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return str(document) if isinstance(document, (str, int)) and not isinstance(document, bool) else ""


def _github_event(env: Mapping[str, str]) -> Document:
    try:
        with open(env.get("GITHUB_EVENT_PATH", ""), encoding="utf-8") as file:
            event = json.loads(file.read(2**24))
    except (OSError, ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _gitlab(env: Mapping[str, str]) -> str | None:
    if not env.get("GITLAB_CI") and not env.get("CI_COMMIT_REF_NAME"):
        return None
    number = env.get("CI_MERGE_REQUEST_IID", "")
    if number or env.get("CI_PIPELINE_SOURCE") == "merge_request_event":
        source, target = env.get("CI_MERGE_REQUEST_SOURCE_PROJECT_PATH"), env.get("CI_MERGE_REQUEST_PROJECT_PATH")
        return _pull(number, env.get("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", ""), source != target)
    if env.get("CI_EXTERNAL_PULL_REQUEST_IID"):                        # of a repository on GitHub
        ends = [env.get(f"CI_EXTERNAL_PULL_REQUEST_{end}_REPOSITORY") for end in ("SOURCE", "TARGET")]
        return _pull(env["CI_EXTERNAL_PULL_REQUEST_IID"], env.get("CI_EXTERNAL_PULL_REQUEST_SOURCE_BRANCH_NAME", ""),
                     ends[0] != ends[1])
    if env.get("CI_COMMIT_TAG"):
        return "tags/" + env["CI_COMMIT_TAG"]
    return env.get("CI_COMMIT_BRANCH") or env.get("CI_COMMIT_REF_NAME", "")


def _jenkins(env: Mapping[str, str]) -> str | None:
    if not env.get("JENKINS_URL") and not env.get("GIT_BRANCH"):
        return None
    if env.get("CHANGE_ID"):
        return _pull(env["CHANGE_ID"], env.get("CHANGE_BRANCH", ""), bool(env.get("CHANGE_FORK")))
    if env.get("gitlabMergeRequestIid"):                               # the plugins for GitLab, GitHub's pull requests, Gerrit
        fork = env.get("gitlabSourceNamespace") != env.get("gitlabTargetNamespace")
        return _pull(env["gitlabMergeRequestIid"], env.get("gitlabSourceBranch", ""), fork)
    if env.get("ghprbPullId"):
        author, own = _repository(env.get("ghprbAuthorRepoGitUrl", "")), env.get("ghprbGhRepository", "").lower()
        return _pull(env["ghprbPullId"], env.get("ghprbSourceBranch", ""), not own or not author.endswith("/" + own))
    if env.get("GERRIT_CHANGE_NUMBER") and env.get("GERRIT_EVENT_TYPE") not in ("change-merged", "ref-updated"):
        return _pull(env["GERRIT_CHANGE_NUMBER"], "", True)
    if env.get("TAG_NAME"):
        return "tags/" + env["TAG_NAME"]
    branch = _short_ref(env.get("BRANCH_NAME") or env.get("GIT_LOCAL_BRANCH") or env.get("GIT_BRANCH", ""))
    return "" if branch == "detached" else branch


def _buildkite(env: Mapping[str, str]) -> str | None:
    if not env.get("BUILDKITE") and not env.get("BUILDKITE_BRANCH"):
        return None
    if env.get("BUILDKITE_PULL_REQUEST", "false") not in ("", "false"):
        fork = env.get("BUILDKITE_PULL_REQUEST_REPO", "")
        is_fork = bool(fork) and _repository(fork) != _repository(env.get("BUILDKITE_REPO", ""))
        return _pull(env["BUILDKITE_PULL_REQUEST"], env.get("BUILDKITE_BRANCH", "").rpartition(":")[2], is_fork)
    if env.get("BUILDKITE_TAG"):
        return "tags/" + env["BUILDKITE_TAG"]
    return env.get("BUILDKITE_BRANCH", "")


def _repository(address: str) -> str:
    """git@github.com:acme/k.git and https://github.com/acme/k are one."""
    return re.sub(r"\.git/?$", "", re.sub(r"^(?:\w+://)?(?:[^@/]*@)?", "", address).replace(":", "/").lower())


def _circleci(env: Mapping[str, str]) -> str | None:
    if not env.get("CIRCLECI") and not env.get("CIRCLE_BRANCH"):
        return None
    branch = env.get("CIRCLE_BRANCH", "")
    if env.get("CIRCLE_PR_NUMBER"):                                    # set for pull requests of forks alone
        return _pull(env["CIRCLE_PR_NUMBER"], "" if branch.startswith("pull/") else branch, True)
    return "tags/" + env["CIRCLE_TAG"] if env.get("CIRCLE_TAG") else branch


def _azure(env: Mapping[str, str]) -> str | None:
    if not env.get("TF_BUILD") and not env.get("BUILD_SOURCEBRANCH"):
        return None
    if env.get("BUILD_REASON") == "PullRequest":
        number = env.get("SYSTEM_PULLREQUEST_PULLREQUESTNUMBER") or env.get("SYSTEM_PULLREQUEST_PULLREQUESTID", "")
        return _pull(number, env.get("SYSTEM_PULLREQUEST_SOURCEBRANCH", ""),
                     env.get("SYSTEM_PULLREQUEST_ISFORK", "").lower() == "true")
    return _short_ref(env.get("BUILD_SOURCEBRANCH", ""))


def _drone(env: Mapping[str, str]) -> str | None:
    if not env.get("DRONE"):
        return None
    if env.get("DRONE_PULL_REQUEST"):                                  # DRONE_BRANCH is the target; nobody says whose the source is
        return _pull(env["DRONE_PULL_REQUEST"], env.get("DRONE_SOURCE_BRANCH", ""), True)
    return "tags/" + env["DRONE_TAG"] if env.get("DRONE_TAG") else env.get("DRONE_BRANCH", "")


def _bitbucket(env: Mapping[str, str]) -> str | None:
    if not env.get("BITBUCKET_BUILD_NUMBER"):
        return None
    if env.get("BITBUCKET_PR_ID"):
        return _pull(env["BITBUCKET_PR_ID"], env.get("BITBUCKET_BRANCH", ""), False)
    return "tags/" + env["BITBUCKET_TAG"] if env.get("BITBUCKET_TAG") else env.get("BITBUCKET_BRANCH", "")


def _codebuild(env: Mapping[str, str]) -> str | None:
    if not env.get("CODEBUILD_BUILD_ID"):
        return None
    kind, _, name = env.get("CODEBUILD_WEBHOOK_TRIGGER", "").partition("/")
    if kind == "pr":                                                   # nobody says whose the source is
        return _pull(name, env.get("CODEBUILD_WEBHOOK_HEAD_REF", ""), True)
    return {"branch": name, "tag": f"tags/{name}"}.get(kind, "")


# known by → a pull request's number, source branch, its repository and the own one; tag, branch
OTHERS = {
    "TRAVIS": ("TRAVIS_PULL_REQUEST", "TRAVIS_PULL_REQUEST_BRANCH", "TRAVIS_PULL_REQUEST_SLUG", "TRAVIS_REPO_SLUG", "TRAVIS_TAG",
               "TRAVIS_BRANCH"),
    "APPVEYOR": ("APPVEYOR_PULL_REQUEST_NUMBER", "APPVEYOR_PULL_REQUEST_HEAD_REPO_BRANCH", "APPVEYOR_PULL_REQUEST_HEAD_REPO_NAME",
                 "APPVEYOR_REPO_NAME", "APPVEYOR_REPO_TAG_NAME", "APPVEYOR_REPO_BRANCH"),
    "SEMAPHORE": ("SEMAPHORE_GIT_PR_NUMBER", "SEMAPHORE_GIT_PR_BRANCH", "SEMAPHORE_GIT_PR_SLUG", "SEMAPHORE_GIT_REPO_SLUG",
                  "SEMAPHORE_GIT_TAG_NAME", "SEMAPHORE_GIT_BRANCH"),
    "CIRRUS_CI": ("CIRRUS_PR", "", "", "", "CIRRUS_TAG", "CIRRUS_BRANCH"),
    "CI=woodpecker": ("CI_COMMIT_PULL_REQUEST", "CI_COMMIT_SOURCE_BRANCH", "", "", "CI_COMMIT_TAG", "CI_COMMIT_BRANCH")}


def _others(env: Mapping[str, str]) -> str | None:
    for key, names in OTHERS.items():
        by, _, value = key.partition("=")
        if not env.get(by) or (value and env[by] != value):
            continue
        number, source, repository, own, tag, branch = (env.get(name, "") for name in names)
        if number not in ("", "false"):                                # BRANCH is the target then
            return _pull(number, source, not repository or _repository(repository) != _repository(own))
        return f"tags/{tag}" if tag else _short_ref(branch)
    return None


def git_branch(build: str) -> str:
    """The branch of the checkout where it is of the build, "" where nobody knows: detached, or no checkout."""
    if not _is_checkout_of(build):
        return ""
    branch = _git("rev-parse", "--abbrev-ref", "HEAD")
    if branch and branch != "HEAD":
        return branch
    remote = {_short_ref(ref) for ref in _git("for-each-ref", "--points-at", "HEAD", "--format=%(refname)", "refs/remotes").split()}
    return next(iter(remote - {"HEAD"})) if len(remote - {"HEAD"}) == 1 else ""


def git_history(build: str) -> Document:
    """Commit time and first parents of the build, newest first, of a checkout of it; {} elsewhere."""
    if not _is_checkout_of(build):
        return {}
    parents = _git("log", "--first-parent", f"-{MOST_ANCESTORS + 1}", "--format=%H", build).split()[1:]
    at = _git("show", "-s", "--format=%ct", build)
    history: Document = {"ancestors": parents} if parents else {}
    if at.isdigit() and FIRST_COMMIT_S < int(at) < time.time() + DAY_S / 2:                 # a committer's clock may be anywhere
        history["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(at)))
    return history


def _is_checkout_of(build: str) -> bool:
    return bool(SHA.fullmatch(build.lower())) and _git("rev-parse", "HEAD") == build.lower()


def _git(*arguments: str) -> str:
    try:
        ended = subprocess.run(["git", *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout.decode(errors="replace").strip() if ended.returncode == 0 else ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    try:
        given = parser.parse_args(argv)
    except SystemExit as ended:              # argparse's 2 would say "could not decide"
        return ERROR if ended.code else PASS
    say = (lambda line: None) if given.quiet else _say
    gate: Document = {}
    try:
        server = Server(given.server, given.token or os.environ.get("RIDGEPOINT_TOKEN", ""), given.patience, say)
        check_files([getattr(given, name) for name in FORMS])
        if given.gate is not None:
            gate = server.gate(given.gate)
            check_commit(given.github, given.head_sha, str(gate.get("build")))
        else:
            request = gate_request(given)
            check_commit(given.github, given.head_sha, given.build)
            gate = server.gate_create(request)
        if given.start_only:
            say("gate {} was started: {}".format(gate["id"], (gate.get("links") or {}).get("page", "")))
            print(gate["id"])
            return PASS
        gate = follow_gate(server, gate, given.timeout, say)
        words = gate_table(gate)
        int(gate["id"])
    except KeyboardInterrupt:
        return _stop_on_interrupt(server, gate, given, say)
    except (GateError, KeyError, TypeError, AttributeError, ValueError) as error:
        _say("error: {}".format(error if isinstance(error, GateError) else f"the answer is not a gate: {error!r}"))
        if isinstance(error, NoAnswer) and gate.get("id"):
            _say("gate {} goes on, ask again with --gate {}".format(gate["id"], gate["id"]))
        return ERROR
    wrong = _try_reports(server, gate, given)
    if gate.get("exit_code") is None:
        _say("no verdict within {:.0f} s; gate {} goes on, ask again with --gate {}".format(given.timeout, gate["id"], gate["id"]))
        return UNDECIDED
    print(words, file=sys.stderr if "-" in [getattr(given, name) for name in FORMS] else sys.stdout)
    code = gate["exit_code"]
    if wrong:
        _say(f"error: {wrong}")
    return int(code) if code in ((SLOWER,) if wrong else (PASS, SLOWER, UNDECIDED)) and not isinstance(code, bool) else ERROR


def check_files(paths: Sequence[str | None]) -> None:
    """Before a GPU is asked for: can these be written?"""
    for path in filter(None, paths):
        folder = os.path.dirname(path) or "."
        place = path if os.path.exists(path) else folder
        if path != "-" and (os.path.isdir(path) or not os.path.isdir(folder) or not os.access(place, os.W_OK)):
            raise GateError(f"{path}: cannot be written")


def check_commit(github: str | None, head_sha: str, build: str) -> None:
    """A check run hangs on a commit: GitHub takes its whole sha only."""
    if github and not SHA.fullmatch((head_sha or build).lower()):
        raise GateError("--github needs the commit's whole sha (40 hexadecimal digits): --head-sha, or a build called by it")


def _try_reports(server: Server, gate: Document, options: argparse.Namespace) -> str:
    """What went wrong; "" nothing. The verdict stands whatever becomes of its reports."""
    try:
        _write_reports(server, gate, options)
    except (GateError, KeyboardInterrupt) as error:
        return str(error) or "interrupted"
    return ""


def _write_reports(server: Server, gate: Document, options: argparse.Namespace) -> None:
    for option, form in FORMS.items():
        path = getattr(options, option)
        if not path or (gate.get("exit_code") is None and form == "junit"):       # test cases that have no result yet
            continue
        more = {"head_sha": options.head_sha, "undecided": options.undecided} if form == "github" else {}
        report = server.report(int(gate["id"]), form, **more)
        try:
            if path == "-":
                sys.stdout.buffer.write(report)
                sys.stdout.flush()
            else:
                with open(path, "wb") as file:
                    file.write(report)
        except OSError as error:
            raise GateError(f"{path}: {error}") from error


def _stop_on_interrupt(server: Server, gate: Document, options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """The pipeline was cancelled: the GPU is for others."""
    if gate.get("id") and gate.get("exit_code") is None and not options.keep and options.gate is None:
        server.patience_s = 5.0
        try:
            server.gate_stop(int(gate["id"]))
            say("interrupted: gate {} was stopped".format(gate["id"]))
        except GateError as error:
            say("interrupted: gate {} could not be stopped: {}".format(gate["id"], error))
    return ERROR


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _first_set(names: Sequence[str]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _say(line: str) -> None:
    print(_printable(line), file=sys.stderr, flush=True)


def _read_bounded(answer: Any) -> bytes:
    """All of it: a connection that ends early raises, and half a report is never taken for one."""
    content, until = bytearray(), time.monotonic() + ANSWER_S
    while True:
        part = answer.read1(2**16)
        content += part
        if len(content) > MAX_ANSWER:
            raise GateError(f"the answer holds more than {MAX_ANSWER // 2**20} MiB")
        if time.monotonic() > until:
            raise TimeoutError(f"not at its end after {ANSWER_S:.0f} s")
        if not part:
            if answer.length:                    # bytes that were announced and did not come; None: nobody said how many
                raise http.client.IncompleteRead(bytes(content), answer.length)
            return bytes(content)


def _refusal(error: urllib.error.HTTPError) -> str:
    """What the server says, field by field."""
    try:
        document = json.loads(error.read(2**16))
        words = " — ".join(filter(None, (str(document.get("error", "")), str(document.get("hint", "")))))
    except (ValueError, OSError, AttributeError, RecursionError, http.client.HTTPException):
        words = error.reason if isinstance(error.reason, str) else ""
    return f"{error.code}: {words[:2000]}"


def _seconds(text: str | None) -> float | None:
    return min(60.0, float(text)) if text and text.isdigit() else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def program() -> int:
    """As CI runs it. Python ends with 1 after an error that nobody expected, and 1 says SLOWER: that must be 3."""
    signal.signal(signal.SIGTERM, _interrupt)          # how CI systems cancel
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")         # type: ignore[union-attr]  # logs that know no "µ"
        code = main()
        sys.stdout.flush()
        return code
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return ERROR


if __name__ == "__main__":
    os._exit(program())                                  # a closed standard output would end it with 120
