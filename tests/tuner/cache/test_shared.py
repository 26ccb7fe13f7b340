"""Compiled kernels and choices of autotuners that hosts of a project share: the API's bounds, and Triton itself over it."""

import ast
import base64
import hashlib
import json
import shutil
import sys
import types
from pathlib import Path

import pytest
from django.core.files.storage import default_storage
from django.urls import reverse
from django.utils import timezone

from tests.warm.parent import run_program
from tuner.cache import client as library
from tuner.cache import shared
from tuner.cache.compiled import services
from tuner.models import CompiledFile
from webapp.models import ApiToken, Membership, Project
from workers.scope import within

pytestmark = pytest.mark.django_db
PROJECT = Path(__file__).resolve().parents[3]
KEY = "ABCDEFGH234567"


@pytest.fixture(autouse=True)
def empty():
    """The object store outlives a test's rows."""
    shutil.rmtree(default_storage.path(services.FOLDER), ignore_errors=True)


def send(http, data=b"\0cubin", name="k.cubin", key=KEY, tool="triton", **change):
    told = {"name": name, "content": base64.b64encode(data).decode(), "sha256": hashlib.sha256(data).hexdigest(), **change}
    return http.post(reverse("api-compiled", args=[tool, key]), told, format="json")


def fetch(http, *names, key=KEY, tool="triton"):
    answer = http.get(reverse("api-compiled", args=[tool, key]), {"name": names})
    assert answer.status_code == 200, answer.content
    return {name: base64.b64decode(each["content"]) for name, each in answer.json()["files"].items()}


def stored():
    folder = f"{services.FOLDER}/1"
    try:
        return {name for each in default_storage.listdir(folder)[0] for name in default_storage.listdir(f"{folder}/{each}")[1]}
    except FileNotFoundError:
        return set()


# ---- the server ----

def test_files_come_back_as_they_were_and_bytes_are_kept_once(api, alice, bob):
    assert send(api(alice)).json() == {"kept": True}
    send(api(alice), name="other.cubin")
    send(api(alice), b'{"a": 1}', "k.json")
    assert fetch(api(bob), "k.cubin", "k.json", "none.cubin") == {"k.cubin": b"\0cubin", "k.json": b'{"a": 1}'}
    assert fetch(api(bob), "k.cubin", key="ZZZZZZZZZZ") == {}
    assert stored() == {hashlib.sha256(data).hexdigest() for data in (b"\0cubin", b'{"a": 1}')}
    assert CompiledFile.objects.count() == 3 and CompiledFile.objects.first().owner == alice


def test_who_may_only_read_shares_nothing(api, alice, bob, sign_in_mode):
    assert send(api(bob)).status_code == 403
    assert send(api(alice, scope="read")).status_code == 403
    assert api().get(reverse("api-compiled", args=["triton", KEY]), {"name": "k.cubin"}).status_code in (401, 403)
    assert not CompiledFile.objects.exists() and not stored()


def test_a_binary_stays_what_it_was_and_a_later_choice_replaces_the_earlier(api, alice):
    send(api(alice), b"first")
    assert send(api(alice), b"another").json() == {"kept": False}
    assert fetch(api(alice), "k.cubin") == {"k.cubin": b"first"}
    for text in (b'{"config": 1}', b'{"config": 2}'):
        assert send(api(alice), text, "config.json", tool="helion").json() == {"kept": True}
    assert fetch(api(alice), "config.json", tool="helion") == {"config.json": b'{"config": 2}'}
    assert len(stored()) == 2                                               # the replaced bytes are gone
    send(api(alice), b'{"config": 3}', "config.json", tool="helion", key="9876543210")
    listed = api(alice).get(reverse("api-compiled-list", args=["helion"]), {"most": 5}).json()["files"]
    assert [base64.b64decode(each["content"]) for each in listed] == [b'{"config": 3}', b'{"config": 2}']
    assert api(alice).get(reverse("api-compiled-list", args=["triton"])).status_code == 404


@pytest.mark.parametrize(("change", "more"), [
    ({"sha256": "0" * 64}, {}), ({"sha256": "x"}, {}), ({"content": "§"}, {}), ({"content": 5}, {}), ({}, {"name": "../k"}),
    ({}, {"name": ".."}), ({}, {"name": "a/b"}), ({}, {"name": ""}), ({}, {"name": "x" * 161}),
    ({}, {"key": "short"}), ({}, {"key": "a b c d e f g h"})])
def test_a_wrong_file_is_refused(api, alice, change, more):
    assert send(api(alice), **more, **change).status_code == 400
    assert not CompiledFile.objects.exists() and not stored()


def test_files_and_answers_are_bounded(api, alice, monkeypatch):
    monkeypatch.setitem(services.TOOLS, "triton", services.Tool(10, False))
    assert send(api(alice), b"x" * 11).status_code == 400 and send(api(alice), b"x" * 10).status_code == 200
    assert send(api(alice), tool="nothing").status_code == 404
    send(api(alice), b"y" * 10, "b")
    monkeypatch.setattr(services, "ANSWER_BYTES", 15)
    assert len(fetch(api(alice), "k.cubin", "b")) == 1 and len(fetch(api(alice), "b")) == 1
    names = {"name": [f"n{n}" for n in range(65)]}
    assert api(alice).get(reverse("api-compiled", args=["triton", KEY]), names).status_code == 400


def test_what_was_not_used_for_longest_goes_first(api, alice, monkeypatch):
    monkeypatch.setattr(services, "TRIM_EVERY", 1)
    monkeypatch.setattr(services, "MOST_BYTES", 30)
    for number in range(3):
        send(api(alice), bytes([number]) * 10, f"f{number}")
    CompiledFile.objects.update(used=timezone.now() - timezone.timedelta(days=9))
    assert set(fetch(api(alice), "f0")) == {"f0"}                           # used today
    send(api(alice), b"d" * 10, "f3")
    assert set(CompiledFile.objects.values_list("name", flat=True)) == {"f0", "f3"} and len(stored()) == 2


def test_bytes_that_the_store_lost_or_changed_are_a_miss(api, alice):
    send(api(alice))
    path = services._path(1, hashlib.sha256(b"\0cubin").hexdigest())
    Path(default_storage.path(path)).write_bytes(b"another")
    assert fetch(api(alice), "k.cubin") == {} and not CompiledFile.objects.exists()
    default_storage.delete(path)
    send(api(alice))
    assert fetch(api(alice), "k.cubin") == {"k.cubin": b"\0cubin"}


def test_projects_share_nothing(api, alice):
    other = Project.objects.create(name="other")
    Membership.objects.create(user=alice, project=other, role="owner")
    send(api(alice))
    with within(other.pk):
        assert services.get_files("triton", KEY, ["k.cubin"]) == {}
        assert services.put_file(owner=alice, tool="triton", key=KEY, name="k.cubin", data=b"theirs")
    assert fetch(api(alice), "k.cubin") == {"k.cubin": b"\0cubin"}


# ---- Triton over it ----

COMPILE = """
import json, sys
import triton, triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def scale(x, y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < N), mask=i < N)

hits = []
knobs.compilation.listener = lambda **told: hits.append(told["cache_hit"])
signature = {"x": "*fp32", "y": "*fp32", "N": "i32", "BLOCK": "constexpr"}
cubins = [triton.compile(ASTSource(scale, signature, {"BLOCK": block}), target=GPUTarget("cuda", 90, 32)).asm["cubin"].hex()
          for block in (64, 128)]
json.dump([hits, cubins], sys.stdout)
"""


@pytest.fixture
def host(live_server, alice, bob, tmp_path):
    """Return what one host compiles: [whether each kernel was found, the binaries], and what it says."""
    (tmp_path / "job.py").write_text(COMPILE)
    for name, module in (("ridgepoint_client.py", "client.py"), ("ridgepoint_shared.py", "shared.py")):
        (tmp_path / name).write_bytes((PROJECT / "tuner" / "cache" / module).read_bytes())

    def compile_on(folder, person=alice, url=live_server.url, scope="write"):
        _, token = ApiToken.objects.create(person, name=folder, scope=scope)
        told, said = run_program(
            "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')", str(tmp_path / "job.py"),
            RIDGEPOINT_URL=url, RIDGEPOINT_TOKEN=token, PYTHONPATH=str(tmp_path), TRITON_CACHE_DIR=str(tmp_path / folder),
            TRITON_CACHE_MANAGER="triton.runtime.cache:RemoteCacheManager",
            TRITON_REMOTE_CACHE_BACKEND="ridgepoint_shared:TritonCache")
        return (*json.loads(told), said)

    return compile_on


@pytest.mark.torch
@pytest.mark.django_db(transaction=True)
def test_a_second_host_compiles_nothing(host, bob):
    """Two kernels for sm_90, no GPU; each host begins with an empty folder."""
    first, cubins, _ = host("first")
    assert first == [False, False] and CompiledFile.objects.filter(name="scale.cubin").count() == 2
    second, same, said = host("second")
    assert second == [True, True] and same == cubins and "Ridgepoint" not in said
    reader, same, _ = host("third", bob, scope="read")                     # who only reads finds it too
    assert reader == [True, True] and same == cubins
    away, same, _ = host("second", url="http://127.0.0.1:9")               # what a host has it does not ask for
    assert away == [True, True] and same == cubins
    alone, same, said = host("fourth", url="http://127.0.0.1:9")
    assert alone == [False, False] and same == cubins and said.count("neither asked for nor shared") == 1
    assert not CompiledFile.objects.filter(name__endswith=".so").exists()


@pytest.mark.torch
@pytest.mark.django_db(transaction=True)
def test_a_host_that_may_not_write_compiles_for_itself(host, bob):
    hits, _, said = host("reader", bob, scope="read")
    assert hits == [False, False] and said.count("the token may not write") == 1 and not CompiledFile.objects.exists()


# ---- Helion over it, and the file ----

@pytest.mark.django_db(transaction=True)
def test_helions_choices_are_shared(live_server, alice, monkeypatch):
    """Its backend class as Helion 1.5.1 declares it: get and put of JSON by key, list newest first."""
    class RemoteCacheBackend:
        pass

    inside = types.ModuleType("helion.autotuner.remote_cache")
    inside.RemoteCacheBackend = RemoteCacheBackend
    for name, module in (("helion", types.ModuleType("helion")), ("helion.autotuner", types.ModuleType("helion.autotuner")),
                         ("helion.autotuner.remote_cache", inside)):
        monkeypatch.setitem(sys.modules, name, module)
    _, token = ApiToken.objects.create(alice, name="job", scope="write")
    monkeypatch.setenv("RIDGEPOINT_URL", live_server.url)
    monkeypatch.setenv("RIDGEPOINT_TOKEN", token)
    shared.store.cache_clear()
    monkeypatch.delitem(vars(shared), "HelionCache", raising=False)
    made = shared.HelionCache
    assert issubclass(made, RemoteCacheBackend)
    one, key = made(), "0a" * 32
    assert one.get(key) is None
    one.put(key, '{"config": "{}", "key": "é"}')
    one.put("1b" * 32, '{"config": "2"}')
    assert made().get(key) == '{"config": "{}", "key": "é"}'
    assert list(one.list(1)) == ['{"config": "2"}'] and len(list(one.list())) == 2
    shared.store.cache_clear()
    monkeypatch.delitem(vars(shared), "HelionCache")


def test_what_the_server_sends_wrongly_is_a_miss():
    class Wrong(library.Server):
        def ask(self, path, timeout, *, send=None, etag=""):
            return 200, body

    right = {"content": base64.b64encode(b"a").decode(), "sha256": hashlib.sha256(b"a").hexdigest()}
    for told, found in (({"files": {"k": right}}, {"k": b"a"}), ({"files": {"k": {**right, "sha256": "0" * 64}}}, {}),
                        ({"files": {"other": right}}, {}), ({"files": [1]}, {}), ([], {}),
                        ({"files": {"k": {"content": "§"}}}, {})):
        body = json.dumps(told).encode()
        assert shared.Store(Wrong("http://x")).get("triton", KEY, ["k"]) == found
    body = b"<html>"
    assert shared.Store(Wrong("http://x")).get("triton", KEY, ["k"]) == {}
    with pytest.raises(AttributeError):
        _ = shared.Nothing


def test_the_file_needs_the_standard_library_and_the_host_package_alone():
    tree = ast.parse(Path(shared.__file__).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    outside = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert outside == {"tuner", "ridgepoint_client", "triton", "helion"}
