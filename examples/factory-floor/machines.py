"""Twelve machines in three halls, as `mosquitto_sub -t 'plant/#' -F %J` would print them.

python examples/factory-floor/machines.py [SECONDS]
"""

import itertools
import json
import random
import sys
import time

MACHINES = [
    (hall, f"{kind}-{number}")
    for hall in ("north", "south", "east")
    for kind in ("press", "lathe")
    for number in (1, 2)
]
PER_SECOND = 500


def main(seconds: float) -> None:
    heat = dict.fromkeys(MACHINES, 60.0)
    end = time.monotonic() + seconds
    for count in itertools.count():
        if time.monotonic() >= end:
            return
        hall, machine = place = random.choice(MACHINES)
        heat[place] += random.gauss(0, 0.4) + (60 - heat[place]) * 0.01
        payload = {"hall": hall, "machine": machine, "celsius": round(heat[place], 1)}
        print(json.dumps({"topic": f"plant/{hall}/{machine}", "qos": 0, "payload": payload}))
        if count % 10 == 0:
            sys.stdout.flush()
            time.sleep(10 / PER_SECOND)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else float("inf"))
