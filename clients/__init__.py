"""The Python client of a Tidegate gateway; it needs nothing of the server.

`tidegate.clients.gateway.Gateway` is the entry: topics, publishing, the state of the world, and
subscriptions that reconnect by themselves.
"""

DEFAULT_ADDRESS = "http://127.0.0.1:8080"
"""The default gateway. It stands here because asking for it must not load an HTTP client."""
BODY_BYTES_MAX = 768 << 10
"""Of one request to publish: a proxy may refuse more than 1 MiB, as nginx does by default."""
