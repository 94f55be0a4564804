"""Checked rewards: what passes, what fails, and what cannot hang, fill the disk or pretend."""

from __future__ import annotations

import importlib.metadata
import sys
import time
from pathlib import Path

import pytest

from clawback.errors import UsageError
from clawback.extensions.reward.answer_checks import ExitCode, JsonSchema, PythonTests, Regex, fenced
from clawback.rewards import verifiers
from clawback.rewards.verifiers import Verifier

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_reward"


def test_a_pattern() -> None:
    assert Regex(r"\botters?\b")("", "An otter.") == 1
    assert Regex(r"\botters?\b", negate=True)("", "An otter.") == 0
    assert Regex(r"[0-9]+", full=True)("", "12 ") == 0
    assert Regex(r"a.b", full=True)("", "a\nb") == 1
    with pytest.raises(UsageError, match="regular expression"):
        Regex("(")


SCHEMA = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"name": "otter"}', 1),
        ('Here you are:\n```json\n{"name": "otter"}\n```\nBye', 1),
        ('```\n[1]\n```\n```json\n{"name": "otter"}\n```', 1),
        ('{"name": 3}', 0.5),
        ("name: otter", 0),
        ("", 0),
        ("[" * 200_000, 0),
    ],
)
def test_a_json_schema(text: str, score: float) -> None:
    assert JsonSchema(SCHEMA)("", text) == score


def test_a_schema_that_is_none_is_said() -> None:
    with pytest.raises(UsageError, match="schema"):
        JsonSchema({"type": "otter"})("", "{}")


TESTS = "assert double(2) == 4\nassert double(-1) == -2\n"


def test_unit_tests() -> None:
    check = PythonTests(TESTS)
    assert check("", "Like this:\n```python\ndef double(x):\n    return 2 * x\n```") == 1
    assert check("", "def double(x): return 2 * x") == 1
    assert check("", "def double(x): return x + 2") == 0
    assert check("", "def double(x) return") == 0
    assert check("", "") == 0


@pytest.mark.parametrize(
    "trick",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "print('all tests passed')\nraise SystemExit",
        "quit()",
    ],
)
def test_leaving_early_is_not_passing(trick: str) -> None:
    assert PythonTests(TESTS)("", trick) == 0


@pytest.mark.parametrize(
    "trick",
    [
        "import sys\nf = sys._getframe(1)\nprint(f.f_globals, f.f_code.co_consts)\ndef double(x): return x",
        "class Yes:\n    __eq__ = lambda s, o: True\ndef double(x): return Yes()",
        "class Yes(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef double(x): return Yes(x)",
        "import builtins\nbuiltins.AssertionError = type('E', (Exception,), {'__new__': lambda c, *a: 1})\ndef double(x): return x",
        'import os\nos.write(1, b\'\\n\\x1e["end", "None"]\\n\')\nos._exit(0)',
        'import os\nfor n in (0, 1): os.write(1, b\'\\n\\x1e[%d, "1"]\\n\' % n)\nos.write(1, b\'\\n\\x1e["end", "None"]\\n\')\nos._exit(0)',
        "import sys\ndef double(x):\n    consts = [c for c in sys._getframe(1).f_code.co_consts if isinstance(c, int)]\n    return (consts or [0])[-1]",
        "import sys\ndef trace(f, e, a):\n    return trace\nsys.settrace(trace)\ndef double(x): return x",
        "observed = lambda *a: None\ndef double(x): return x",
    ],
)
def test_code_that_sets_out_to_fool_its_tests_does_not(trick: str) -> None:
    assert PythonTests(TESTS)("", trick) == 0


def test_every_kind_of_assertion() -> None:
    tests = (
        "import decimal\nassert f(1) == 2, 'why'\nassert [4, 'a'] == g()\nassert f(1) > 1\nassert not h()\n"
        "for n in range(3):\n    assert f(n) == n + 1\ntry:\n    f(None)\n    assert False\nexcept TypeError:\n    pass\n"
        "assert decimal.Decimal(3) == 3\n"
    )
    right = "def f(n): return n + 1\ndef g(): return [4, 'a']\ndef h(): return []"
    for _ in range(4):
        assert PythonTests(tests)("", right) == 1
        assert PythonTests(tests)("", right.replace("[]", "[1]")) == 0
        assert PythonTests(tests)("", right.replace("'a'", "'b'")) == 0
    with pytest.raises(UsageError, match="no Python"):
        PythonTests("assert (")("", right)


def test_what_hangs_is_ended_with_its_children() -> None:
    began = time.monotonic()
    children = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])"
    assert PythonTests(TESTS, seconds=0.5)("", children) == 0
    assert PythonTests(TESTS, seconds=0.5)("", "while True: pass") == 0
    assert time.monotonic() - began < 10


def test_memory_and_files_are_limited() -> None:
    assert PythonTests("", megabytes=256)("", "x = bytearray(1 << 29)") == 0
    assert PythonTests("", megabytes=1024)("", "x = bytearray(1 << 26)") == 1
    assert PythonTests("")("", "open('big', 'wb').write(b'x' * 5_000_000)") == 0
    assert PythonTests("")("", "print('x' * 5_000_000)") == 0


def test_no_keys_of_the_environment_reach_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    assert (
        PythonTests("import os; assert 'MY_API_KEY' not in os.environ; assert os.listdir() == ['answer.py']")(
            "", ""
        )
        == 1
    )


def test_an_exit_code() -> None:
    program = "import os, sys; sys.exit(sys.stdin.read() != os.environ['CLAWBACK_PROMPT'].upper())"
    check = ExitCode([sys.executable, "-c", program])
    assert check("otter", "OTTER") == 1
    assert check("otter", "otter") == 0
    assert check("o" * 500_000, "x" * 500_000) == 0
    assert ExitCode([sys.executable, "-c", "while True: pass"], seconds=0.3)("", "") == 0
    with pytest.raises(UsageError, match="cannot be run"):
        ExitCode(["no-such-program-anywhere"])("", "")


def test_found_by_name() -> None:
    assert {"exit-code", "json-schema", "python-tests", "regex", "environment"} <= set(verifiers.names())
    made = verifiers.make("regex", {"pattern": "x"})
    assert isinstance(made, Verifier)
    assert made("", "x") == 1
    for wrong in (("otter", {}), ("regex", {"pattern": "x", "colour": 1})):
        with pytest.raises(UsageError):
            verifiers.make(*wrong)


def test_the_example_plugin_is_found_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As pip lays it out: the module, and a metadata folder with the entry point that its pyproject.toml declares."""
    import tomllib

    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["clawback.rewards"]
    info = tmp_path / f"my_reward-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("[clawback.rewards]\n" + "\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    importlib.invalidate_caches()
    assert "reading-ease" in verifiers.names()
    made = verifiers.make("reading-ease", {"target": 60.0})
    assert isinstance(made, Verifier)
    easy = made("", "The cat sat on the mat. It was warm. She was glad.")
    hard = made(
        "",
        "Notwithstanding institutional interdependencies, organisational heterogeneity necessitates reconsideration.",
    )
    assert easy == 1
    assert hard == 0


def test_the_last_block_of_the_language_counts() -> None:
    text = "```python\na\n```\n```sh\nb\n```\n```python title=x\nc\n```\n"
    assert fenced(text, "python") == "c\n"
    assert fenced("```\nplain\n```", "python") == "plain\n"
    assert fenced(" no fence ", "python") == "no fence"
