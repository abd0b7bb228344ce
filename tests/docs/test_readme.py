"""The README's commands run, and their output is what it shows."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ROOT
from tests.support.checkouts import copy_checkout, lend_environment
from tests.support.commands import environment
from tests.support.deadlines import HANGS_S
from tests.support.outside import require_curl

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
TIDEGATE = Path(sys.executable).with_name("tidegate")


def block_with(text: str) -> str:
    return str(next(block for block in BLOCKS if text in block))


def test_folders_of_the_map_are_there() -> None:
    named = re.findall(r"^\| (`.*?`) \|", README.split("## The map")[1], re.MULTILINE)
    paths = [path for cell in named for path in re.findall(r"`([^`]+)`", cell)]
    assert len(paths) >= 12
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_pages_it_links_to_are_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) >= 3
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.system
def test_four_prices_come_as_one(tmp_path: Path) -> None:
    require_curl()
    serve = subprocess.Popen(
        [TIDEGATE, "serve", "--data", ":memory:", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    try:
        assert serve.stdout is not None
        address = serve.stdout.readline().split()[-1]
        create, listen = block_with("curl -X PUT"), block_with("curl -N '")
        publish = block_with("printf")
        run(create, address)
        with subprocess.Popen(
            here(listen, address),
            shell=True,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as listening:
            assert listening.stdout is not None
            lines = iter(listening.stdout)
            while not next(lines).startswith("event: group_end"):
                pass
            run(publish, address)
            prices = next(line for line in lines if "IBM" in line)
            os.killpg(listening.pid, signal.SIGTERM)
        assert prices.strip() == 'data: {"tickerId": "IBM", "price": 151.10}'
        assert prices.strip() in README
    finally:
        serve.terminate()
        serve.wait(HANGS_S)
        if serve.stdout is not None:
            serve.stdout.close()


@pytest.mark.system
def test_the_demo_without_spark_delivers(tmp_path: Path) -> None:
    """The first command of the page, as it says for machines without Java."""
    command, without = "python3 dev.py demo", "python3 dev.py demo --no-spark"
    assert BLOCKS[0].startswith(command)
    assert f"`{without}`" in README
    copy_checkout(tmp_path / "checkout")
    lend_environment(tmp_path / "checkout")
    ended = subprocess.run(
        [sys.executable, *without.split()[1:], "--for", "4s", "--port", "0"],
        cwd=tmp_path / "checkout",
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert ended.returncode == 0, ended.stderr
    counts = re.findall(r"\b([\d,]+)(?:;|$)", ended.stdout.splitlines()[-1])
    assert counts
    assert "0" not in counts


def here(command: str, address: str) -> str:
    return command.replace("http://127.0.0.1:8080", address)


def run(command: str, address: str) -> None:
    subprocess.run(
        here(command, address).replace("curl ", "curl -sSf ", 1),
        shell=True,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=HANGS_S,
    )
