"""Which test executes which line of keys/ and conflation/, and how long each takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from coverage import Coverage

from tests.mutation.mutants import ROOMS

ON_IMPORT = ""
LEFT_OUT = "fails without a mutant, and is left out: "


@dataclass
class TestMap:
    """For each file and line the tests that execute it, and for each test its CPU seconds."""

    tests: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def executing(self, path: str, lines: Iterable[int]) -> list[str]:
        """Tests of any of these lines, those that are next to the module first, then the fastest.

        The import is no test.
        """
        found: set[str] = set()
        known = self.tests.get(path, {})
        for line in lines:
            found |= known.get(line, set())
        room, *folders, name = Path(path).with_suffix("").parts
        own = "/".join(["tests", room, *folders, f"test_{name}.py"])
        folder = "/".join(["tests", room, *folders, ""])

        def order(test: str) -> tuple[bool, bool, float]:
            is_near = test.startswith(folder) and self.seconds[test] < 1
            return not test.startswith(own), not is_near, self.seconds[test]

        return sorted(found - {ON_IMPORT}, key=order)

    def is_imported(self, path: str, lines: Iterable[int]) -> bool:
        """Whether any of these lines runs when modules and tests are imported."""
        known = self.tests.get(path, {})
        return any(ON_IMPORT in known.get(line, ()) for line in lines)

    def without(self, failed: set[str]) -> TestMap:
        """Leave tests out, and say so."""
        for test in failed:
            print(f"\n{LEFT_OUT}{test}", flush=True)
            self.seconds.pop(test, None)
        for lines in self.tests.values():
            for tests in lines.values():
                tests -= failed
        return self

    def add(self, other: TestMap) -> None:
        """Join what two processes recorded."""
        self.seconds |= other.seconds
        for path, lines in other.tests.items():
            known = self.tests.setdefault(path, {})
            for line, tests in lines.items():
                known.setdefault(line, set()).update(tests)

    def save(self, path: Path) -> None:
        """Write it as JSON, each test's name once."""
        names = [ON_IMPORT, *self.seconds]
        numbers = {name: number for number, name in enumerate(names)}
        tests = {
            module: {line: sorted(map(numbers.__getitem__, each)) for line, each in lines.items()}
            for module, lines in self.tests.items()
        }
        path.write_text(json.dumps({"seconds": self.seconds, "tests": tests}))

    @classmethod
    def load(cls, path: Path) -> TestMap:
        """Read what `save` has written."""
        read = json.loads(path.read_text())
        names = [ON_IMPORT, *read["seconds"]]
        tests = {
            module: {int(line): {names[each] for each in found} for line, found in lines.items()}
            for module, lines in read["tests"].items()
        }
        return cls(tests, read["seconds"])


class Recorder:
    """Records one process, in contexts: the import, then one for each test."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seconds: dict[str, float] = {}
        # Only the C tracer distinguishes contexts on all versions of Python.
        self._coverage = Coverage(
            data_file=None,
            config_file=False,
            include=[str(root / room / "*") for room in ROOMS]
            + [str(root / "tidegate" / room / "*") for room in ROOMS],
        )
        self._coverage.set_option("run:core", "ctrace")
        self._coverage.start()

    @contextmanager
    def context(self, test: str) -> Iterator[None]:
        """Record what runs within as the test's."""
        self._coverage.switch_context(test)
        begun = time.process_time()
        yield
        self._seconds[test] = time.process_time() - begun
        self._coverage.switch_context(ON_IMPORT)

    def stop(self) -> TestMap:
        """Return what was recorded."""
        self._coverage.stop()
        data = self._coverage.get_data()
        found = TestMap(seconds=self._seconds)
        for measured in data.measured_files():
            path = str(Path(measured).resolve().relative_to(self._root))
            lines = data.contexts_by_lineno(measured)
            found.tests[path] = {line: set(contexts) for line, contexts in lines.items()}
        return found
