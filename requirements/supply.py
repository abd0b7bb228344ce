"""What a release is made of, and what is known against it: `dev.py sbom` and `dev.py audit`.

- `sbom` writes `dist/sbom.cdx.json` (CycloneDX) and `dist/licenses.txt`: the packages of run.lock,
  as they are installed here. Both may hold addresses, so neither is committed.
- `audit` asks the OSV database for known vulnerabilities of the same packages. It fails if there
  are any, and says in one line if the database cannot be reached: that is no fault of a change.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LOCK = ROOT / "requirements" / "run.lock"
OWN = "tidegate"
NOT_STATED = "not stated"
# What pip-audit says when it gets no answer, by the classes of its own and of its HTTP library.
UNREACHABLE = re.compile(
    r"ConnectionError|ConnectTimeout|ReadTimeout|timed out|Connection refused|Max retries exceeded"
    r"|name resolution|ProxyError|connection error|Could not connect"
    r"|\b(403|407|429|5\d\d) (Client|Server) Error",
    re.IGNORECASE,
)


def locked() -> set[str]:
    """Return the names in run.lock, as PEP 503 writes them."""
    return {plain(name) for name in re.findall(r"^([\w.-]+)==", LOCK.read_text(), re.MULTILINE)}


def plain(name: str) -> str:
    """Return a package's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def materials() -> dict[str, Any]:
    """Return the bill of materials of what is installed here and in run.lock."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "sbom.json"
        command = [
            str(BIN / "cyclonedx-py"),
            "environment",
            sys.executable,
            "--output-reproducible",
        ]
        command += ["--pyproject", str(ROOT / "pyproject.toml"), "--of", "JSON", "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        found: dict[str, Any] = json.loads(made.read_text())
    wanted = locked()
    kept = [it for it in found["components"] if plain(it["name"]) in wanted]
    for it in kept:
        # A license that is no SPDX expression is left out of the bill.
        said = metadata(it["name"]).json.get("license")
        if said and not it.get("licenses"):
            it["licenses"] = [{"license": {"name": str(said)}}]
    own = found["metadata"]["component"]["bom-ref"]
    known = {it["bom-ref"] for it in kept} | {own}
    links = [
        {**it, "dependsOn": [ref for ref in it.get("dependsOn", []) if ref in known]}
        for it in found.get("dependencies", [])
        if it["ref"] in known
    ]
    return {**found, "components": kept, "dependencies": links}


def licenses(bill: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each package: name, version, licenses."""
    for it in sorted(bill["components"], key=lambda it: plain(it["name"])):
        yield f"{it['name']} {it['version']}: {', '.join(_stated(it)) or NOT_STATED}"


def _stated(component: dict[str, Any]) -> list[str]:
    stated = []
    for entry in component.get("licenses", []):
        found = entry.get("license", {})
        text = entry.get("expression") or found.get("id") or found.get("name", "")
        # Some packages put the whole text of a license into the field of its name.
        stated.append(text.strip().splitlines()[0][:80] if text.strip() else "")
    return list(dict.fromkeys(text for text in stated if text))


def sbom() -> int:
    """Write bill and licenses to dist/."""
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    bill = materials()
    (folder / "sbom.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    (folder / "licenses.txt").write_text("\n".join(licenses(bill)) + "\n")
    print(f"{len(bill['components'])} packages: dist/sbom.cdx.json, dist/licenses.txt")
    return 0


def audit(more: list[str]) -> int:
    """Ask for known vulnerabilities; return 1 if there are any, 0 also without an answer."""
    command = [str(BIN / "pip-audit"), "--requirement", str(LOCK), "--disable-pip"]
    command += ["--vulnerability-service", "osv", "--progress-spinner", "off", "--timeout", "10"]
    ended = subprocess.run([*command, *more], capture_output=True, text=True, cwd=ROOT)
    if ended.returncode and not ended.stdout.strip() and UNREACHABLE.search(ended.stderr):
        print("Not audited: the database of vulnerabilities cannot be reached.")
        return 0
    print((ended.stdout + ended.stderr).strip())
    return ended.returncode


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    sys.exit(sbom() if verb == "sbom" else audit(arguments))
