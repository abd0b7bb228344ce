"""A schema registry that answers as Confluent's."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answers = Mapping[str, Mapping[str, Any]]


@contextlib.contextmanager
def registry_with(answers: Answers, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Serve the answers for their paths; yields the address, and the paths that are asked for."""
    asked: list[str] = []

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            found = answers.get(self.path)
            body = json.dumps(found or {"error_code": 40403}).encode()
            self.send_response(404 if found is None else status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
