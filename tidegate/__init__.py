"""Tidegate: a conflating subscription gateway, its client, and its Spark pipeline.

`from tidegate import Gateway` is the Python client. The packages are folders at the top of the
repository (`app conflation keys pipeline clients`); the links beside this file make them one import
name, so that an installed Tidegate can never meet a package `app` or `keys` of its user's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.clients.gateway import Gateway as Gateway

__version__ = "0.1.0"
HOME = Path(__file__).resolve().parents[1]
"""The folder from which Python imports `tidegate`: what PYTHONPATH of a child process must hold."""


def __getattr__(name: str) -> Any:
    """Import the client at its first use: the engine and the keys need none of it."""
    if name == "Gateway":
        from tidegate.clients.gateway import Gateway

        return Gateway
    raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
