"""The terminal agent: tasks are read, solved, judged; and no trick scores."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from clawback.environments.core import EnvironmentFailure, Solvable, Step, Task
from clawback.errors import NotFound, UsageError
from clawback.extensions.sandbox import Limits, probe
from clawback.extensions.terminal_tasks import folders
from clawback.extensions.terminal_tasks.grading import limits_of
from clawback.extensions.terminal_tasks.shell_tools import Call, calls
from clawback.extensions.terminal_tasks.terminal_environment import TerminalTasks, make
from clawback.records import Message

RUNGS = [rung.name for rung in probe() if rung.usable and rung.name != "none"]
OWN = make()
TASKS = [task for split in ("train", "test") for task in OWN.tasks(split)]  # type: ignore[arg-type]
QUICK = ("clawback/count-errors", "clawback/mend-greeting")


def play(tasks: TerminalTasks, task: Task, replies: Sequence[str | Message]) -> list[Step]:
    async def episode() -> list[Step]:
        environment = tasks.make()
        try:
            await environment.reset(task, 0)
            steps = []
            for reply in replies:
                message = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
                steps.append(await environment.step(message))
                if steps[-1].done:
                    break
            return steps
        finally:
            await environment.close()

    return asyncio.run(episode())


def own(name: str) -> Task:
    return next(task for task in TASKS if task.id == f"clawback/{name}")


def bash(command: str) -> str:
    return f"```bash\n{command}\n```"


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    "task",
    [pytest.param(task, id=task.id, marks=[] if task.id in QUICK else [pytest.mark.slow]) for task in TASKS],
)
def test_own_tasks_are_sound(task: Task, rung: str) -> None:
    """The known solution scores 1 and doing nothing 0."""
    tasks = make("", {"rung": rung})
    assert isinstance(tasks, Solvable)
    assert play(tasks, task, tasks.solution(task))[-1].reward == 1.0
    assert play(tasks, task, ["Done."])[-1].reward == 0.0


def test_twenty_tasks_some_of_them_held_out() -> None:
    train, test = ({task.id for task in OWN.tasks(split)} for split in ("train", "test"))  # type: ignore[arg-type]
    assert len(train | test) == 20
    assert len(test) == 5
    assert not train & test


@pytest.mark.parametrize(
    ("task", "trick"),
    [
        ("count-errors", "mkdir -p /logs/verifier logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 1 | tee logs/verifier/reward.txt reward.txt"),
        ("count-errors", "echo 'PASSED 1 1.0'; echo PASSED > count.txt"),
        ("count-errors", "(while true; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; done) > /dev/null 2>&1 &"),
        ("count-errors", "mkdir -p /tests tests; echo 'exit 0' > /tests/test.sh; echo 'exit 0' > tests/test.sh; echo > tests/check.py; cp tests/check.py ."),
        ("count-errors", "mkdir -p .local/lib/python3.11/site-packages; echo 'import os; os._exit(0)' | tee sitecustomize.py usercustomize.py pathlib.py .local/lib/python3.11/site-packages/usercustomize.py"),
        ("mend-greeting", "cat > greet.py <<'END'\nimport os, pathlib, time\nfor place in ('/logs/verifier/reward.txt', '../logs/verifier/reward.txt', '../extra-1/verifier/reward.txt'):\n    try:\n        os.makedirs(os.path.dirname(place), exist_ok=True)\n        pathlib.Path(place).write_text('1')\n    except OSError: pass\nif os.fork() == 0:\n    os.setsid(); time.sleep(60)\nEND"),
        ("mend-greeting", "echo 'import os; print(open(os.environ[\"TEST_DIR\"] + \"/check.py\").read())' > greet.py; echo 'exit 0' > check.py"),
    ],
)  # fmt: skip
def test_no_trick_scores(task: str, trick: str) -> None:
    assert play(OWN, own(task), [bash(trick), "Done."])[-1].reward == 0.0


def test_what_the_policy_left_to_break_the_check_is_worth_nothing(tmp_path: Path) -> None:
    """The check falls silent on these files, but not on untouched ones: that is the policy's doing, and no failure of the world."""
    root = folder(
        tmp_path / "t",
        test="#!/bin/bash\ncat size.txt && echo 1 > /logs/verifier/reward.txt\n",
        files={"size.txt": "1"},
    )
    tasks = TerminalTasks(root.parent)
    (task,) = tasks.tasks("test")
    assert play(tasks, task, ["Done."])[-1].reward == 1.0
    assert play(tasks, task, [bash("rm size.txt"), "Done."])[-1].reward == 0.0


def test_a_check_that_never_speaks_is_no_reward(tmp_path: Path) -> None:
    tasks = TerminalTasks(folder(tmp_path / "t", test="#!/bin/bash\ntrue\n").parent)
    (task,) = tasks.tasks("test")
    with pytest.raises(EnvironmentFailure, match="without a reward"):
        play(tasks, task, ["Done."])


def test_tool_calls_and_fences() -> None:
    told = [{"id": "1", "function": {"name": "write_file", "arguments": '{"path": "a.txt", "content": "x\\ny\\n"}'}},
            {"id": "2", "function": {"name": "view_file", "arguments": {"path": "a.txt", "line": 2}}},
            {"id": "3", "function": {"name": "start", "arguments": {"name": "p", "command": "read a; echo got $a; exit 4"}}},
            {"id": "4", "function": {"name": "write_process", "arguments": {"name": "p", "text": "it"}}}]  # fmt: skip
    (step,) = play(OWN, own("count-errors"), [{"role": "assistant", "content": "", "tool_calls": told}])
    assert [message["tool_call_id"] for message in step.messages] == ["1", "2", "3", "4"]
    answers = [message["content"] for message in step.messages]
    assert answers[:3] == ["Wrote 4 bytes to a.txt.", "2\ty", "(no new output)"]
    assert answers[3] == "got it\n\n[ended, exit code 4]"
    assert not step.done

    steps = play(
        OWN,
        own("count-errors"),
        ["First.\n```write b.txt\nq\n```\nThen:\n```bash\ncat b.txt; exit 2\n```", "Done."],
    )
    assert [message["content"] for message in steps[0].messages] == [
        "Wrote 2 bytes to b.txt.",
        "q\n[exit code 2]",
    ]
    assert {message["role"] for message in steps[0].messages} == {"user"}


def test_replies_that_cannot_be_read_cost_and_end_it() -> None:
    bad: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "function": {"name": "fly", "arguments": "{}"}}],
    }
    steps = play(OWN, own("count-errors"), [bad, "```bash\nls", bad])
    assert [step.reward for step in steps] == [-0.05, -0.05, -0.05]
    assert all(step.info["unparsable"] for step in steps)
    assert steps[-1].done
    assert "There is no tool 'fly'" in steps[0].messages[0]["content"]


def test_too_many_turns_are_judged_all_the_same() -> None:
    steps = play(
        make("", {"turns": 2}),
        own("count-errors"),
        [bash("grep -cw ERROR server.log > count.txt"), bash("true")],
    )
    assert steps[-1].done
    assert steps[-1].info["truncated"]
    assert steps[-1].reward == 1.0


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ("no fence", []),
        ("```python\nprint(1)\n```", []),
        (
            "```bash\nls\n```\n```sh\npwd\n```",
            [Call("run", {"command": "ls"}), Call("run", {"command": "pwd"})],
        ),
        ("```view a b.txt\n```", [Call("view_file", {"path": "a b.txt"})]),
    ],
)
def test_fences(message: str, want: list[Call]) -> None:
    assert calls({"role": "assistant", "content": message}) == want


def folder(root: Path, test: str = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n", dockerfile: str = "FROM debian:12\nWORKDIR /app\nCOPY files .\n",
           toml: str = 'schema_version = "1.4"\n', files: dict[str, str] | None = None, instruction: str = "Do it.") -> Path:  # fmt: skip
    for path, text in {"task.toml": toml, "instruction.md": instruction, "environment/Dockerfile": dockerfile, "tests/test.sh": test,
                       **{f"environment/files/{name}": text for name, text in (files or {"x": ""}).items()}}.items():  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"toml": "[environment]\ngpus = 1\n"}, "a GPU"),
        ({"toml": '[environment]\nnetwork_mode = "allowlist"\n'}, "network"),
        ({"toml": 'schema_version = "2.0"\n'}, "schema_version"),
        ({"toml": '[[steps]]\nname = "a"\n'}, "steps"),
        ({"dockerfile": "FROM debian:12\nRUN apt-get install -y gcc\n"}, "apt-get install"),
        ({"dockerfile": "FROM somebody/else:1\n"}, "somebody/else"),
        ({"dockerfile": "FROM debian\nCOPY ../../secret .\n"}, "secret"),
    ],
)
def test_what_a_box_does_not_have_is_refused_in_a_sentence(
    changes: dict[str, str], why: str, tmp_path: Path
) -> None:
    task = folders.read(folder(tmp_path / "t", **changes))  # type: ignore[arg-type]
    assert why in task.refusal
    tasks = TerminalTasks(tmp_path)
    assert not tasks.tasks("train")
    assert not tasks.tasks("test")
    with pytest.raises(UsageError, match="cannot be run"):
        play(tasks, Task(task.id), ["Done."])


def test_harbor_fields_are_read(tmp_path: Path) -> None:
    toml = '[task]\nname = "org/t"\n[agent]\ntimeout_sec = 7\n[verifier]\ntimeout_sec = 9\n[environment]\ncpus = 1\nmemory_mb = 64\nworkdir = "/srv"\n[environment.env]\nA = "${SECRET:-b}"\n'
    task = folders.read(folder(tmp_path / "t", toml=toml))
    assert (task.id, task.agent_seconds, task.test_seconds, task.memory, task.work) == (
        "org/t",
        7,
        9,
        64 << 20,
        "/srv",
    )
    assert task.env == {"A": "b"}
    assert (task.cpus, limits_of(task, Limits()).cpus) == (1, 1)
    most = os.cpu_count()
    for asked, given, found in ((None, None, None), (10_000, None, most), (10_000, 1, 1), (None, 1, 1)):
        assert limits_of(replace(task, cpus=asked), Limits(cpus=given)).cpus == found


@pytest.mark.parametrize("rung", RUNGS)
def test_terminal_bench_folders(tmp_path: Path, rung: str) -> None:
    """Judged by the exit code: what is printed does not count."""
    root = tmp_path / "hello"
    (root / "tests").mkdir(parents=True)
    (root / "task.yaml").write_text(
        "instruction: |-\n  Write hello to hello.txt.\nmax_agent_timeout_sec: 60\nparser_name: pytest\n"
    )
    (root / "Dockerfile").write_text("FROM python:3.12\nWORKDIR /app\n")
    (root / "solution.sh").write_text("echo hello > hello.txt\n")
    (root / "run-tests.sh").write_text('python3 "$TEST_DIR/test_outputs.py" || exit 1\necho PASSED\n')
    (root / "tests" / "test_outputs.py").write_text("assert open('hello.txt').read() == 'hello\\n'\n")
    tasks = make(str(tmp_path), {"rung": rung})
    (task,) = tasks.tasks("test")
    assert play(tasks, task, tasks.solution(task))[-1].reward == 1.0
    assert play(tasks, task, [bash("echo PASSED; echo 'PASSED' > hello.txt"), "Done."])[-1].reward == 0.0

    (root / "run-tests.sh").write_text("apt-get update && uvx pytest /tests\n")
    assert "network" in folders.read(root).refusal


def test_a_path_that_only_bubblewrap_gives(tmp_path: Path) -> None:
    tasks = make(str(folder(tmp_path / "t", instruction="Write /app/x.").parent), {"rung": "landlock"})
    (task,) = tasks.tasks("test")
    if "landlock" in RUNGS:
        with pytest.raises(UsageError, match="only bubblewrap"):
            play(tasks, task, ["Done."])


def test_no_tasks(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no task folders"):
        make(str(tmp_path))
    with pytest.raises(UsageError, match="no setting `speed`"):
        make("", {"speed": 1})
