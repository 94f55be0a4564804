"""Verifiers: rewards from a check instead of a judgement. A pattern, a JSON schema, unit tests, the exit code of your own program.

A verifier is a frozen dataclass whose fields are its settings; calling it gives a score in [0, 1]. Each is registered in the group
``clawback.rewards``.

**The verifiers that run a model's code are no sandbox.** ``PythonTests`` uses a process of its own with limits on time, memory and file size, an
empty folder and an almost empty environment; ``ExitCode`` the same with a limit on time alone. That stops accidents, not intent: the
code can read your files and use the network. Where answers come from strangers, run Clawback itself in a container or a virtual machine.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from clawback import installed
from clawback.errors import MissingExtra, UsageError
from clawback.extensions.reward.hidden_tests import OBSERVE, hide

LARGEST_OUTPUT = 1_000_000
"""Bytes that a checked program may write to its output or to a file."""


@dataclass(frozen=True)
class Regex:
    """1 where ``pattern`` is found (``full``: where it is all of the response), else 0; ``negate`` turns it round."""

    name: ClassVar[str] = "regex"
    pattern: str
    full: bool = False
    negate: bool = False

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise UsageError(f"{self.pattern!r} is no regular expression: {error}.") from error

    def __call__(self, prompt: str, response: str) -> float:  # noqa: ARG002
        look = re.fullmatch if self.full else re.search
        return float((look(self.pattern, response, re.DOTALL) is not None) != self.negate)


@dataclass(frozen=True)
class JsonSchema:
    """1 where the response (its last fenced block, if it has one) is JSON that the schema allows; ½ for JSON that it does not."""

    name: ClassVar[str] = "json-schema"
    schema: Mapping[str, object]

    def __call__(self, prompt: str, response: str) -> float:  # noqa: ARG002
        try:
            import jsonschema
        except ImportError as error:
            raise MissingExtra(f"JSON schemas need jsonschema: {installed.add('train')}") from error
        try:
            value = json.loads(fenced(response, "json"))
        except (ValueError, RecursionError):
            return 0.0
        try:
            jsonschema.validate(value, dict(self.schema))
        except jsonschema.ValidationError:
            return 0.5
        except jsonschema.SchemaError as error:
            raise UsageError(f"The schema is none: {error.message}.") from error
        return 1.0


@dataclass(frozen=True)
class PythonTests:
    """1 where ``tests`` (Python with asserts) pass on the response's code (its last fenced block), else 0.

    The code runs first, then the tests, in one process; but what the tests expect is not in it: each assertion reports a value,
    and the values are compared here (``hidden_tests``). **No sandbox**, see above.
    """

    name: ClassVar[str] = "python-tests"
    tests: str
    seconds: float = 5.0
    megabytes: int = 512

    def __call__(self, prompt: str, response: str) -> float:  # noqa: ARG002
        try:
            hidden = hide(self.tests, random.Random(secrets.randbits(64)))
        except SyntaxError as error:
            raise UsageError(f"The tests of the verifier 'python-tests' are no Python: {error}.") from error
        with tempfile.TemporaryDirectory(prefix="clawback-check-") as folder:
            Path(folder, "answer.py").write_text(fenced(response, "python"), "utf-8")
            program = _RUNNER.format(
                cpu=max(1, round(self.seconds)),
                memory=self.megabytes << 20,
                size=LARGEST_OUTPUT,
                tests=hidden.text,
                observe=OBSERVE,
            )
            code, out = run([sys.executable, "-I", "-c", program], folder, "", self.seconds)
        return float(code == 0 and hidden.passed(out))


_RUNNER = """
import resource
for what, most in ((resource.RLIMIT_CPU, {cpu}), (resource.RLIMIT_AS, {memory}), (resource.RLIMIT_FSIZE, {size}), (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(what, (most, most))
exec({observe!r})
report = observed
world = {{"__name__": "answer"}}
exec(compile(open("answer.py", encoding="utf-8").read(), "answer.py", "exec"), world)
world["observed"] = report
exec(compile({tests!r}, "tests.py", "exec"), world)
report("end", lambda: None)
"""


@dataclass(frozen=True)
class ExitCode:
    """1 where a program of your own ends with 0. The response is its standard input, the prompt ``$CLAWBACK_PROMPT``.

    The program is yours and runs with your rights; it has to treat the response as untrusted itself.
    """

    name: ClassVar[str] = "exit-code"
    command: Sequence[str]
    seconds: float = 10.0

    def __call__(self, prompt: str, response: str) -> float:
        with tempfile.TemporaryDirectory(prefix="clawback-check-") as folder:
            # The kernel takes no string of more than 128 KiB, and none with a zero byte in it.
            told = {"CLAWBACK_PROMPT": prompt.replace("\0", "")[-30_000:]}
            code, _ = run(list(self.command), folder, response, self.seconds, told)
        return float(code == 0)


def run(
    command: list[str], folder: str, input_text: str, seconds: float, more: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and standard output (what it wrote to files and the like is gone with the folder). -9: out of time.

    A session of its own, so that its children end with it. Raises ``UsageError`` where there is no such program.
    """
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "SYSTEMROOT")}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as stdin:
        stdin.write(input_text.encode("utf-8", "replace"))
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=stdin,
                stdout=out,
                stderr=subprocess.DEVNULL,
                env=kept | {"HOME": folder, "TMPDIR": folder} | dict(more or {}),
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be run: {error}.") from error
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -9
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        return code, out.read(LARGEST_OUTPUT).decode("utf-8", "replace")


def fenced(response: str, language: str) -> str:
    """The last fenced block of that language, else the last one without a language, else the whole response."""
    blocks = re.findall(r"^```[ \t]*([\w+-]*)[^\n]*\n(.*?)^```[ \t]*$", response, re.DOTALL | re.MULTILINE)
    for wanted in (language, ""):
        found = [text for name, text in blocks if name.lower() == wanted]
        if found:
            return str(found[-1])
    return response.strip()
