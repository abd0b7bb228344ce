"""Conflated topics in other applications, and streams as responses under any ASGI server."""
