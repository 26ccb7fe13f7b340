"""`manage.py web`: the web server alone (HTTP and WebSocket), one process."""

import ipaddress
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import OperationalError, connection
from django.template.loader import get_template
from django.urls import get_resolver

from profiles.ingest import scratch
from webapp.operate.connections import BoundedHeaders


class Command(BaseCommand):
    help = "Serve HTTP and WebSocket. `serve` runs this beside the workers."
    requires_system_checks: list[str] = []      # `manage.py check` runs them; starting is quicker without

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--fd", type=int, help="a listening socket to inherit, in place of host and port")

    def handle(self, *, host: str, port: int, fd: int | None, **options: Any) -> None:
        warm_up()
        config = uvicorn.Config(
            "webapp.asgi:application", host=host, port=port, http=BoundedHeaders,
            lifespan="off",         # the ASGI application has no lifespan handler
            proxy_headers=bool(settings.PROXIES) and not settings.LOCAL_MODE,      # local mode: the socket's own address
            forwarded_allow_ips=as_any_socket_says(settings.PROXIES),
            access_log=False,       # webapp.operate.observed says more
            log_level="warning", log_config=None,
            timeout_graceful_shutdown=3, ws_max_size=1 << 20, server_header=False)
        sockets = [socket.socket(fileno=fd)] if fd is not None else None
        with scratch.folder() as folder:        # bodies that come in: what a killed process leaves of them goes with the next one
            settings.FILE_UPLOAD_TEMP_DIR = str(folder)
            uvicorn.Server(config).run(sockets=sockets)


def as_any_socket_says(proxies: str) -> list[str]:
    """Return proxies as they are written, those of IPv4 also as ::ffff:10.0.0.5: so a socket of both kinds (HOST=::) names them."""
    written = [part.strip() for part in proxies.split(",") if part.strip()]
    mapped = []
    for proxy in written:
        with suppress(ValueError):
            network = ipaddress.ip_network(proxy, strict=False)
            if network.version == 4:
                mapped.append(f"::ffff:{network.network_address}/{96 + network.prefixlen}")
    return written + mapped


def warm_up() -> None:
    """Load what the first request of any page would wait for: the URLs, the frame of the pages, a figure, a connection.

    A module that cannot be imported ends the process here, and not each request. A database that is away does not.
    """
    from profiles import theme  # here: with Bokeh, for this process alone

    get_resolver().url_patterns     # noqa: B018  a property that imports them
    get_template("base.html")
    figure = theme.figure(title="")
    figure.line([0, 1], [0, 1])
    theme.item(figure)
    with suppress(OperationalError):
        connection.ensure_connection()
        connection.close()          # this thread serves no request
