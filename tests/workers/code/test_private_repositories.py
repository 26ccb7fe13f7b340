"""A repository that asks for a token, fetched over TLS from git's own server program."""

from __future__ import annotations

import base64
import datetime
import http.server
import ipaddress
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from workers.code import git
from workers.code.git import Git, Limits
from workers.core.child import SandboxError

pytestmark = [pytest.mark.git, pytest.mark.process]
TOKEN = "glpat-Zq81xYw"


class Server(http.server.BaseHTTPRequestHandler):
    """git http-backend for who knows the token; everybody else gets 401."""

    protocol_version = "HTTP/1.1"
    root = ""
    user = git.USER

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(body)

    def _answer(self, body: bytes) -> None:
        expected = "Basic " + base64.b64encode(f"{self.user}:{TOKEN}".encode()).decode()
        if self.headers.get("Authorization") != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        said = subprocess.run(["git", "http-backend"], input=body, capture_output=True, check=True, env={
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": self.root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}).stdout
        head, _, content = said.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def certificate(folder: Path) -> Path:
    """A file with a key and a certificate for 127.0.0.1 that nobody signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "git")]), datetime.datetime.now(datetime.UTC)
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
            .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
            .sign(key, hashes.SHA256()))
    file = folder / "server.pem"
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
                     + made.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The address and commit of team/kernels.git behind the token; the worker trusts its certificate."""
    made = tmp_path / "made"
    who = {f"GIT_{part}_{name}": "a@x" for part in ("AUTHOR", "COMMITTER") for name in ("NAME", "EMAIL")}

    def run(*words: str) -> str:
        return subprocess.run(["git", *words], check=True, capture_output=True, text=True,
                              env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", **who}).stdout.strip()

    run("init", "--quiet", "--initial-branch=main", str(made))
    (made / "speeds.py").write_text("US = 1")
    run("-C", str(made), "add", "-A")
    run("-C", str(made), "commit", "--quiet", "-m", "x")
    run("clone", "--quiet", "--bare", str(made), str(tmp_path / "srv/team/kernels.git"))
    pem = certificate(tmp_path)
    handler = type("OfThisTest", (Server,), {"root": str(tmp_path / "srv")})
    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    serving.socket = context.wrap_socket(serving.socket, server_side=True)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    monkeypatch.setenv(git.PRIVATE, "1")
    monkeypatch.setenv(git.CERTIFICATES, str(pem))
    yield f"https://127.0.0.1:{serving.server_port}/team/kernels.git", run("-C", str(made), "rev-parse", "HEAD")
    serving.shutdown()
    serving.server_close()


def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int = 0o600) -> Path:
    """A file of tokens that the worker is told of."""
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(mode)
    monkeypatch.setenv(git.TOKENS, str(file))
    return file


@pytest.mark.parametrize("line", ["{} " + TOKEN, "{host}/team " + TOKEN, "{host}/team/ " + git.USER + " " + TOKEN,
                                  "{host}/team/kernels " + TOKEN, "{host}/team wrong\n{host}/team/kernels.git " + TOKEN])
def test_a_repository_is_fetched_with_the_token_of_its_line(server, tmp_path, monkeypatch, line):
    address, commit = server
    lines = line.format(address, host=address.removesuffix("/team/kernels.git"))
    told(tmp_path, monkeypatch, f"# of the build machines\n\n{lines}")
    fetching = Git(address, tmp_path / "fetched", Limits())
    assert fetching.resolve("main") == commit
    fetching.fetch(commit)
    fetching.unpack(commit, tmp_path / "code", lambda found: None)
    assert (tmp_path / "code/speeds.py").read_text() == "US = 1"


@pytest.mark.parametrize("line", ["", "{host}/team wrong", "{host}/tea " + TOKEN, "{host}/team/kernels/more " + TOKEN,
                                  "https://127.0.0.1/team " + TOKEN, "https://git.example/team " + TOKEN])
def test_no_token_goes_to_another_host_port_or_path(server, tmp_path, monkeypatch, line):
    address, _ = server
    told(tmp_path, monkeypatch, line.format(host=address.removesuffix("/team/kernels.git")))
    with pytest.raises(SandboxError) as caught:
        Git(address, tmp_path / "fetched", Limits()).resolve("main")
    assert git.TOKENS in caught.value.hint and TOKEN not in f"{caught.value.what} {caught.value.hint}"


def test_a_server_with_a_certificate_of_nobody_is_refused(server, tmp_path, monkeypatch):
    address, _ = server
    told(tmp_path, monkeypatch, f"{address} {TOKEN}")
    monkeypatch.delenv(git.CERTIFICATES)
    with pytest.raises(SandboxError, match="certificate"):
        Git(address, tmp_path / "fetched", Limits()).resolve("main")
    monkeypatch.setenv(git.CERTIFICATES, str(tmp_path / "none.pem"))
    with pytest.raises(SandboxError, match="names no file"):
        Git(address, tmp_path / "fetched", Limits())


def test_the_token_stands_on_no_command_line(server, tmp_path, monkeypatch):
    address, _ = server
    told(tmp_path, monkeypatch, f"{address} {TOKEN}")
    tools, seen = tmp_path / "bin", tmp_path / "seen"
    tools.mkdir()
    (tools / "git").write_text(f'#!/bin/sh\necho "$@" >> {seen}\nexec {shutil.which("git")} "$@"\n')
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    Git(address, tmp_path / "fetched", Limits()).resolve("main")
    words = seen.read_text()
    assert "ls-remote" in words and TOKEN not in words and "Authorization" not in words


@pytest.mark.parametrize(("text", "mode", "words"), [
    (f"https://git.example/x {TOKEN}", 0o644, "others than the worker's user"),
    (f"https://git.example/x {TOKEN}", 0o620, "others than the worker's user"),
    (f"http://git.example/x {TOKEN}", 0o600, "line 1 of"), (f"\nhttps://git.example {TOKEN}", 0o600, "line 2 of"),
    (f"https://git.example/x a b {TOKEN}", 0o600, "line 1 of"), ("https://git.example/x", 0o600, "line 1 of"),
    (f"ssh://git@git.example/x {TOKEN}", 0o600, "line 1 of"), ("https://git.example/x t\u00f6ken", 0o600, "line 1 of"),
    ("x" * (git.MOST_BYTES + 1), 0o600, "more than 64 KiB"), (None, 0o600, "cannot be read"),
])
def test_a_file_that_is_not_kept_or_not_read_says_so_and_nothing_of_it(monkeypatch, tmp_path, text, mode, words):
    monkeypatch.setattr(git, "resolve_host", lambda name, port: ["140.82.112.3"])
    file = told(tmp_path, monkeypatch, text or "", mode)
    if text is None:
        file.unlink()
    with pytest.raises(SandboxError, match=words) as caught:
        Git("https://git.example/x/y.git", tmp_path / "fetched", Limits())
    assert TOKEN not in f"{caught.value.what} {caught.value.hint}"
