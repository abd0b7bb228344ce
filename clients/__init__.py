"""Clients of the HTTP API; they know nothing of the server."""
