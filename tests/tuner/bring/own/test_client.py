"""ridgepoint_tune.py: which files travel with a kernel's, and the way from a file to a winner over a server's API."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tuner.bring.calls.loading_places import folders_of, package_of
from tuner.bring.own import client


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_what_a_file_imports_travels_with_it(tmp_path: Path) -> None:
    root = written(tmp_path / "repo", {
        "pyproject.toml": "", "acme/__init__.py": "from .heavy import everything\n", "acme/heavy.py": "import acme.unused\n",
        "acme/unused.py": "", "acme/ops/__init__.py": "", "acme/ops/common.py": "from ..limits import MOST\nimport os\n",
        "acme/limits.py": "MOST = 3\n", "acme/ops/softmax.py": "import torch\nfrom . import common\nfrom acme.limits import MOST\n",
        "tools/lonely.py": "", "beside.py": "import beside\n"})
    path = root / "acme/ops/softmax.py"
    assert client.root_of(path) == root
    found = client.siblings_of(path, root)
    assert set(found) == {"acme/ops/common.py", "acme/limits.py", "acme/ops/__init__.py", "acme/__init__.py", "acme/heavy.py",
                          "acme/unused.py"} and found["acme/limits.py"] == "MOST = 3\n"
    assert client.siblings_of(root / "beside.py", root) == {}


def test_a_file_without_a_repository_travels_with_those_of_its_folder(tmp_path: Path) -> None:
    root = written(tmp_path / "loose", {"mine.py": "from near import X\nfrom nothing import Y\n", "near.py": "X = 1\n",
                                        "far.py": ""})
    assert client.root_of(root / "mine.py") == root and client.siblings_of(root / "mine.py", root) == {"near.py": "X = 1\n"}


def test_a_package_below_src_is_found_and_what_its_init_imports_has_what_room_is_left(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = written(tmp_path, {
        "pyproject.toml": "", "src/acme/__init__.py": "", "src/acme/ops/__init__.py": "from acme.ops import a, b, c\n",
        "src/acme/ops/softmax.py": "from acme.ops.utils import near\n", "src/acme/ops/utils.py": "", "src/acme/ops/a.py": "",
        "src/acme/ops/b.py": "", "src/acme/ops/c.py": "import nothing\n"})
    path = root / "src/acme/ops/softmax.py"
    needed = {"src/acme/__init__.py", "src/acme/ops/__init__.py", "src/acme/ops/utils.py"}
    assert set(client.siblings_of(path, root)) == {*needed, *(f"src/acme/ops/{each}.py" for each in "abc")}
    monkeypatch.setattr(client, "MOST_FILES", 4)
    found = set(client.siblings_of(path, root))
    assert needed < found and len(found) == 4


def test_another_package_of_the_same_repository_is_found(tmp_path: Path) -> None:
    """FBGEMM: fbgemm_gpu/experimental/… imports fbgemm_gpu.triton, which lies in fbgemm_gpu/fbgemm_gpu."""
    root = written(tmp_path, {"CMakeLists.txt": "", "lib/setup.py": "", "lib/lib/triton/__init__.py": "from .common import Mode\n",
                              "lib/lib/triton/common.py": "Mode = 1\n", "lib/new/ops/quantize.py": "from lib.triton import Mode\n"})
    path = root / "lib/new/ops/quantize.py"
    found = {"lib/lib/triton/__init__.py", "lib/lib/triton/common.py"}
    assert set(client.siblings_of(path, root)) == found
    assert package_of(path) == (root, ["lib", "new", "ops", "quantize"])
    assert folders_of(root / "lib") == [root / "lib", root / "lib/lib"]


def test_more_than_may_travel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_FILES", 2)
    root = written(tmp_path, {"mine.py": "import a, b, c\n", "a.py": "", "b.py": "", "c.py": ""})
    with pytest.raises(client.Refused, match="more than 2 files"):
        client.siblings_of(root / "mine.py", root)


class Answers(BaseHTTPRequestHandler):
    """A server that checks at the second look and tunes at the second."""

    asked: list[tuple[str, Any]] = []
    looked: dict[str, int] = {}
    job: dict[str, Any] = {}

    def answer(self, told: Any, status: int = 200) -> None:
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, {**body, "token": self.headers["Authorization"]}))
        if self.path.endswith("/tune/"):
            self.answer({"operator": "softmax_kernel_ab", "independent": False, "job": {"id": 5}}, 201)
        elif body["call"] or not body.get("path", "there"):
            self.answer({"id": 3}, 201)
        else:
            self.answer({"call": ["give one"]}, 400)

    def do_GET(self) -> None:
        count = self.looked[self.path] = self.looked.get(self.path, 0) + 1
        if "check" in self.path:
            self.answer({"status": "done" if count > 1 else "running", "id": 3, "compiled": count, "samples": 2, "error": None,
                         "adapters": [{"kernel": "softmax_kernel"}],
                         "source": {"found": [{"path": "ops/softmax.py", "count": 1, "kernels": ["softmax_kernel"]}]}})
        else:
            self.answer({**self.job, "status": "done" if count > 1 else "running"})

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(client, "POLL_S", 0.0)
    Answers.asked, Answers.looked = [], {}
    Answers.job = {"trials": 4, "rejected": 1, "best_ms": 0.01, "default_ms": 0.02, "library_ms": None, "error": None,
                   "best_config": {"BLOCK": 128, "num_warps": 4}, "outcome": {"text": "2.00 times as fast as the default"}}
    with HTTPServer(("127.0.0.1", 0), Answers) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        monkeypatch.setenv("RIDGEPOINT_URL", f"http://127.0.0.1:{running.server_port}/")
        monkeypatch.setenv("RIDGEPOINT_TOKEN", "rp_x")
        yield running
        running.shutdown()


def test_from_a_file_to_the_line_to_add(server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = written(tmp_path, {"mine.py": "from near import X\n", "near.py": "X = 1\n"})
    assert client.main([f"{root / 'mine.py'}:softmax", "--call", "softmax(randn(8, 4))", "--effort", "quick"]) == client.TUNED
    (_, check), (path, tuned) = Answers.asked
    assert check["siblings"] == {"near.py": "X = 1\n"} and check["folder"] == "" and check["token"] == "Token rp_x"
    assert path == "/api/operators/check/3/tune/" and tuned["kernel"] == "" and tuned["effort"] == "quick"
    told = capsys.readouterr()
    assert "BLOCK=128 num_warps=4" in told.out and '@ridgepoint_client.tuned("softmax_kernel_ab")' in told.out
    assert "best 10.00 µs, default 20.00 µs" in told.out and "not independent" in told.err and "running: 1 of 2" in told.err


def test_a_file_of_a_repository_is_named_and_without_a_path_its_files_are_listed(
        server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    named = ["--source", "https://host/team/kernels", "--commit", "v1.2"]
    assert client.main(["ops/softmax.py:softmax_kernel", *named, "--call", "softmax(randn(8, 4))"]) == client.TUNED
    (_, check), (_, tuned) = Answers.asked
    assert check["source"] == "https://host/team/kernels" and check["commit"] == "v1.2" and check["path"] == "ops/softmax.py"
    assert "text" not in check and tuned["kernel"] == "softmax_kernel"
    capsys.readouterr()
    assert client.main(named) == client.TUNED and capsys.readouterr().out == "ops/softmax.py: softmax_kernel\n"
    assert client.main([]) == client.REFUSED and "name a file, or --source" in capsys.readouterr().err


def test_what_ends_without_a_winner_or_is_refused_says_so(server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    assert client.main([str(tmp_path / "mine.py")]) == client.REFUSED and "give one" in capsys.readouterr().err
    Answers.job |= {"best_config": None, "error": {"what": "no configuration could be measured", "hint": ""}}
    assert client.main([str(tmp_path / "mine.py"), "--call", "f(1)"]) == client.NOTHING
    assert "no configuration could be measured" in capsys.readouterr().out
    assert client.main([str(tmp_path / "none.py"), "--call", "f(1)"]) == client.REFUSED


def test_a_name_that_is_neither_a_kernel_nor_what_is_called_is_refused(
        server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else the one kernel that is there would be tuned for another that was meant."""
    (tmp_path / "mine.py").write_text("x = 1\n")
    assert client.main([f"{tmp_path / 'mine.py'}:sofmax_kernel", "--call", "softmax(randn(8, 4))"]) == client.REFUSED
    assert "no kernel sofmax_kernel" in (said := capsys.readouterr().err) and "its kernels: softmax_kernel" in said
    assert [path for path, _ in Answers.asked] == ["/api/operators/check/"]


def test_no_server_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    monkeypatch.setenv("RIDGEPOINT_URL", "http://127.0.0.1:9")
    assert client.main([str(tmp_path / "mine.py"), "--call", "f(1)"]) == client.NO_ANSWER
