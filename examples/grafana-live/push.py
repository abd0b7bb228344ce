"""A topic as a stream of Grafana Live: each flush is pushed as lines of the Influx protocol.

GRAFANA_TOKEN=... python examples/grafana-live/push.py prices symbol

The first argument is the topic, the second the field that becomes a label. TIDEGATE_GATEWAY and
GRAFANA_URL are the addresses of the two servers.
"""

import os
import sys
import time

import httpx2

from tidegate import Gateway

INTERVAL = "500ms"


def escape(text: object, special: str) -> str:
    """Return a text with a backslash before each special character."""
    return "".join(f"\\{each}" if each in special else each for each in str(text))


def field(value: object) -> str:
    """Return a value as a field of the line protocol: integers end with an i."""
    if isinstance(value, str):
        return f'"{escape(value, chr(92) + chr(34))}"'
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value}i"
    return str(value)


def line(topic: str, label: str, message: dict[str, object], time_ns: int) -> str:
    """Return a message as a line, without its lists, objects and nulls."""
    kept = {k: v for k, v in message.items() if isinstance(v, str | int | float) and k != label}
    fields = ",".join(f"{escape(name, ',= ')}={field(value)}" for name, value in kept.items())
    labels = f"{escape(label, ',= ')}={escape(message[label], ',= ')}"
    return f"{escape(topic, ', ')},{labels} {fields} {time_ns}"


def main(topic: str, label: str) -> None:
    gateway = Gateway(os.environ.get("TIDEGATE_GATEWAY", "http://127.0.0.1:8080"))
    grafana = os.environ.get("GRAFANA_URL", "http://127.0.0.1:3000")
    head = {"Authorization": f"Bearer {os.environ['GRAFANA_TOKEN']}"}
    with (
        httpx2.Client(base_url=grafana, headers=head) as client,
        gateway,
        gateway.live(topic, options=f"conflation={INTERVAL}") as rows,
    ):
        for changes in rows.changes():
            now_ns = time.time_ns()
            changed = [*changes.added, *changes.changed]
            if not changed:
                continue
            body = "\n".join(line(topic, label, row.value, now_ns) for row in changed)
            try:
                client.post("/api/live/push/tidegate", content=body.encode()).raise_for_status()
            except httpx2.HTTPError as error:
                # No retry: the next flush has the newest values.
                print(f"not pushed: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
