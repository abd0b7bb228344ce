"""The record: one hash for a block of seeds; what was recorded is compared with what is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.golden.transcript import transcript
from tests.golden.wire import wire_transcript

HERE = Path(__file__).parent
HEADER = "# Seeds and the sha256 of their transcripts: see tests/golden/__main__.py\n"


@dataclass(frozen=True, slots=True)
class Recording:
    """One file of hashes: which seeds, how many in a block, and what makes their transcripts."""

    path: Path
    seeds: int
    block: int
    transcript: Callable[[int], Iterator[str]]

    @property
    def blocks(self) -> list[range]:
        """All blocks of seeds."""
        starts = range(0, self.seeds, self.block)
        return [range(start, min(start + self.block, self.seeds)) for start in starts]

    def recorded(self) -> dict[range, str]:
        """What the file says."""
        lines = self.path.read_text().splitlines()
        pairs = (line.split() for line in lines if not line.startswith("#"))
        return {range(*map(int, seeds.split("-"))): found for seeds, found in pairs}

    def found(self, blocks: Iterable[range], *, jobs: int = 1) -> Iterator[tuple[range, str]]:
        """What the code says now."""
        blocks = list(blocks)
        if jobs == 1:
            yield from zip(blocks, map(self.hash_of, blocks), strict=True)
            return
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            yield from zip(blocks, pool.map(self.hash_of, blocks), strict=True)

    def hash_of(self, seeds: Iterable[int]) -> str:
        """Of all transcripts of these seeds."""
        found = hashlib.sha256()
        for seed in seeds:
            for line in self.transcript(seed):
                found.update(line.encode())
                found.update(b"\n")
        return found.hexdigest()

    def differing(self, blocks: Iterable[range], *, jobs: int = 1) -> Iterator[range]:
        """Blocks that say something else than when they were recorded."""
        recorded = self.recorded()
        for seeds, found in self.found(blocks, jobs=jobs):
            if recorded.get(seeds) != found:
                yield seeds

    def record(self, *, jobs: int = 1) -> None:
        """Write the file anew."""
        pairs = self.found(self.blocks, jobs=jobs)
        lines = [f"{seeds.start}-{seeds.stop} {found}\n" for seeds, found in pairs]
        self.path.write_text(HEADER + "".join(lines))


ENGINE = Recording(HERE / "engine.txt", 2_000, 50, transcript)
TRANSCRIPTS = {"engine": transcript, "simulation": wire_transcript}
"""What can be compared with another checkout. Bytes on the wire are not recorded: which iteration a
request comes in, and when a heartbeat is looked at, may change without anybody minding."""
