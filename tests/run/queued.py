"""Plugin: this process takes files of tests from queues that it shares with others, one at a time, until they are empty.

    pytest -p tests.run.queued --queue=FILE [--queue=FILE]

A file is imported and collected by the process that runs it alone: to collect all of them takes half a minute, in each process.
A queue is a text file: in each line a path, or several that one process shall run, parted by blanks. A second queue is begun
when the first is empty.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.main import CollectionArgument, resolve_collection_argument


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--queue", action="append", default=[], metavar="FILE", help="take the files of tests from it")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.queue:
        config.pluginmanager.register(FromQueues([Path(each) for each in config.option.queue]))


def take(queue: Path) -> list[str]:
    """Take the paths of the first line out of a queue; [] where there is none. Processes take turns."""
    with queue.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        first, *others = file.read().splitlines() or [""]
        file.seek(0)
        file.truncate()
        file.writelines(f"{line}\n" for line in others)
    return first.split()


class FromQueues:
    """Collects a file when the one before it is all but done: what is shared by all tests of a run stays between them."""

    def __init__(self, queues: list[Path]) -> None:
        self.queues = queues
        self.collected = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        return True                         # nothing yet

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        files = self.collect(session)
        items = next(files, [])
        while items:
            following: list[pytest.Item] = []
            for at, item in enumerate(items):
                if at + 1 == len(items):
                    following = next(files, [])
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=items[at + 1] if at + 1 < len(items)
                                                         else next(iter(following), None))
                if session.shouldstop or session.shouldfail:
                    raise session.Interrupted(session.shouldstop or session.shouldfail)
            items = following
        session.testscollected = self.collected         # of none, pytest's exit code says so
        return True

    def collect(self, session: pytest.Session) -> Iterator[list[pytest.Item]]:
        """Yield the tests of each file that holds some for this run. The session takes its arguments as they are asked for."""
        session._collection_cache = {}
        session._initial_parts = self.arguments(session)        # type: ignore[assignment]    # a list that is not yet known
        for module in session.collect():
            items = list(session.genitems(module))
            session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
            session.config.hook.pytest_collection_finish(session=session)
            self.collected += len(items)
            session.items = items
            if items:
                yield items

    def arguments(self, session: pytest.Session) -> Iterator[CollectionArgument]:
        while paths := next(filter(None, map(take, self.queues)), []):
            for path in paths:
                one = resolve_collection_argument(session.config.rootpath, path, 0)
                session._initialpaths = frozenset({one.path})
                session._initialpaths_with_parents = frozenset({one.path, *one.path.parents})
                yield one
