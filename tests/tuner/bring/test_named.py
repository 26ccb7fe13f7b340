"""A kernel file that is named by repository and commit, or by package and version: fetched, listed, checked."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from profiles.base.refused import Refused
from tests.tuner.bring.files import ADD
from tuner.bring.checks import services, sources
from tuner.bring.own import picked
from tuner.models import KernelCheck
from workers.code import git, kernel
from workers.code.unpack import Bounds
from workers.core import sandboxed
from workers.core.child import SandboxError
from workers.tune import check as check_worker

pytestmark = pytest.mark.django_db
behind_walls = pytest.mark.skipif(bool(sandboxed.why_not()), reason=f"no sandbox here: {sandboxed.why_not()}")
in_threads = pytest.mark.django_db(transaction=True)        # the worker's own threads look at the row
TREE = {
    "pyproject.toml": "", "ops/__init__.py": "from ops.missing import x\n", "ops/common.py": "WIDTH = 4\n",
    "ops/add.py": "from ops.common import WIDTH\n" + ADD,
    "ops/scale.cu": "extern \"C\" __global__ void __launch_bounds__(256) scale(float* y, int n) { y[0] = n; }\n",
    "tests/test_add.py": ADD, "README.md": "no kernel", "weights.bin": "0" * 100}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The address and the commit of one below a folder that the worker names."""
    if not shutil.which("git"):
        pytest.skip("no git on this machine: apt-get install git")
    folder = tmp_path / "srv" / "kernels"
    for path, text in TREE.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "ops/secret.py").symlink_to("/etc/passwd")
    monkeypatch.setenv(git.FILES, str(tmp_path / "srv"))
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    who = {f"GIT_{part}_{name}": "a@x" for part in ("AUTHOR", "COMMITTER") for name in ("NAME", "EMAIL")}

    def run(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True,
                              env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", **who}).stdout.strip()

    run("init", "--quiet", "--initial-branch=main")
    run("add", "-A")
    run("commit", "--quiet", "-m", "x")
    return f"file://{folder}", run("rev-parse", "HEAD")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only index."""
    pytest.importorskip("pip")
    (tmp_path / "index").mkdir()
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def fetched(source: Mapping[str, Any], owner: Any, monkeypatch: pytest.MonkeyPatch, **more: Any) -> KernelCheck:
    """The row after its worker fetched it; nothing is compiled."""
    monkeypatch.setattr(check_worker, "_compile", lambda found, worker, *rest: services.check_fail(found, worker, "not here"))
    check = sources.check_create(source, owner=owner, **more)
    check_worker.run(check.pk, "here", fetch=kernel.fetch)
    check.refresh_from_db()
    return check


@pytest.mark.parametrize(("given", "field"), [
    (("git@host:team/x", "main", ""), "source"), (("https://host/x y", "main", ""), "source"),
    (("https://host/x", "", ""), "commit"), (("https://host/x", "--upload-pack=x", ""), "commit"),
    (("https://host/x", "a..b", ""), "commit"),
    (("https://host/x", "main", "../x.py"), "path"), (("https://host/x", "main", "x.md"), "path"),
    (("name", "", ""), "source"), (("name>=1", "", ""), "source"), (("name @ https://x/y.whl", "", ""), "source"),
    (("-r==1", "", ""), "source"), (("name==1 --index-url x", "", ""), "source"), (("name==1", "main", ""), "commit")])
def test_what_names_no_file_is_refused(given: tuple[str, str, str], field: str) -> None:
    with pytest.raises(Refused) as refused:
        sources.read_source(*given)
    assert list(refused.value.fields) == [field]


@behind_walls
@in_threads
def test_a_file_of_a_repository_comes_with_what_it_imports(olga: Any, repository: tuple[str, str],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    address, commit = repository
    check = fetched(sources.read_source(address, "main", "ops/add.py"), olga, monkeypatch, call="add(randn(4096), randn(4096))")
    assert (check.file, check.folder, check.source["resolved"]) == ("add.py", "ops", commit)
    assert check.text == TREE["ops/add.py"]
    assert check.siblings == {path: TREE[path] for path in ("ops/__init__.py", "ops/common.py")}
    assert check.result["operators"][0]["name"] == "add_kernel" and check.result["call"].startswith("add(") and check.adapters
    assert sources.source_text(check.source) == f"{address} at {commit}: ops/add.py"


@behind_walls
@in_threads
def test_without_a_path_the_files_that_hold_kernels_are_listed(
        client: Client, olga: Any, sign_in_mode: None, repository: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    client.force_login(olga)
    made = client.post(reverse("kernel-check-new"), {"source": repository[0], "commit": repository[1]})
    monkeypatch.setattr(check_worker, "_compile", None)
    check = KernelCheck.objects.get()
    waiting = client.get(made["Location"]).content.decode()
    assert made.status_code == 302 and "Waiting for a worker to fetch" in waiting and "check-tune" not in waiting
    check_worker.run(check.pk, "here", fetch=kernel.fetch)
    check.refresh_from_db()
    assert [(each["path"], each["kernels"]) for each in check.source["found"]] == [
        ("ops/add.py", ["add_kernel"]), ("ops/scale.cu", ["scale"]), ("tests/test_add.py", ["add_kernel"])]
    assert check.status == "done" and check.source["files"] == 5
    page = client.get(made["Location"]).content.decode()
    assert "3 files with kernels" in page and 'name="path" value="ops/scale.cu"' in page and repository[1] in page


@behind_walls
@in_threads
def test_what_is_not_there_is_said(olga: Any, repository: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    address, commit = repository
    for path, words in (("add.py", "no file add.py; there is ops/add.py"), ("ops/secret.py", "no file ops/secret.py")):
        assert words in fetched(sources.read_source(address, commit, path), olga, monkeypatch).error["what"]
    assert "no branch and no tag" in fetched(sources.read_source(address, "gone"), olga, monkeypatch).error["what"]
    monkeypatch.delenv(git.FILES)
    assert "file:// is not allowed" in fetched(sources.read_source(address, "main"), olga, monkeypatch).error["what"]


@behind_walls
@in_threads
def test_a_wheel_is_downloaded_and_nothing_of_it_installed(olga: Any, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By pip itself, from a folder as its index."""
    wheel(index / "acme_ops-1.2-py3-none-any.whl",
          {"acme_ops/__init__.py": "", "acme_ops/add.py": ADD, "acme_ops/x.so": "0"})
    before = set(Path(sys.prefix).glob("lib/*/site-packages/acme*"))
    check = fetched(sources.read_source("acme-ops==1.2"), olga, monkeypatch)
    assert [each["path"] for each in check.source["found"]] == ["acme_ops/add.py"] and check.source["files"] == 2
    assert check.source["resolved"].startswith("sha256:") and set(Path(sys.prefix).glob("lib/*/site-packages/acme*")) == before
    error = fetched(sources.read_source("acme-ops==1.3"), olga, monkeypatch).error
    assert error["what"] == "acme-ops==1.3: No matching distribution found for acme-ops==1.3"


SET_UP = "open({0!r}, 'w').write('ran')\n"


@behind_walls
@in_threads
def test_a_package_without_a_wheel_is_read_and_its_set_up_never_run(olga: Any, tmp_path: Path, index: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tmp_path / "ran"
    sdist(index / "acme-ops-1.2.tar.gz", {
        "setup.py": SET_UP.format(str(ran)), "backend.py": SET_UP.format(str(ran)), "PKG-INFO": "Name: acme-ops\nVersion: 1.2\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "src/acme_ops/__init__.py": "", "src/acme_ops/add.py": ADD, "weights.bin": "0"})
    check = fetched(sources.read_source("acme-ops==1.2"), olga, monkeypatch)
    assert [each["path"] for each in check.source["found"]] == ["src/acme_ops/add.py"] and check.source["files"] == 4
    data = (index / "acme-ops-1.2.tar.gz").read_bytes()
    assert check.source["resolved"] == f"sha256:{hashlib.sha256(data).hexdigest()}" and not ran.exists()


def sdist(path: Path, files: Mapping[str, str], *others: tarfile.TarInfo, top: str = "acme-ops-1.2/") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(top + name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
        for entry in others:
            archive.addfile(entry)
    return path


def linked(name: str, to: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, to
    return entry


def test_a_hostile_source_distribution_reaches_nothing(tmp_path: Path) -> None:
    limits = git.Limits(bytes=1 << 20, seconds=20.0, unpacked=Bounds(bytes=1 << 16, entries=20, seconds=20.0))
    secret = tmp_path / "secret.py"
    secret.write_text("SECRET = 1\n")

    def unpacked(name: str, *given: Any, **more: Any) -> Path:
        into = tmp_path / name / "code"
        into.mkdir(parents=True)
        kernel.unpack_package(sdist(tmp_path / f"{name}.tar.gz", *given, **more), into, limits)
        return into

    device, outside = linked("acme-ops-1.2/d.py", "", tarfile.CHRTYPE), linked("/etc/x.py", "", tarfile.REGTYPE)
    refused = {"above": ({"../../evil.py": ADD},), "absolute": ({}, outside), "device": ({}, device),
               "bomb": ({"a.py": "0" * (1 << 20)},), "many": ({f"{at}.py": "" for at in range(30)},), "empty": ({},)}
    for name, given in refused.items():
        with pytest.raises(SandboxError):
            unpacked(name, *given)
    links = [linked(f"acme-ops-1.2/{name}", to, kind) for name, to, kind in (
        ("link.py", str(secret), tarfile.SYMTYPE), ("folder", str(tmp_path), tarfile.SYMTYPE),
        ("hard.py", str(secret), tarfile.LNKTYPE))]
    into = unpacked("links", {"a.py": ADD}, *links)
    assert [path.name for path in into.rglob("*")] == ["a.py"]
    # a file through a link that was left out lies in a folder of that name, inside
    through = sdist(tmp_path / "through.tar.gz", {"a.py": ADD}, linked("acme-ops-1.2/folder", str(tmp_path), tarfile.SYMTYPE),
                    linked("acme-ops-1.2/folder/evil.py", "", tarfile.REGTYPE))
    (tmp_path / "through" / "code").mkdir(parents=True)
    kernel.unpack_package(through, tmp_path / "through" / "code", limits)
    assert (tmp_path / "through" / "code" / "folder" / "evil.py").is_file() and not (tmp_path / "folder").exists()
    assert not [path for path in tmp_path.rglob("evil.py") if "through" not in path.parts] and secret.read_text() == "SECRET = 1\n"


def wheel(path: Path, files: Mapping[str, str]) -> None:
    name = "acme_ops-1.2.dist-info"
    told = {f"{name}/METADATA": "Metadata-Version: 2.1\nName: acme-ops\nVersion: 1.2\n",
            f"{name}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n", f"{name}/RECORD": ""}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for each, text in {**files, **told}.items():
            archive.writestr(each, text)
    path.write_bytes(content.getvalue())


def test_a_download_is_bounded_in_time_and_told_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[Any] = []
    popen = subprocess.Popen

    def endless(command: list[str], **more: Any) -> Any:
        began.append(popen(["sleep", "60"], **more))
        return began[-1]

    monkeypatch.setattr(kernel.subprocess, "Popen", endless)
    cases = [(git.Limits(seconds=0.0), False, "not downloaded within 0 s"), (git.Limits(), True, "stopped")]
    for number, (limits, stop, words) in enumerate(cases):
        with pytest.raises(SandboxError, match=words):
            kernel.download("x", "1", tmp_path / str(number), limits, lambda stop=stop: stop)
    assert len(began) == 2 and all(each.returncode is not None for each in began)


@pytest.mark.parametrize("told", [
    {"resolved": "x", "files": 1, "text": "a", "siblings": {}}, {"files": 1}, {"resolved": "a" * 40, "files": 1, "text": ""},
    {"resolved": "a" * 40, "files": 1, "text": "a", "siblings": {"../x.py": ""}}, {"resolved": "a" * 40, "files": "x", "found": []},
    {"resolved": "a" * 40, "files": 1, "found": [{"path": "x.py", "kernels": 1, "count": 1}]}, [], None])
def test_what_was_fetched_is_read_like_an_upload(olga: Any, told: Any) -> None:
    check = sources.check_create(sources.read_source("https://host/x", "main", "a.py"), owner=olga)
    assert KernelCheck.leases.claim(check.pk, "here")
    assert sources.check_fetched(check, "here", told) is None
    assert KernelCheck.objects.get().status == "failed"


def test_a_fetched_file_checked_again_keeps_where_it_is_from(client: Client, olga: Any, sign_in_mode: None) -> None:
    client.force_login(olga)
    source = {**sources.read_source("https://host/x", "main", "ops/add.py"), "resolved": "a" * 40}
    first = services.check_create(ADD, file="add.py", folder="ops", source=source, owner=olga)
    form = {"text": ADD.replace("\n", "\r\n"), "file": "add.py", "folder": "ops", "beside_of": first.pk}
    client.post(reverse("kernel-check-new"), form)
    client.post(reverse("kernel-check-new"), {**form, "text": ADD + "# mine\r\n"})
    assert [check.source for check in KernelCheck.objects.order_by("pk")] == [source, source, None]


def test_kernels_are_listed_by_their_decorators() -> None:
    text = (ADD + "\n@torch.jit.script\ndef no(x): pass\n\n"
            "@triton.autotune(\n    configs=[], key=[])\n@triton.jit\ndef two(a,\n  b): pass\n"
            "class A:\n    @jit\n    def inside(x): pass\n    def not_one(self): pass\n")
    assert picked.decorated(text) == ["add_kernel", "two", "inside"]
    cuda = "template <int N>\n__global__ void __launch_bounds__(N, max(1, 2)) f(int* x) {}\nstatic __global__ void g (int x);"
    assert picked.CUDA.findall(picked.BOUNDS.sub(" ", cuda)) == ["f", "g"]


def test_the_api_takes_a_source_in_place_of_a_text(api: Any, olga: Any) -> None:
    asked = {"source": "https://host/x", "commit": "v1", "path": "ops/add.py", "call": "f(1)"}
    made = api(olga).post(reverse("api-kernel-checks"), json.dumps(asked), content_type="application/json")
    assert made.status_code == 201 and made.json()["source"] == {
        "kind": "git", "address": "https://host/x", "commit": "v1", "path": "ops/add.py"} and made.json()["call"] == "f(1)"
    refused = api(olga).post(reverse("api-kernel-checks"), json.dumps({"source": "x"}), content_type="application/json")
    assert refused.status_code == 400 and list(refused.json()["fields"]) == ["source"]
