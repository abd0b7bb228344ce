"""Exits with 0 if the gateway of this container is ready: the health check of its image.

It asks the port and the scheme that the container's environment gives the gateway, and takes any
certificate, as it asks itself.
"""

import os
import ssl
import sys
from urllib.request import urlopen

SECONDS_MAX = 2


def main() -> int:
    """Ask once, and say what was wrong."""
    port = os.environ.get("TIDEGATE_PORT", "8080")
    scheme = "https" if os.environ.get("TIDEGATE_TLS_CERT") else "http"
    own = ssl.create_default_context()
    own.check_hostname = False
    own.verify_mode = ssl.CERT_NONE
    try:
        urlopen(f"{scheme}://127.0.0.1:{port}/readyz", timeout=SECONDS_MAX, context=own).close()
    except OSError as error:
        sys.stdout.write(f"not ready: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
