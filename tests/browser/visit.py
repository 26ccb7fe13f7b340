"""What browser tests share: waiting within the CSP, and a recording that is uploaded and read before the first page opens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

H200 = Path(__file__).parents[1] / "data" / "h200"
READ_WITHIN_S = 60


def poll(page: Any, script: str, within_ms: int = 20_000) -> Any:
    """`page.wait_for_function` needs eval, which the CSP forbids."""
    for _ in range(within_ms // 50):
        if found := page.evaluate(script):
            return found
        page.wait_for_timeout(50)
    raise TimeoutError(script)


def uploaded(playwright: Any, server_url: str, recording: Path, **fields: str) -> int:
    """The profile's id once it is ready; through the API, with the cookies that a browser would have."""
    client = playwright.request.new_context(base_url=server_url)
    client.get("/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")
    answer = client.post("/api/profiles/", headers={"X-CSRFToken": token, "Referer": server_url}, multipart={
        "file": {"name": recording.name, "mimeType": "application/gzip", "buffer": recording.read_bytes()}, **fields})
    assert answer.status == 201, answer.text()
    pk = int(answer.json()["id"])
    for _ in range(READ_WITHIN_S * 5):
        profile = client.get(f"/api/profiles/{pk}/").json()
        if profile["status"] in ("ready", "failed"):
            break
        time.sleep(0.2)
    assert profile["status"] == "ready", profile["error"]
    client.dispose()
    return pk
