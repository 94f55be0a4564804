"""The quick tests (`make quick`): they import no torch and start no process. ``tests/quick.txt`` lists their files.

This module is a pytest plugin (``-p tests.quick``) that holds them to it: whoever imports torch or starts a process
fails, also where the product would have caught the error.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).with_name("quick.txt")
HEAVY = frozenset({"torch", "transformers"})
PROCESSES = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system"}
)
"""Audit events of the interpreter (https://docs.python.org/3/library/audit_events.html)."""


class NotQuick(Exception):
    """A quick test did what takes long."""


class Guard:
    """Imports are watched from the start, processes in tests alone: pytest-xdist starts some."""

    def __init__(self) -> None:
        self.in_a_test = False
        self.faults: list[str] = []

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook: what it raises comes out of the import or the call."""
        if event == "import" and str(arguments[0]).partition(".")[0] in HEAVY:
            self._refuse(f"imports {arguments[0]}")
        if self.in_a_test and event in PROCESSES:
            self._refuse(f"starts a process ({event})")

    def _refuse(self, fault: str) -> None:
        self.faults.append(fault)
        raise NotQuick(_sentence([fault]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        self.in_a_test, self.faults = True, []
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        yield
        if self.faults:
            raise NotQuick(_sentence(self.faults))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        try:
            yield
        finally:
            self.in_a_test = False


def _sentence(faults: list[str]) -> str:
    return f"A quick test {' and '.join(faults)}: change that, or take its file out of tests/{LIST.name}."


def files() -> list[str]:
    """The files of the quick tests, from the root of the repository."""
    return LIST.read_text("utf-8").split()


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    _install(early_config)  # before any conftest.py


def pytest_configure(config: pytest.Config) -> None:
    _install(config)  # a process of pytest-xdist has no earlier hook


def _install(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(Guard.__name__):
        guard = Guard()
        config.pluginmanager.register(guard, Guard.__name__)
        sys.addaudithook(guard.audit)
