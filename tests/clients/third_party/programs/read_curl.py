"""Follows the address in the first argument with curl, whose lines this takes apart."""

from __future__ import annotations

import subprocess
import sys
import time


def main(address: str) -> None:
    """Print every event; ask again, after the last id, whenever curl has ended."""
    last_id = ""
    while True:
        headers = ["-H", f"Last-Event-ID: {last_id}"] if last_id else []
        command = ["curl", "-sN", *headers, address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
            assert curl.stdout is not None
            name, data = "message", ""
            for line in curl.stdout:
                word, _, text = line.rstrip("\n").partition(": ")
                if word == "event":
                    name = text
                elif word == "id":
                    last_id = text
                elif word == "data":
                    data += text
                elif not line.strip() and data:
                    sys.stdout.write(f"{name}\t{last_id}\t{data}\n")
                    name, data = "message", ""
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
