"""The Python client of a Tidegate gateway; needs nothing of the server's.

`tidegate.clients.gateway.Gateway` is the door: topics, publishing, the state of the world, and
subscriptions that find their way back after a lost connection.
"""

DEFAULT_ADDRESS = "http://127.0.0.1:8080"
"""The gateway where none is named. It is here because asking for it must load no HTTP client."""
