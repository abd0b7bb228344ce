"""The Python client of a Tidegate gateway; it needs nothing of the server.

`tidegate.clients.gateway.Gateway` is the entry point: topics, publishing, the state of the world,
and subscriptions that reconnect by themselves.
"""

DEFAULT_ADDRESS = "http://127.0.0.1:8080"
"""The default gateway; defined here, so that reading it does not load an HTTP client."""
BODY_BYTES_MAX = 768 << 10
"""The most bytes of one request to publish: nginx, by default, refuses more than 1 MiB."""
