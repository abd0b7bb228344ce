"""A plain nginx with one worker, which serves what a benchmark writes into its configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.servers.process import Process, listens, running, waited_for

SETTINGS: Final = """\
{modules}daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 30000;
pid {folder}/pid;
error_log {folder}/error.log crit;
events {{ worker_connections 20000; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000;
    keepalive_timeout 1h;
    sendfile on;
    include {folder}/served.conf;
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, text: str, port: int, module: Path | None = None) -> Iterator[Process]:
    """Run nginx until the block ends.

    Args:
        folder: its own.
        text: the lines in `http` in addition to those of every benchmark.
        port: on which it listens, by this text.
        module: one to load.
    """
    folder.chmod(0o755)
    modules = f"load_module {module};\n" if module else ""
    (folder / "served.conf").write_text(text)
    (folder / "nginx.conf").write_text(SETTINGS.format(folder=folder, modules=modules))
    command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    with running(command) as process:
        waited_for(lambda: listens(port), "nginx")
        yield process
