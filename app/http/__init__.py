"""The HTTP edge: socket, protocol, limits, strict reading of requests, problems."""
