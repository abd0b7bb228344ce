#!/usr/bin/env python3
"""One door to Tidegate: sets everything up in .venv, then does what was asked.

    python3 dev.py demo [--no-spark] [--for 30s]   the whole product at once
    python3 dev.py test                            linters, unit and system tests
    python3 dev.py test --quick [ROOM ...]         unit tests of rooms such as app/http
    python3 dev.py test --nightly                  everything, with fresh seeds
    python3 dev.py test [pytest arguments]         only some tests
    python3 dev.py setup                           only sets up
    python3 dev.py lint                            ruff, mypy, walls, dependencies, figures
    python3 dev.py bench [arguments]               the benchmark suite
    python3 dev.py docs [pytest arguments]         the tests of the documentation
    python3 dev.py site [folder]                   the documentation as a site, into build/site
    python3 dev.py mutants [--sample N]            a mutation score of keys and conflation
    python3 dev.py versions                        unit tests on every Python found here
    python3 dev.py lowest [--all]                  tests the lower bounds of the dependencies
    python3 dev.py sbom                            bill of materials and licenses, into dist/
    python3 dev.py audit                           known vulnerabilities of the dependencies

Needs Python 3.11 or newer, and Java 17 or newer for Spark. Installs nothing outside .venv.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "tidegate-setup"
LOG = VENV / "tidegate-setup.log"
LEVELS = ("base", "run", "all")  # each lock holds all of the one before it
NO_NETWORK = re.compile(
    r"dns error|name resolution|Name or service not known|error sending request|NewConnectionError"
    r"|Could not connect|Connection refused|Network is unreachable|timed out"
    r"|tunnel error|ProxyError",
    re.IGNORECASE,
)
JAVA_MIN = 17
PACKAGES = ("app", "clients", "conflation", "keys", "pipeline")  # each has a link in tidegate/
COMMANDS = {
    "test": ["-m", "tests.run"],
    "lint": ["-m", "tests.run", "--lint"],
    "docs": ["-m", "tests.run", "tests/docs"],
    "site": ["docs/conf.py"],
    "bench": ["-m", "bench"],
    "mutants": ["-m", "tests.mutation"],
    "versions": ["requirements/versions.py"],
    "lowest": ["requirements/lowest.py"],
    "sbom": ["requirements/supply.py", "sbom"],
    "audit": ["requirements/supply.py", "audit"],
}


class SetUpFailure(Exception):
    """A set-up that cannot go on: the reason in one sentence, and the exit code for its kind."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def environment() -> dict[str, str]:
    """Return the environment for installers; nothing in it points at another interpreter."""
    astray = {"UV_PYTHON", "VIRTUAL_ENV", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"}
    kept = {name: value for name, value in os.environ.items() if name not in astray}
    return {**kept, "UV_PYTHON_DOWNLOADS": "never", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def wanted_stamp() -> str:
    """Return a digest of the locks, the project file and Python: the inputs of an installation."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {ROOT}".encode())
    for path in sorted([ROOT / "pyproject.toml", *(ROOT / "requirements").glob("*.lock")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_set_up(level: str, stamp: str) -> bool:
    """Return True if .venv already holds this level, or a fuller one."""
    if not (PYTHON.exists() and STAMP.exists()):
        return False
    installed, _, digest = STAMP.read_text().partition(" ")
    return digest == stamp and installed in LEVELS[LEVELS.index(level) :]


def mend_links() -> None:
    """Put back the links of `tidegate/` to the packages that a checkout has lost.

    Git without `core.symlinks`, and tools that copy a checkout, write a link as a small text file
    that holds its target. Python then fails with "No module named tidegate.app". Anything else in
    a link's place is left alone.
    """
    folder = ROOT / "tidegate"
    if not folder.is_dir():
        return
    for name in PACKAGES:
        link, target = folder / name, "../" + name
        if link.is_symlink() or link.is_dir():
            continue
        is_text_of_link = link.is_file() and link.read_bytes().strip() == target.encode()
        if link.exists() and not is_text_of_link:
            raise SetUpFailure(
                f"{link} is not a link to {target}: move it away and run this again.", 78
            )
        try:
            # Made beside its place first: a folder that takes no links keeps its text file.
            spare = folder / (name + ".link")
            spare.unlink(missing_ok=True)
            spare.symlink_to(target, target_is_directory=True)
            spare.replace(link)
        except OSError as error:
            raise SetUpFailure(
                f"{link} has to be a symbolic link to {target}, and this folder takes none "
                f"({error.strerror}): check Tidegate out where links are allowed "
                "(git config core.symlinks true).",
                78,
            ) from None


def run_step(title: str, command: list[str]) -> bool:
    """Run one step of the set-up, with its output in the log, and show the time it takes."""
    start = shown_at = time.monotonic()
    show(f"{title} ...")
    with LOG.open("ab") as log:
        log.write(f"\n$ {' '.join(command)}\n".encode())
        log.flush()
        step = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, env=environment()
        )
        while step.poll() is None:
            time.sleep(0.05)
            if time.monotonic() - shown_at >= (1 if sys.stderr.isatty() else 15):
                shown_at = time.monotonic()
                show(f"{title} ... {shown_at - start:.0f} s")
    ending = "done" if step.returncode == 0 else "did not work"
    show(f"{title}: {ending} after {time.monotonic() - start:.1f} s", last=True)
    return step.returncode == 0


def show(text: str, last: bool = False) -> None:
    """Show progress: rewrite one line on a terminal, append lines elsewhere."""
    live = sys.stderr.isatty()
    ending = "" if live and not last else "\n"
    print(f"\r{text}\x1b[K" if live else text, end=ending, file=sys.stderr, flush=True)


def must(title: str, command: list[str]) -> None:
    """Run a step as `run_step` does; a failure ends the set-up with a sentence."""
    if run_step(title, command):
        return
    text = LOG.read_text(errors="replace").rpartition("\n$ ")[2]
    if NO_NETWORK.search(text):
        raise SetUpFailure(
            "The package index cannot be reached; the first set-up needs the network once. "
            f"Check the connection and run this again (details: {LOG}).",
            3,
        )
    last = ([line for line in text.splitlines() if line.strip()] or ["no output"])[-1]
    raise SetUpFailure(f"{title} failed: {last.strip()} (details: {LOG})", 1)


def make_venv() -> None:
    """Make a virtual environment of this Python's version with pip in it; keep one that fits.

    One that was made elsewhere and moved here does not fit: its scripts name the old place.
    """
    config = VENV / "pyvenv.cfg"
    made = config.read_text() if config.exists() else ""
    version = "version = {}.{}.".format(*sys.version_info)
    if PYTHON.exists() and version in made and f" {VENV}\n" in made:
        probe = subprocess.run([str(PYTHON), "-c", "import pip"], capture_output=True)
        if probe.returncode == 0:
            return
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise SetUpFailure(
            "This Python comes without its venv module: install it "
            "(Debian and Ubuntu: apt-get install python3-venv) and run this again.",
            78,
        )
    if VENV.exists() and not config.exists() and any(VENV.iterdir()):
        raise SetUpFailure(
            f"{VENV} is not a virtual environment: move it away and run this again.", 78
        )
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir()
    must("Making .venv", [sys.executable, "-m", "venv", str(VENV)])


def install(level: str) -> None:
    """Install a lock and the project itself, with uv where it can be had, else with pip."""
    pip = [str(PYTHON), "-m", "pip", "install", "-q", "--retries", "1"]
    hashed = ["--require-hashes", "-r"]
    if run_step("Installing the installer", [*pip, *hashed, "requirements/uv.lock"]):
        pip = [str(PYTHON), "-m", "uv", "pip", "install", "-p", str(PYTHON)]
    size = {"base": "the gateway", "run": "the gateway and Spark", "all": "everything"}[level]
    must(f"Installing {size}", [*pip, *hashed, f"requirements/{level}.lock"])
    must("Installing Tidegate", [*pip, "--no-deps", "--no-build-isolation", "-e", "."])


def set_up(level: str) -> None:
    """Make .venv hold a level; this costs a few reads when it already does."""
    stamp = wanted_stamp()
    if is_set_up(level, stamp):
        return
    import fcntl

    with (ROOT / "pyproject.toml").open() as door:
        fcntl.flock(door, fcntl.LOCK_EX)  # a second start waits here for the first
        if not is_set_up(level, stamp):
            make_venv()
            STAMP.unlink(missing_ok=True)
            install(level)
            STAMP.write_text(f"{level} {stamp}")


def java_version() -> int | None:
    """Return the major version of the Java that Spark will find, or None."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    release = Path(java).resolve().parents[1] / "release"
    text = release.read_text() if release.exists() else ""
    found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', text)
    if found is None:  # not every vendor ships that file; asking takes a virtual machine's start
        shown = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
        found = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(found[1]) if found else None


def need_java() -> None:
    """Refuse to go on where Spark could not start."""
    version = java_version()
    if version is None or version < JAVA_MIN:
        here = "none was found" if version is None else f"this machine's is {version}"
        raise SetUpFailure(
            f"Spark needs Java {JAVA_MIN} or newer and {here}: install one (Debian and Ubuntu: "
            "apt-get install default-jre-headless), or start without Spark: "
            "python3 dev.py demo --no-spark",
            78,
        )


def keep_bytecode() -> None:
    """Let processes started from here keep what they compile, in .venv, where nothing else does.

    The tests start a thousand processes. Where PYTHONDONTWRITEBYTECODE is set, each would compile
    every module that it imports again, which takes longer than most of them run.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        kept = VENV / "bytecode"
        # Environments and copies in temporary folders have new names each time.
        shutil.rmtree(f"{kept}{tempfile.gettempdir()}", ignore_errors=True)
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(kept))


def become(command: list[str]) -> NoReturn:
    """Turn this process into the command, so that signals reach it directly."""
    sys.stdout.flush()
    os.execv(command[0], command)


def run(verb: str, arguments: list[str]) -> int:
    """Carry out one verb and return the exit code."""
    mend_links()
    if verb == "demo":
        spark = "--no-spark" not in arguments
        if spark:
            need_java()
        set_up("run" if spark else "base")
        become([str(VENV / "bin" / "tidegate"), "demo", *arguments])
    if verb == "bench" and not (ROOT / "bench").is_dir():
        raise SetUpFailure("The benchmark suite is not available yet.", 1)
    set_up("all")
    if verb != "setup":
        os.chdir(ROOT)
        keep_bytecode()
        become([str(PYTHON), *COMMANDS[verb], *arguments])
    print(f"Tidegate is set up: {VENV / 'bin' / 'tidegate'}")
    return 0


def main() -> int:
    """Read the verb and run it; every failure is one sentence on standard error."""
    verb, *arguments = sys.argv[1:] or ["--help"]
    if verb in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    if verb not in ("demo", "setup", *COMMANDS):
        print(
            f"dev.py knows no {verb!r}: demo, test, setup, lint, bench, docs, site, "
            "mutants, versions, lowest, sbom or audit",
            file=sys.stderr,
        )
        return 2
    if sys.version_info < (3, 11):
        version = "{}.{}".format(*sys.version_info)
        print(f"Tidegate needs Python 3.11 or newer, and this is {version}.", file=sys.stderr)
        return 78
    try:
        return run(verb, arguments)
    except SetUpFailure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
