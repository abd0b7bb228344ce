"""Runs the tests of each mutant: in a fork of a pytest that has collected, or after a new import.

Importing the gateway and collecting takes seconds, the tests of one line milliseconds. So a mutant
whose fault is within functions replaces their bytecode in a fork. One whose fault is in what
modules do when they are imported is imported anew, in a fork that knows only other people's
packages.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.mutation.code import Replacement, clear_caches, compiled, functions
from tests.mutation.mutants import Mutant, mutated
from tests.mutation.recording import LEFT_OUT, Recorder, TestMap

PRELOADED = ("pytest", "hypothesis", "fastapi", "uvicorn", "redis", "rich.console")
TESTS_MAX_S = 150.0
"""CPU seconds of tests, as they were recorded, that one mutant is given."""
FIRST_FILES = 3
"""Files of tests that are collected for a mutant first."""


@dataclass
class Outcome:
    """What became of a mutant: `killed`, `survived` or `timed out`, and by what."""

    mutant: Mutant
    state: str
    by: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"{self.state}{by}: {self.mutant} ({self.seconds:.1f} s)"


@dataclass
class Task:
    """What all processes of one measurement share: places, selection, and the map of tests."""

    root: Path
    folder: Path
    roots: list[str]
    markers: str
    workers: int
    tests: TestMap = field(default_factory=TestMap)

    def pytest(self, plugin: object, files: Iterable[str] = ()) -> int:
        """Run pytest in this process."""
        options = ["-q", "-s", "-p", "no:cacheprovider", "-m", self.markers, "-o", "timeout=0"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is preloaded
        return int(pytest.main([*options, *(list(files) or self.roots)], plugins=[plugin]))

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that may see a mutant: those that execute its line, or else its statement."""
        found = self.tests.executing(mutant.path, [mutant.start[0]])
        return found or self.tests.executing(mutant.path, self._statement(mutant))

    def is_imported(self, mutant: Mutant) -> bool:
        """Whether its line runs on import."""
        return self.tests.is_imported(mutant.path, [mutant.start[0]])

    def _statement(self, mutant: Mutant) -> Iterable[int]:
        """Lines of the smallest statement that has no line of its own in the map."""
        line = mutant.start[0]
        found = range(line, line + 1)
        for node in ast.walk(ast.parse((self.root / mutant.path).read_text())):
            if isinstance(node, ast.stmt) and node.end_lineno is not None:
                decorators = [each.lineno for each in getattr(node, "decorator_list", ())]
                lines = range(min([node.lineno, *decorators]), node.end_lineno + 1)
                if line in lines and (len(found) == 1 or len(lines) < len(found)):
                    found = lines
        return found


def in_fork(act: Callable[[], int]) -> int:
    """Run a function in a fork of this process; return the fork's id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        code = act()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def record(task: Task) -> TestMap:
    """Run all tests once, in as many processes as there are workers."""

    def part(number: int) -> int:
        recorder = Recorder(task.root)
        _be_quiet(task.folder / f"{number}.log")
        code = task.pytest(recording := _Recording(recorder, number, task.workers))
        if code not in (0, 1):
            return code
        recorder.stop().without(recording.failed).save(task.folder / f"{number}.map")
        return 0

    parts = [in_fork(partial(part, number)) for number in range(task.workers)]
    codes = [os.waitpid(child, 0)[1] for child in parts]
    if any(codes):
        raise RuntimeError("\n".join(log.read_text()[-2_000:] for log in task.folder.glob("*.log")))
    for log in task.folder.glob("*.log"):
        for line in log.read_text().splitlines():
            if line.startswith(LEFT_OUT):
                print(line, flush=True)
    found = TestMap()
    for path in task.folder.glob("*.map"):
        found.add(TestMap.load(path))
    return found


class _Recording:
    def __init__(self, recorder: Recorder, number: int, workers: int) -> None:
        self._recorder, self._number, self._workers = recorder, number, workers
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out what fails without a mutant."""
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take every n-th file."""
        files = {path: number for number, path in enumerate(dict.fromkeys(i.path for i in items))}
        items[:] = [i for i in items if files[i.path] % self._workers == self._number]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Record each test on its own."""
        with self._recorder.context(item.nodeid):
            return (yield)


class _Runner:
    """Runs chosen tests until the first fails, each with a limit for its CPU time."""

    def __init__(self, session: pytest.Session, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._items = {item.nodeid: item for item in session.items}
        self._failed = False
        session.config.pluginmanager.register(self)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notice a failure in any phase."""
        self._failed |= report.failed

    def first_failing(self, tests: Iterable[str]) -> str | None:
        found = [self._items[test] for test in tests if test in self._items]
        for item, following in zip(found, [*found[1:], None], strict=True):
            _limit(self._seconds.get(item.nodeid, 0))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return item.nodeid
        return None


def _limit(recorded_s: float) -> None:
    """Let the kernel end this process when a test takes far longer than was recorded."""
    limit = int(time.process_time() + 5 + 5 * recorded_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    # Where nothing runs, CPU time does not pass.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(120 + 60 * recorded_s))


def _be_quiet(log: Path = Path(os.devnull)) -> None:
    """Let a fork print to nowhere else, and take no more memory than tests do."""
    output = os.open(log, os.O_RDWR | os.O_CREAT)
    for each in (1, 2):
        os.dup2(output, each)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def _within_budget(tests: list[str], seconds: dict[str, float]) -> list[str]:
    kept, total = [], 0.0
    for test in tests:
        total += seconds[test]
        if total > TESTS_MAX_S:
            break
        kept.append(test)
    return kept


def _await(mutant: Mutant, child: int, killer: Path, begun: float) -> Outcome:
    """Wait for the process that tests a mutant, and say what became of it."""
    _, status, used = os.wait4(child, 0)
    seconds = used.ru_utime + used.ru_stime
    if killer.exists():
        return Outcome(mutant, "killed", killer.read_text(), seconds)
    if os.WIFSIGNALED(status):
        ended = os.WTERMSIG(status)
        is_limit = ended in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
        return Outcome(mutant, "timed out" if is_limit else "killed", f"signal {ended}", seconds)
    if os.WEXITSTATUS(status) == 0:
        return Outcome(mutant, "survived", "", seconds)
    return Outcome(mutant, "killed", "the import", seconds)


def run_within_functions(
    task: Task, mutants: list[Mutant], report: Callable[[Outcome], None]
) -> list[Mutant]:
    """Test mutants in forks; return those that have to be imported anew."""
    reading, writing = os.pipe()

    def resident() -> int:
        os.close(reading)
        log = os.open(task.folder / "resident.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        return task.pytest(_Resident(task, mutants, writing))

    child = in_fork(resident)
    os.close(writing)
    left = []
    with os.fdopen(reading) as lines:
        for line in lines:
            number, state, by, seconds = json.loads(line)
            if state == "import":
                left.append(mutants[number])
            elif state == "wrong":
                print(f"{by} fails alone without a mutant: those that it killed are in doubt")
            else:
                report(Outcome(mutants[number], state, by, seconds))
    if os.waitpid(child, 0)[1]:
        raise RuntimeError((task.folder / "resident.log").read_text()[-3_000:])
    return left


class _Resident:
    """The plugin of the pytest that collects once."""

    def __init__(self, task: Task, mutants: list[Mutant], writing: int) -> None:
        self._task, self._mutants, self._writing = task, mutants, writing

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Let forks take the mutants in turn, instead of running the tests."""
        gc.unfreeze()
        self._known = functions()
        lanes = [in_fork(partial(self._lane, session, lane)) for lane in range(self._task.workers)]
        codes = [os.waitpid(lane, 0)[1] for lane in lanes]
        if any(codes):
            raise RuntimeError("a process that tests mutants has failed")
        self._check_killers(session)
        return True

    def _check_killers(self, session: pytest.Session) -> None:
        """Run each test that killed a mutant once more, without one."""
        for killer in {path.read_text() for path in self._task.folder.glob("*.killer")}:

            def without(killer: str = killer) -> int:
                _be_quiet()
                return int(
                    _Runner(session, self._task.tests.seconds).first_failing([killer]) is not None
                )

            if os.waitpid(in_fork(without), 0)[1]:
                self._write(0, "wrong", killer, 0)

    def _lane(self, session: pytest.Session, lane: int) -> int:
        for number in range(lane, len(self._mutants), self._task.workers):
            self._test(session, number, self._mutants[number])
        return 0

    def _test(self, session: pytest.Session, number: int, mutant: Mutant) -> None:
        text = mutated(self._task.root, mutant)
        assert text is not None
        path = self._file(mutant.path)
        source = Path(path).read_text()
        new = Replacement(compiled(source, path), compiled(text, path))
        tests = _within_budget(self._task.tests_of(mutant), self._task.tests.seconds)
        if self._task.is_imported(mutant) or not new.is_within_functions(self._known):
            self._write(number, "import", "", 0)
            return
        if not tests:
            self._write(number, "survived", "no test executes it", 0)
            return
        killer = self._task.folder / f"{number}.killer"

        def act() -> int:
            _be_quiet()
            clear_caches()
            new.apply(self._known)
            failing = _Runner(session, self._task.tests.seconds).first_failing(tests)
            if failing is not None:
                killer.write_text(failing)
            return int(failing is not None)

        outcome = _await(mutant, in_fork(act), killer, time.monotonic())
        self._write(number, outcome.state, outcome.by, outcome.seconds)

    def _file(self, path: str) -> str:
        """The file as modules know it: within the links of `tidegate/`."""
        return str(self._task.root / "tidegate" / path)

    def _write(self, number: int, state: str, by: str, seconds: float) -> None:
        os.write(self._writing, (json.dumps([number, state, by, seconds]) + "\n").encode())


def run_after_import(task: Task, mutants: list[Mutant], report: Callable[[Outcome], None]) -> None:
    """Test mutants each in a process that imports the product with the fault in it."""
    running: dict[int, tuple[Mutant, Path]] = {}
    waiting = list(mutants)
    while waiting or running:
        while waiting and len(running) < task.workers:
            mutant = waiting.pop(0)
            killer = task.folder / f"import-{len(waiting)}.killer"
            running[in_fork(partial(_after_import, task, mutant, killer))] = mutant, killer
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        child = ended.si_pid
        mutant, killer = running.pop(child)
        report(_await(mutant, child, killer, time.monotonic()))


def _after_import(task: Task, mutant: Mutant, killer: Path) -> int:
    """Import with the fault, and run the tests of the module; of few files first."""
    lines = task.tests.tests.get(mutant.path, {})
    tests = task.tests_of(mutant) or task.tests.executing(mutant.path, lines)
    tests = _within_budget(tests, task.tests.seconds)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    text = mutated(task.root, mutant)
    assert text is not None
    _be_quiet()
    _import_as(task.root / mutant.path, text)
    for some in (files[:FIRST_FILES], files[FIRST_FILES:]):
        chosen = [test for test in tests if test.partition("::")[0] in some]
        plugin = _Chosen(task, chosen, killer)
        if some and task.pytest(plugin, some):
            return 1
        if killer.exists():
            return 1
    return 0


class _Chosen:
    """The plugin of a pytest that runs some tests in a given order."""

    def __init__(self, task: Task, tests: list[str], killer: Path) -> None:
        self._task, self._tests, self._killer = task, tests, killer

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run them until the first fails."""
        if session.testsfailed:
            raise session.Interrupted("some tests cannot be imported")
        runner = _Runner(session, self._task.tests.seconds)
        failing = runner.first_failing(self._tests)
        if failing is not None:
            self._killer.write_text(failing)
        return True


def _import_as(file: Path, text: str) -> None:
    """Let imports of a file take this text instead."""
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, name: str) -> CodeType | None:
        if Path(self.path).resolve() == file.resolve():
            return compiled(text, self.path)
        return original(self, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]  # patched on purpose


def preload() -> None:
    """Import what forks need and what no mutant changes."""
    for name in PRELOADED:
        importlib.import_module(name)
