"""One request to one web address, from a server that stands inside a team's network: what may be asked for is checked first.

http and https only; no redirect is followed; addresses inside the network are refused unless the caller says that they are meant.
The name is looked up once, and the connection goes to the address that was checked: a name that answers differently the second time
(DNS rebinding) reaches nothing. Proxies of the environment are not used. An answer is read up to a bound, within a time.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from urllib.parse import SplitResult, urlsplit

from profiles.base.refused import Refused

CONNECT_S, READ_S, TOTAL_S = 5.0, 10.0, 20.0
MAX_ADDRESS = 500
MOST_TRIED = 3                     # addresses of one name
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# What Python's `is_global` lets through although it ends inside: IPv4 in deprecated IPv6 forms, translators' and sites' own
# prefixes (IANA's special-purpose registries; RFC 2765, 3879, 4291, 8215), and clouds' metadata at addresses that look public.
_INSIDE = [ipaddress.ip_network(network) for network in
           ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "fec0::/10", "192.0.0.0/24", "168.63.129.16/32")]
Resolve = Callable[[str, int], Sequence[str]]


class NotSent(Exception):
    """The message did not arrive; str says why. `final`: trying again will not help."""

    def __init__(self, why: str, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


def parse_address(address: str) -> SplitResult:
    """Return the parts of an address that could be sent to. Raises Refused; looks nothing up."""
    if len(address) > MAX_ADDRESS or any(ord(char) <= 32 or ord(char) == 127 for char in address):
        raise Refused(f"write one address without spaces, at most {MAX_ADDRESS} characters")
    try:
        parts = urlsplit(address)
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode()
    except (ValueError, UnicodeError) as error:
        raise Refused("this is no web address: write https://host/path") from error
    if parts.scheme not in ("http", "https"):
        raise Refused("only http:// and https:// addresses are sent to")
    if not host or port == 0:
        raise Refused("this is no web address: write https://host/path")
    if not (parts.path + parts.query).isascii():
        raise Refused("write the path of the address as a browser sends it: ä is %C3%A4")
    if parts.username is not None or parts.password is not None:
        raise Refused("leave name and password out of the address: there is a field for what is secret")
    return parts


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a name as the system resolves it. Raises NotSent."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotSent(f"{host} is not known: {error}") from error
    return list(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in infos))


def is_public(address: str) -> bool:
    """Return whether everybody can reach an address: 10.0.0.0/8, 127.0.0.1, ::1, fd00::/8 … are inside, in any form."""
    ip = ipaddress.ip_address(address)
    if any(ip in network for network in _INSIDE):
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        inside = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        if any(inner_ip is not None and not is_public(str(inner_ip)) for inner_ip in inside):
            return False
    return ip.is_global and not ip.is_multicast


# of what is meant to be inside: addresses that no service of a team has, and clouds' metadata
_NEVER = [ipaddress.ip_network(network) for network in
          ("169.254.0.0/16", "fe80::/10", "100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::254/128", "0.0.0.0/8", "::/128")]


def is_metadata(address: str) -> bool:
    """Return whether an address is link-local, unspecified, multicast or a cloud's metadata: nobody's service, in any form."""
    ip = ipaddress.ip_address(address)
    inside = [ip]
    if isinstance(ip, ipaddress.IPv6Address):
        inside += [inner_ip for inner_ip in (ip.ipv4_mapped, ip.sixtofour) if inner_ip is not None]
        if ip in _NAT64:
            inside.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return any(each.is_multicast or any(each.version == net.version and each in net for net in _NEVER) for each in inside)


@dataclass(frozen=True)
class Answer:
    """`body`: no more of it than was asked for; `whole`: there was no more."""

    status: int
    location: str
    body: bytes
    whole: bool
    seconds: float


def exchange(method: str, address: str, body: bytes | None, headers: Mapping[str, str], *, found: Sequence[str], most_bytes: int,
             total_s: float = TOTAL_S) -> Answer:
    """Send one request to one of the addresses `found`, which the caller has checked; return the answer, whatever its status.

    Raises:
        NotSent: no answer within `total_s` seconds of the connection's beginning, or none that is HTTP.
    """
    parts = parse_address(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    all_headers = {**headers, "User-Agent": "Ridgepoint", "Host": _host(parts)}
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    began = time.monotonic()
    late = threading.Event()
    try:
        with _connection(parts.scheme, host, found[:MOST_TRIED], port) as (link, sock), _deadline(sock, total_s, late):
            if isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
            link.request(method, path, body=body, headers=all_headers)
            answer = link.getresponse()
            status, location, content = answer.status, answer.getheader("Location") or "", answer.read(most_bytes + 1)
    except (HTTPException, OSError, ValueError) as error:
        raise NotSent(f"no answer within {total_s:.0f} s" if late.is_set() else _why(error)) from error
    if late.is_set():                    # http.client takes the headers that came so far for all of them
        raise NotSent(f"no answer within {total_s:.0f} s")
    return Answer(status, location, content[:most_bytes], len(content) <= most_bytes, time.monotonic() - began)


@contextmanager
def _connection(scheme: str, host: str, found: Sequence[str], port: int) -> Iterator[tuple[HTTPConnection, socket.socket]]:
    """Goes to an address that was checked, and expects the certificate of the name. Redirects and proxies it knows none."""
    with _connect(found, port) as plain:
        plain.settimeout(READ_S)
        sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False) \
            if scheme == "https" else plain
        link = HTTPConnection(host, port)
        link.sock = sock
        try:
            yield link, sock
        finally:
            link.close()


def _connect(found: Sequence[str], port: int) -> socket.socket:
    """The first that takes the connection: a name may have an IPv6 address that leads nowhere from here, and an IPv4 one."""
    for address in found[:-1]:
        with suppress(OSError):
            return socket.create_connection((address, port), timeout=CONNECT_S)
    return socket.create_connection((found[-1], port), timeout=CONNECT_S)


@contextmanager
def _deadline(sock: socket.socket, seconds: float, late: threading.Event) -> Iterator[None]:
    """Ends a connection that drips: a timeout of the socket begins anew with each byte."""
    def cut() -> None:
        late.set()
        with suppress(OSError):          # it ended by itself meanwhile
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _host(parts: SplitResult) -> str:
    """As a browser writes it: the port where it is not the scheme's own."""
    name = (parts.hostname or "").encode("idna").decode()
    name = f"[{name}]" if ":" in name else name
    return f"{name}:{parts.port}" if parts.port and parts.port != {"http": 80, "https": 443}[parts.scheme] else name


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return f"its certificate is not accepted: {error}"[:200]
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens at this address"
    return f"{type(error).__name__}: {error}"[:200]
