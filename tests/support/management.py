"""RabbitMQ's HTTP API."""

import asyncio
import base64
import json
import urllib.request
from collections.abc import Mapping
from urllib.parse import quote

from pydantic import JsonValue

from utterd.sandbox.rabbitmq import PASSWORD, USER


class Management:
    """What the HTTP API of a sandbox's node can do that AMQP can't."""

    def __init__(self, url: str) -> None:
        self._url = url
        # No proxies: one of the environment doesn't know this machine's loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._authorization = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    async def request(self, method: str, *path: str, body: JsonValue = None):
        return await asyncio.to_thread(self._request, method, path, body)

    def _request(self, method: str, path: tuple[str, ...], body: JsonValue):
        request = urllib.request.Request(  # noqa: S310 - the sandbox's own address
            "/".join((self._url, "api", *(quote(part, safe="") for part in path))),
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": self._authorization, "Content-Type": "application/json"},
        )
        with self._opener.open(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    async def set_policy(
        self, name: str, *, pattern: str, apply_to: str, definition: Mapping[str, JsonValue]
    ) -> None:
        body = {"pattern": pattern, "apply-to": apply_to, "definition": dict(definition)}
        await self.request("PUT", "policies", "/", name, body=body)

    async def close_connections(self, name: str, user: str | None = None) -> int:
        """Close those of clients of this name, or of one user's; returns how many there were."""
        found = [
            connection["name"]
            for connection in await self.request("GET", "connections")
            if connection.get("client_properties", {}).get("connection_name") == name
            and user in (None, connection.get("user"))
        ]
        for connection in found:
            await self.request("DELETE", "connections", connection)
        return len(found)
