"""The code of a build fetched from a real repository or an archive, and a suite measured with it."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.urls import reverse

from profiles.base.refused import Refused
from tuner.gate.code import services
from tuner.gate.code.services import folder_problem, parse_git_address
from tuner.gate.suites import job_services
from tuner.models import Build, CodeFetch, Gate, KernelRun, Suite, SuiteCode, SuiteJob, SuiteKernel
from workers.code import git
from workers.code.build import BuildCode, CodeStore
from workers.code.build import run as run_attempt
from workers.code.git import Git, Limits
from workers.code.unpack import Bounds
from workers.core import gpu
from workers.core.child import SandboxError
from workers.gate import suite as suite_worker

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
CARD = gpu.Gpu(0, "GPU-0", "Imaginary GPU", "9.0", "1.0", 1)
CONFIG = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}


class Repository:
    """A repository on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        who = {f"GIT_{part}_{name}": "a@x" for part in ("AUTHOR", "COMMITTER") for name in ("NAME", "EMAIL")}
        return subprocess.run(["git", "-C", str(self.folder), *arguments], check=True, capture_output=True, text=True,
                              env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", **who}).stdout

    def commit(self, **files: str) -> str:
        """Write files (a__b is a/b.py), commit, return the commit."""
        for name, text in files.items():
            path = self.folder / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "HEAD").strip()

    @property
    def url(self) -> str:
        return f"file://{self.folder}"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    if not shutil.which("git"):
        pytest.skip("no git on this machine: apt-get install git")
    monkeypatch.setenv(git.FILES, str(tmp_path / "srv"))
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    return Repository(tmp_path / "srv" / "kernels")


@pytest.fixture
def row() -> Suite:
    made = Suite.objects.create(name="nightly", device="gpu")
    SuiteKernel.objects.create(suite=made, key="softmax R=64 C=64 fp16", op="softmax", shape={"R": 64, "C": 64}, dtype="fp16",
                               family="softmax", config_from="given", config=CONFIG)
    return made


def allow(row: Suite, repository: Repository, folder: str = "") -> None:
    services.code_allow(row, kind="git", address=repository.url, folder=folder, by=None)


def tried(row: Suite, build: str, limits: Limits | None = None) -> CodeFetch:
    fetch = services.fetch_try(row, build, by=None)
    run_attempt(fetch.pk, "worker-1", limits=limits or Limits())
    fetch.refresh_from_db()
    return fetch


def test_a_suite_is_measured_with_the_code_of_each_commit(row: Suite, repository: Repository, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch, api: Any, olga: Any,
                                                          client: Any) -> None:
    monkeypatch.setattr(suite_worker, "continue_followers", lambda job_id: None)
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    before = repository.commit(src__speeds="US = {'softmax': 10.0}\nHASH = 'a' * 64")
    after = repository.commit(src__speeds="US = {'softmax': 12.0}\nHASH = 'b' * 64")
    allow(row, repository, "src")

    def measured(*builds: str) -> list[KernelRun]:
        job = job_services.job_create(row, builds=list(builds), runs=1)
        suite_worker.run(job.pk, "worker-1", module="tests.workers.gate.fresh_child")
        job.refresh_from_db()
        assert (job.status, job.error) == ("done", None)
        assert [each["commit"] for each in job.builds] == [known[each["build"]] for each in job.builds]
        return list(KernelRun.objects.filter(job=job).select_related("build").order_by("pk"))

    known = {before: before, "main": after}
    runs = measured(before, "main")
    assert [round(run.p50_us or 0) for run in runs] == [10, 12] and [run.source_hash[0] for run in runs] == ["a", "b"]
    assert [run.environment["code"] for run in runs] == [before, after]
    # a build stands for what its name was first resolved to: another commit is another build
    repository.commit(src__speeds="US = {'softmax': 99.0}")
    assert round(measured("main")[0].p50_us or 0) == 12
    assert api(olga).get(reverse("api-suite-code", args=["nightly"])).json()["address"] == repository.url
    # the verdict names what each build was
    gate = Gate.objects.create(suite=row, build=Build.objects.get(name="main"), owner=olga)
    SuiteJob.objects.update(gate=gate)
    assert api(olga).get(reverse("api-gate", args=[gate.pk])).json()["code"] == {before: before, "main": after}
    client.force_login(olga)
    assert after[:15] in client.get(reverse("gate", args=[gate.pk])).content.decode()


def test_a_try_says_how_far_it_is_and_what_it_found(row: Suite, repository: Repository) -> None:
    commit = repository.commit(a="A = 1", pkg__b="B = 2")
    repository.git("tag", "-a", "v1", "-m", "x")
    repository.git("branch", "feature/x")
    (repository.folder / "link.py").symlink_to("/etc/passwd")
    (repository.folder / ".gitmodules").write_text(f'[submodule "s"]\n\tpath = s\n\turl = {repository.url}\n')
    later = repository.commit()
    allow(row, repository)
    for build, wanted in ((commit, commit), ("v1", commit), ("feature/x", commit), ("main", later)):
        fetch = tried(row, build)
        assert (fetch.status, fetch.error, fetch.commit) == ("done", None, wanted), build
    assert fetch.said.startswith("unpacking") and fetch.files == 3 and fetch.worker == "worker-1"
    code = BuildCode(row)
    folder, told = code.folder("main")
    assert told == later and not (folder / "link.py").exists() and (folder / "pkg" / "b.py").read_text() == "B = 2"
    assert not (folder / ".git").exists() and code.facts("main")["links"] == 1
    code.release()


@pytest.fixture
def silent_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    monkeypatch.setenv(git.PRIVATE, "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"https://127.0.0.1:{server.getsockname()[1]}/kernels.git"


def programs_of(address: str) -> list[psutil.Process]:
    """The processes of this host that were started with the address."""
    found = []
    for each in psutil.process_iter(["cmdline"]):
        if any(address in word for word in each.info["cmdline"] or ()):
            found.append(each)
    return found


@pytest.mark.parametrize("way", ["page", "api", "command"])
def test_a_try_is_stopped_with_its_processes_and_says_by_whom(row: Suite, silent_host: str, olga: Any, client: Any, api: Any,
                                                              way: str, repository: Repository) -> None:
    services.code_allow(row, kind="git", address=silent_host, by=None)
    fetch = services.fetch_try(row, "main", by=None)
    worker = threading.Thread(target=run_attempt, args=(fetch.pk, "worker-1"))
    worker.start()
    until = time.monotonic() + 20
    while not programs_of(silent_host) and time.monotonic() < until:
        time.sleep(0.02)
    assert programs_of(silent_host), "git waits for the server"
    client.force_login(olga)
    page = client.get(reverse("suite-code", args=[row.pk])).content.decode()
    assert "Stop the try of main" in page
    if way == "page":
        assert client.post(reverse("suite-code-stop", args=[row.pk, fetch.pk])).status_code == 302
    elif way == "api":
        told = api(olga).post(reverse("api-suite-code-stop", args=[row.name, fetch.pk])).json()
        assert (told["status"], told["said"]) == ("stopped", "stopped by olga")
    else:
        call_command("suites", "code", row.name, "--stop", str(fetch.pk))
    began = time.monotonic()
    worker.join(timeout=20)
    assert not worker.is_alive() and time.monotonic() - began < 10
    until = time.monotonic() + 20
    while (left := programs_of(silent_host)) and time.monotonic() < until:       # told to end; on a busy machine it takes a moment
        time.sleep(0.02)
    assert not left
    fetch.refresh_from_db()
    who = "a command on the server" if way == "command" else "olga"
    assert (fetch.status, fetch.said, fetch.error, fetch.heartbeat) == ("stopped", f"stopped by {who}", None, None)
    page = client.get(reverse("suite-code", args=[row.pk])).content.decode()
    assert f"stopped by {who}" in page and "Stop the try" not in page and 'data-under-way="no"' in page


def test_one_that_waits_is_stopped_and_taken_by_no_worker(row: Suite, repository: Repository, olga: Any, alice: Any, client: Any,
                                                          api: Any) -> None:
    repository.commit(a="A = 1")
    allow(row, repository)
    fetch = services.fetch_try(row, "main", by=None)
    client.force_login(alice)
    assert client.post(reverse("suite-code-stop", args=[row.pk, fetch.pk])).status_code == 403
    assert api(alice).post(reverse("api-suite-code-stop", args=[row.name, fetch.pk])).status_code == 403
    with pytest.raises(Refused, match="only owners"):
        services.fetch_stop(fetch, by=alice)
    assert services.fetch_stop(fetch, by=olga)
    run_attempt(fetch.pk, "worker-1")
    fetch.refresh_from_db()
    assert (fetch.status, fetch.worker, fetch.commit) == ("stopped", "", "")
    done = tried(row, "main")
    assert not services.fetch_stop(done, by=olga)
    done.refresh_from_db()
    assert done.status == "done", "one that has ended stays as it is"
    other = Suite.objects.create(name="other", device="gpu")
    client.force_login(olga)
    assert client.post(reverse("suite-code-stop", args=[other.pk, fetch.pk])).status_code == 404
    with pytest.raises(CommandError, match="other has no try"):
        call_command("suites", "code", "other", "--stop", str(fetch.pk))


def test_a_stop_ends_the_wait_for_another_worker(tmp_path: Path) -> None:
    """Two workers of a host want one commit: the second waits for the first's lock."""
    store = CodeStore(tmp_path)
    key = store.key("a")
    with open(tmp_path / f"{key}.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SandboxError, match="stopped"):
            store.find_or_make(key, lambda into: {}, lambda: True)


def test_what_goes_wrong_is_said_with_what_to_do(row: Suite, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit(a="A = 1")
    allow(row, repository)
    missing = "0123456789" * 4
    for build, words in ((missing, f"has no commit {missing}"), ("nowhere", "nowhere is no branch and no tag"),
                         ("abc1234", "is no branch")):
        fetch = tried(row, build)
        assert fetch.status == "failed" and fetch.error and words in fetch.error["what"] and fetch.error["hint"], fetch.error
    allow(row, repository, "missing")
    assert "has no folder missing" in tried(row, "main").error["what"]
    allow(row, repository)
    SuiteCode.objects.update(address=f"{repository.url}-gone")
    assert "ls-remote" in tried(row, "main").error["what"]
    SuiteCode.objects.update(address="ext::sh -c touch% /tmp/x")
    assert tried(row, "main").status == "failed"
    allow(row, repository)
    monkeypatch.setattr(git, "git_version", lambda program: (2, 36))
    assert "git 2.36 is too old on this worker" in tried(row, "main").error["what"]
    monkeypatch.setattr(git.shutil, "which", lambda name: None)
    assert "git is not installed on this worker" in tried(row, "main").error["what"]


def test_a_repository_is_bounded_in_bytes_entries_and_time(row: Suite, repository: Repository) -> None:
    (repository.folder / "data.bin").write_bytes(os.urandom(3 << 20))
    repository.commit(a="A = 1", b="B = 1")
    allow(row, repository)
    fetched = tried(row, "main", Limits(bytes=1 << 20))
    assert fetched.error and "more than 1 MiB for one commit" in fetched.error["what"]
    unpacked = tried(row, "main", Limits(unpacked=Bounds(bytes=1 << 20)))
    assert unpacked.error and "larger than this worker unpacks" in unpacked.error["what"]
    entries = tried(row, "main", Limits(unpacked=Bounds(entries=2)))
    assert entries.error and "more than 2 entries" in entries.error["what"]
    late = tried(row, "main", Limits(seconds=0.0))
    assert late.error and "within 0 s" in late.error["what"]
    assert not list((Path(settings.HOME) / "code").glob("new-*"))


def test_files_of_the_worker_are_fetched_only_where_it_says_so(row: Suite, repository: Repository, monkeypatch: pytest.MonkeyPatch,
                                                               tmp_path: Path) -> None:
    commit = repository.commit(a="A = 1")
    allow(row, repository)
    other = Repository(tmp_path / "elsewhere")
    other.commit(secret="S = 1")
    SuiteCode.objects.update(address=other.url)
    assert "does not lie in the worker's RIDGEPOINT_CODE_FILES" in tried(row, "main").error["what"]
    (repository.folder.parent / "inside").symlink_to(other.folder)
    SuiteCode.objects.update(address=f"file://{repository.folder.parent}/inside")
    assert "does not lie in" in tried(row, "main").error["what"]
    monkeypatch.delenv(git.FILES)
    allow(row, repository)
    assert "file:// is not allowed on this worker" in tried(row, commit).error["what"]


def test_hooks_configuration_and_secrets_of_the_worker_are_not_used(repository: Repository, monkeypatch: pytest.MonkeyPatch,
                                                                    tmp_path: Path) -> None:
    """A git that is a script shows what it is given."""
    commit = repository.commit(a="A = 1")
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    tools, seen = tmp_path / "bin", tmp_path / "seen"
    tools.mkdir()
    (tools / "git").write_text(f'#!/bin/sh\nenv >> {seen}; echo "$@" >> {seen}\nexec {real} "$@"\n')
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    for name in ("RIDGEPOINT_SECRET_KEY", "DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "GIT_SSH_COMMAND",
                 "https_proxy"):
        monkeypatch.setenv(name, "private")
    fetching = Git(repository.url, tmp_path / "fetched", Limits())
    assert fetching.resolve("main") == commit
    fetching.fetch(commit)
    told = seen.read_text()
    assert "private" not in told and "core.hooksPath=/dev/null" in told and "protocol.allow=never" in told
    assert "GIT_CONFIG_GLOBAL=/dev/null" in told and "GIT_TERMINAL_PROMPT=0" in told and "--no-recurse-submodules" in told


@pytest.mark.git
@pytest.mark.parametrize(("host", "found", "words"), [
    ("inside.example", ["10.0.0.7"], "lies inside this worker's network"), ("metadata.example", ["169.254.169.254"], "lies inside"),
    ("mixed.example", ["140.82.112.3", "127.0.0.1"], "lies inside"), ("v6.example", ["::1"], "lies inside"),
])
def test_hosts_inside_the_network_are_not_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str, found: list[str],
                                                  words: str) -> None:
    monkeypatch.setattr(git, "resolve_host", lambda name, port: found)
    with pytest.raises(SandboxError, match=words):
        Git(f"https://{host}/team/kernels.git", tmp_path / "x", Limits())
    if "169.254.169.254" in found:
        monkeypatch.setenv(git.PRIVATE, "1")
        with pytest.raises(SandboxError, match=words):
            Git(f"https://{host}/team/kernels.git", tmp_path / "x", Limits())


@pytest.mark.git
def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(git, "resolve_host", lambda name, port: ["140.82.112.3"])
    fetching = Git("https://git.example:8443/team/kernels.git", tmp_path / "x", Limits())
    assert {"http.curloptResolve=git.example:8443:140.82.112.3", "http.followRedirects=false"} <= set(fetching._options)
    with pytest.raises(SandboxError, match="needs a key on this worker"):
        Git("ssh://git@git.example/team/kernels.git", tmp_path / "x", Limits())
    monkeypatch.setenv(git.KEY, "/keys/id")
    monkeypatch.setenv(git.HOSTS, "/keys/hosts")
    command = Git("ssh://git@git.example/team/kernels.git", tmp_path / "x", Limits())._environ["GIT_SSH_COMMAND"]
    assert "-i /keys/id" in command and "HostName=140.82.112.3" in command and "HostKeyAlias=git.example" in command
    assert "StrictHostKeyChecking=yes" in command and "-F /dev/null" in command
    monkeypatch.setenv(git.KEY, "/keys/id -o ProxyCommand=x")
    with pytest.raises(SandboxError) as caught:
        Git("ssh://git@git.example/team/kernels.git", tmp_path / "x", Limits())
    assert "without spaces and quotes" in caught.value.hint


@pytest.mark.parametrize("address", [
    "http://host/x.git", "https://user:pw@host/x.git", "https://user@host/x.git", "https://host/x.git?y", "https://host/x#y",
    "https://host", "https://host/-x", "https://host/../x", "https://host/.git", "git@host:x.git", "ssh://host/x",
    "ssh://git:pw@host/x", "ssh://-oProxy@host/x", "ssh://git@-oProxyCommand=x/x", "file://host/x", "file:///a/../b",
    "ext::sh -c x", "--upload-pack=x", "", "https://host/ x", "https://h\u00f6st/x", "ftp://host/x",
    "https://host:0/x", "https://[::1/x", "x" * 400,
])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(Refused):
        parse_git_address(address)


@pytest.mark.parametrize(("folder", "fine"), [
    ("", True), ("src", True), ("kernels-{build}/python", True), ("../x", False), ("/x", False), ("a//b", False), ("-x", False),
    (".git", False), ("a/..", False), ("{x}", False), ("x" * 300, False),
])
def test_folders(folder: str, fine: bool) -> None:
    assert (folder_problem(folder) == "") is fine


def archive(name: str, text: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        info = tarfile.TarInfo(name)
        info.size = len(text)
        made.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def test_archives_are_uploaded_and_are_the_code_of_their_build(row: Suite, api: Any, olga: Any, alice: Any, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    url, archives = (reverse(name, args=["nightly"]) for name in ("api-suite-code", "api-suite-code-archives"))
    client = api(olga)
    assert client.put(url, {"kind": "archive", "folder": "kernels-{build}"}, format="json").status_code == 200
    assert api(alice).put(url, {"kind": "archive"}, format="json").status_code == 403

    def upload(build: str, data: bytes) -> Any:
        return client.generic("POST", f"{archives}?build={build}", data, content_type="application/gzip")

    assert upload("v1", archive("kernels-v1/a.py", "A = 1")).status_code == 201
    assert "a .tar.gz or .zip file" in upload("v1", b"junk").json()["fields"]["file"][0]
    assert "more than 16 MiB" in upload("v1", b"\x1f\x8b" + b"\0" * (17 << 20)).json()["fields"]["file"][0]
    assert "build" in upload("../v1", archive("a", "")).json()["fields"]
    fetch = tried(row, "v1")
    assert fetch.status == "done" and fetch.commit.startswith("sha256:") and fetch.files == 1
    assert "no archive of build v2" in tried(row, "v2").error["what"]
    upload("v3", archive("../../a.py", "A = 1"))
    assert "cannot be a file inside of it" in tried(row, "v3").error["what"]
    told = client.get(url).json()
    assert [each["build"] for each in told["archives"]] == ["v3", "v1"]
    assert told["allowed_by"] == "olga" and len(told["fetches"]) == 3
    for at in range(services.KEPT_ARCHIVES + 3):
        services.archive_put(row, f"n{at}", archive("a.py", str(at)), by=None)
    assert row.code.archives.count() == services.KEPT_ARCHIVES
    assert client.delete(url).status_code == 204 and client.get(url).json()["kind"] is None


def test_owners_alone_allow_and_the_fields_are_named(row: Suite, olga: Any, alice: Any, client: Any) -> None:
    for given, field in (({"kind": "svn"}, "kind"), ({"kind": "git", "address": "http://x/y"}, "address"),
                         ({"kind": "git", "address": "https://x/y", "folder": "../z"}, "folder"),
                         ({"kind": "archive", "address": "x"}, "address")):
        with pytest.raises(Refused) as caught:
            services.code_allow(row, **given, by=olga)
        assert list(caught.value.fields) == [field]
    with pytest.raises(Refused, match="only owners"):
        services.code_allow(row, kind="archive", by=alice)
    with pytest.raises(Refused, match="build_path"):
        Suite.objects.update(build_path="/srv/{build}")
        services.code_allow(Suite.objects.get(), kind="archive", by=olga)
    Suite.objects.update(build_path="")
    where = reverse("suite-code", args=[row.pk])
    client.force_login(alice)
    assert client.get(where).status_code == 200 and client.post(where, {"kind": "archive"}).status_code == 403
    client.force_login(olga)
    wrong = client.post(where, {"kind": "git", "address": "http://x/<b>"})
    assert wrong.status_code == 400 and b"http://x/&lt;b&gt;" in wrong.content and b"the path of a repository is" in wrong.content
    assert client.post(where, {"kind": "git", "address": "https://git.example/x.git"}).status_code == 302
    assert client.post(reverse("suite-code-try", args=[row.pk]), {"build": "-x"}).status_code == 400
    assert client.post(reverse("suite-code-try", args=[row.pk]), {"build": "main"}).status_code == 302
    page = client.get(where).content.decode()
    assert "waits for a worker" in page and "https://git.example/x.git" in page and 'data-under-way="yes"' in page
    assert "https://git.example/x.git" in client.get(reverse("suite", args=[row.pk])).content.decode()
    assert client.post(where, {"do": "forbid"}).status_code == 302 and not SuiteCode.objects.exists()


def test_the_command_says_the_same(row: Suite, repository: Repository, capsys: pytest.CaptureFixture[str],
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit(a="A = 1")
    call_command("suites", "code", "nightly", "--git", repository.url)
    assert repository.url in capsys.readouterr().out
    real = services.fetch_try

    def at_once(*arguments: Any, **named: Any) -> CodeFetch:
        fetch = real(*arguments, **named)
        run_attempt(fetch.pk, "worker-1")
        fetch.refresh_from_db()
        return fetch

    monkeypatch.setattr(services, "fetch_try", at_once)
    call_command("suites", "code", "nightly", "--try", "--build", "main")
    assert "main is " in capsys.readouterr().out
    with pytest.raises(CommandError, match="is no branch and no tag"):
        call_command("suites", "code", "nightly", "--try", "--build", "other")
    call_command("suites", "code", "nightly", "--none")
    assert "what the workers have" in capsys.readouterr().out


def test_folders_are_shared_kept_while_held_and_deleted_oldest_first(tmp_path: Path) -> None:
    store, made = CodeStore(tmp_path / "code", most_bytes=2500), list[str]()

    def find(name: str) -> Any:
        def make(into: Path) -> dict[str, Any]:
            made.append(name)
            (into / "file").write_bytes(b"x" * 1000)
            return {"commit": name}
        return store.find_or_make(store.key(name), make)

    first = find("a")
    assert find("a").facts == {"commit": "a"} and made == ["a"]
    os.utime(first.folder, (1, 1))
    second = find("b")
    os.utime(second.folder, (2, 2))
    second.release()
    find("c").release()
    assert first.folder.exists() and not second.folder.exists()          # the oldest is held

    def fails(into: Path) -> dict[str, Any]:
        raise SandboxError("no")
    with pytest.raises(SandboxError):
        store.find_or_make(store.key("d"), fails)
    assert not (store.root / store.key("d")).exists() and not list(store.root.glob("new-*"))
