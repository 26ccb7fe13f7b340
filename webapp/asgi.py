"""HTTP and WebSocket entry. Who imports this is the web process."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
os.environ.setdefault("RIDGEPOINT_WEB_PROCESS", "1")

from django.core.asgi import get_asgi_application

http = get_asgi_application()      # before anything that needs the app registry

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.conf import settings  # noqa: E402
from django.urls import path  # noqa: E402

from webapp.agents.door import Agents  # noqa: E402
from webapp.live import LiveConsumer, SameOrigin  # noqa: E402
from webapp.operate.below import Below, Whole  # noqa: E402
from webapp.operate.bodies import Bodies  # noqa: E402
from webapp.operate.observed import Observed  # noqa: E402
from webapp.operate.probes import Probes  # noqa: E402
from webapp.slots import Slots  # noqa: E402

# the stubs know paths to views alone, not to consumers
application = ProtocolTypeRouter({
    "http": Below(Observed(Probes(Bodies(Agents(Slots(Whole(http)))))), settings.PREFIX),
    "websocket": Below(
        SameOrigin(AuthMiddlewareStack(URLRouter([path("ws/live/", LiveConsumer.as_asgi())]))),     # type: ignore[arg-type, list-item]
        settings.PREFIX),
})
