"""Behind nginx and Caddy by docs/deploy's files, with TLS, below a path of the host, over IPv4 and IPv6: pages, API, an upload and
live updates. The product listens on a socket of both kinds; Caddy asks it at ::1, nginx at 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
import requests
import websockets
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.product import PROJECT, Product, clean_env, seed_database
from tests.scale import deep_only
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.deep, deep_only, pytest.mark.timeout(600)]
FOLDER = PROJECT / "docs" / "deploy"
PREFIX, PASSWORD = "/perf", "correct horse battery staple"
NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1; user root;
events {{}}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; include {folder}/site.conf; }}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with an owner."""
    folder = tmp_path_factory.mktemp("behind")
    seed_database(folder)
    subprocess.run([sys.executable, PROJECT / "manage.py", "createowner", "olga"], check=True, capture_output=True, timeout=300,
                   env=clean_env(folder) | {"RIDGEPOINT_PASSWORD": PASSWORD})
    return folder


@pytest.fixture(scope="module")
def product(home: Path) -> Iterator[Product]:
    port = free_port()
    product = Product(home, "--host", "::", "--port", str(port), env={
        "RIDGEPOINT_SIGN_IN": "1", "RIDGEPOINT_HTTPS": "1", "RIDGEPOINT_HOSTS": "localhost,[::1]", "RIDGEPOINT_PREFIX": PREFIX,
        "RIDGEPOINT_PROXIES": "127.0.0.1,::1", "RIDGEPOINT_ACCESS_LOG": "1"})
    product.wait_until_up()
    product.url = f"http://127.0.0.1:{port}"
    yield product
    product.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The files of a certificate for localhost that signs itself, and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(IPv6Address("::1"))]
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(datetime.now(UTC) - timedelta(hours=1))
            .not_valid_after(datetime.now(UTC) + timedelta(days=2))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(key, hashes.SHA256()))
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def replaced(name: str, *changes: tuple[str, str]) -> str:
    """A file of docs/deploy with what an administrator changes; fails where it does not hold that."""
    text = (FOLDER / name).read_text()
    for old, new in changes:
        assert old in text, (name, old)
        text = text.replace(old, new)
    return text


def nginx(folder: Path, port: int, web: int, certificate: tuple[Path, Path]) -> list[str]:
    (folder / "site.conf").write_text(replaced(
        "nginx.conf", ("127.0.0.1:8000", f"127.0.0.1:{web}"), ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("listen [::]:443 ssl", f"listen [::1]:{port} ssl"), ("listen [::]:80", f"listen [::1]:{free_port()}"),
        ("listen 80", f"listen 127.0.0.1:{free_port()}"), ("perf.example.com", "localhost"),
        ("    location / {", f"    location {PREFIX}/ {{"),
        ("/etc/ridgepoint/tls/fullchain.pem", str(certificate[0])), ("/etc/ridgepoint/tls/privkey.pem", str(certificate[1]))))
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
    return ["nginx", "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, port: int, web: int, certificate: tuple[Path, Path]) -> list[str]:
    site = replaced("Caddyfile", ("\thandle {", f"\ttls {certificate[0]} {certificate[1]}\n\thandle {PREFIX}/* {{"),
                    ("{$RIDGEPOINT_HOST}", f"https://localhost:{port}, https://[::1]:{port}"),
                    ("{$RIDGEPOINT_WEB}", f"[::1]:{web}"))
    (folder / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + site)
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"], scope="module")
def site(request: pytest.FixtureRequest, product: Product, certificate: tuple[Path, Path],
         tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site behind a proxy."""
    build: Callable[..., list[str]] = request.param
    path = os.environ["PATH"] + ":/usr/sbin"
    if not (program := shutil.which(build.__name__, path=path)):
        pytest.skip(f"{build.__name__} is not installed (Debian: {'nginx-light' if build is nginx else 'caddy'})")
    folder, port = tmp_path_factory.mktemp(build.__name__), free_port()
    command = build(folder, port, urlsplit(product.url).port, certificate)
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([program, *command[1:]], stdout=log, stderr=log,
                                   env={"PATH": path, "HOME": str(folder), "XDG_DATA_HOME": str(folder)})
    try:
        until(lambda: answers(f"https://localhost:{port}{PREFIX}/health/ready", certificate[0]), 60)
        yield f"https://localhost:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        print((folder / "log").read_text()[-3000:])


def answers(url: str, certificate: Path) -> bool:
    try:
        return requests.get(url, verify=str(certificate), timeout=5).status_code == 200
    except requests.RequestException:
        return False


@pytest.fixture
def olga(site: str, certificate: tuple[Path, Path]) -> requests.Session:
    """A session of the owner, who signed in through the page."""
    return sign_in(site, certificate, requests.Session())


def sign_in(site: str, certificate: tuple[Path, Path], session: requests.Session) -> requests.Session:
    session.trust_env = False           # a bundle of the environment would stand in for `verify`
    session.verify = str(certificate[0])
    page = session.get(f"{site}{PREFIX}/", timeout=60)
    assert urlsplit(page.url).path == f"{PREFIX}/accounts/login/" and page.status_code == 200
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert token
    there = session.post(page.url, data={"username": "olga", "password": PASSWORD, "csrfmiddlewaretoken": token[1]},
                         headers={"Referer": page.url}, timeout=60)
    assert there.status_code == 200 and urlsplit(there.url).path == f"{PREFIX}/", there.url
    assert {(each.secure, each.path) for each in session.cookies} == {(True, f"{PREFIX}/")}
    assert [each.name for each in session.cookies if each.name.startswith("__Secure-ridgepoint_session_perf")]
    return session


def test_every_address_of_a_page_lies_below_the_path_and_answers(site: str, olga: requests.Session) -> None:
    home = olga.get(f"{site}{PREFIX}/", timeout=60)
    assert home.headers["Strict-Transport-Security"]
    found = {urljoin(home.url, each) for each in re.findall(r'(?:href|src|action)="([^"#]+)"', home.text)}
    ours = {each.partition("#")[0] for each in found if each.startswith(site)}
    assert len(ours) > 15
    assert not [each for each in ours if not urlsplit(each).path.startswith(f"{PREFIX}/")]
    for each in sorted(ours):
        if "logout" not in each and "sign-out" not in each:
            answer = olga.get(each, timeout=60)
            assert answer.status_code in (200, 405), (each, answer.status_code)
    scripts = [each for each in ours if each.endswith(".js")]
    assert scripts and "javascript" in olga.get(scripts[0], timeout=60).headers["Content-Type"]


def test_an_upload_streams_through_and_live_updates_come_back(site: str, olga: requests.Session,
                                                              certificate: tuple[Path, Path]) -> None:
    events = [{"ph": "X", "cat": "kernel", "name": f"kernel_{i % 3}", "ts": 1000 + 20 * i, "dur": 10, "pid": 0, "tid": 7,
               "args": {"device": 0, "stream": 7, "correlation": i}} for i in range(20_000)]
    trace = json.dumps({"schemaVersion": 1, "site": site, "traceEvents": events}).encode()
    csrf = olga.cookies["csrftoken"]

    async def upload_and_listen() -> str:
        context = ssl.create_default_context(cafile=str(certificate[0]))
        cookies = "; ".join(f"{each.name}={each.value}" for each in olga.cookies)
        async with websockets.connect(f"{site.replace('https', 'wss')}{PREFIX}/ws/live/", ssl=context, origin=site,
                                      additional_headers={"Cookie": cookies}) as live:
            await live.send(json.dumps({"watch": ["home"]}))
            await asyncio.wait_for(live.recv(), 30)
            made = await asyncio.to_thread(
                olga.post, f"{site}{PREFIX}/api/profiles/", data={"name": "through"}, files={"file": ("t.json", trace)}, timeout=60,
                headers={"X-CSRFToken": csrf, "Referer": f"{site}{PREFIX}/"})
            assert made.status_code == 201, made.text[:500]
            while True:
                said = json.loads(await asyncio.wait_for(live.recv(), 60))
                if said.get("data", {}).get("id") == made.json()["id"] and said["data"].get("status") == "ready":
                    return str(made.json()["id"])

    number = asyncio.run(upload_and_listen())
    page = olga.get(f"{site}{PREFIX}/profiles/{number}/", timeout=60)
    assert page.status_code == 200 and "kernel_0" in page.text


def test_another_sites_page_opens_no_live_updates(site: str, olga: requests.Session, certificate: tuple[Path, Path]) -> None:
    async def open_from_elsewhere() -> None:
        cookies = "; ".join(f"{each.name}={each.value}" for each in olga.cookies)
        async with websockets.connect(f"{site.replace('https', 'wss')}{PREFIX}/ws/live/", origin="https://elsewhere.example",
                                      ssl=ssl.create_default_context(cafile=str(certificate[0])),
                                      additional_headers={"Cookie": cookies}):
            pass

    with pytest.raises(websockets.InvalidStatus):
        asyncio.run(open_from_elsewhere())


def test_what_a_client_says_of_its_own_address_is_not_believed(site: str, certificate: tuple[Path, Path]) -> None:
    """What the proxy says is, whichever kind its own address is: 127.0.0.1 comes as ::ffff:127.0.0.1 to a socket of both kinds."""
    session = requests.Session()
    session.mount("https://", FromHere())
    session.headers["X-Forwarded-For"] = "203.0.113.9"
    sign_in(site, certificate, session)
    seen = {each["address"] for each in session.get(f"{site}{PREFIX}/api/sessions/", timeout=60).json()}
    assert FromHere.ADDRESS in seen and "203.0.113.9" not in seen, seen


class FromHere(requests.adapters.HTTPAdapter):
    """Asks from an address of this machine that nobody else asks from."""

    ADDRESS = "127.0.0.77"

    def init_poolmanager(self, *given: Any, **more: Any) -> None:
        super().init_poolmanager(*given, **more, source_address=(self.ADDRESS, 0))


def test_pages_are_there_by_ipv6_too(site: str, certificate: tuple[Path, Path]) -> None:
    answer = requests.get(f"https://[::1]:{urlsplit(site).port}{PREFIX}/accounts/login/", verify=str(certificate[0]), timeout=60)
    assert answer.status_code == 200 and f'href="{PREFIX}/' in answer.text


def test_an_orchestrator_asks_past_the_proxy(product: Product) -> None:
    assert product.get("/health/live")[0] == 204 and product.get("/health/ready")[0] == 200
