"""The machine, the versions and the time of a measurement: without them a figure says nothing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import psutil

from dev import ROOT

PACKAGES = ("uvicorn", "starlette", "fastapi", "sse-starlette", "msgspec", "pydantic", "redis")
QUIET_S = 1.0
LAPS = 20


def conditions() -> dict[str, str]:
    """Return what a reader has to know of the machine now, by name."""
    packages = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    return {
        "CPU": _cpu_model(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        "packages": packages,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": _commit(),
        # Of all cores, before anything of ours runs: figures of a busy machine are too high.
        "busy before": f"{psutil.cpu_percent(QUIET_S):.0f} %",
    }


def core_speed() -> float:
    """Return the CPU seconds of a fixed piece of work: CPU times on equal terms are divided by it.

    The best of some laps: whatever else the machine does only adds time.
    """
    text = json.dumps([{"tickerId": f"T{n:04d}", "bid": n / 4} for n in range(500)])
    laps: list[float] = []
    for _ in range(LAPS):
        began = time.process_time()
        for _ in range(10):
            json.dumps(json.loads(text))
        laps.append(time.process_time() - began)
    return min(laps)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _commit() -> str:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return "unknown"
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", ":!bench/report.*")
    return f"{commit} with changes" if changed else commit


def _git(*words: str) -> str:
    ended = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return ended.stdout.strip()
