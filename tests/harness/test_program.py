"""A program of its own leads episodes: what it asks in any dialect is drawn, recorded and learned token by token."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from clawback import engine
from clawback.environments.core import ConversationRequest, EnvironmentFailure
from clawback.environments.episode_loop import Order
from clawback.environments.registry import find
from clawback.episode_jobs.episode_runs import Wish
from clawback.episode_jobs.reply_form import plan_replies
from clawback.errors import NotFound, SandboxRefused, UsageError
from clawback.extensions.harness import commands, wrap
from clawback.extensions.sandbox import Limits, open_sandbox
from clawback.learning.episode_examples import sequences
from clawback.models.types import Sampling
from clawback.records import Episode
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.rollouts.program_dialogue import REQUEST_TOKENS, ProgramDialogue, cut_notice
from tests.harness.boxes import boxes

AGENT = Path(__file__).with_name("agent.py")
CHECK = 'if grep -q "^S" answer.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'


pytestmark = pytest.mark.skipif(not boxes(), reason="no box with a network of its own can be made here")


@pytest.fixture
def policy():
    made = engine.load("embedded")
    made.sampling = Sampling(1.0)
    return made


@pytest.fixture
def tasks(tmp_path):
    """A folder of tasks: what the model says last is to begin with S."""
    for name, split in (("one", "train"), ("two", "train"), ("three", "test")):
        folder = tmp_path / "tasks" / name
        (folder / "tests").mkdir(parents=True)
        (folder / "task.toml").write_text(f'version = "1.0"\n[metadata]\nsplit = "{split}"\n')
        (folder / "instruction.md").write_text(f"What is a fox? ({name})\n")
        (folder / "tests" / "test.sh").write_text(CHECK)
    return find(f"terminal:{tmp_path / 'tasks'}")


def play(policy, environments, count=1, **how):
    task = environments.tasks("train")[0]
    with Rollouts(policy, environments, Play(max_tokens=8, retries=0, **how)) as rollouts:
        return rollouts.play([Order(n, task, n, 7, n) for n in range(count)])


def agent(*words):
    return " ".join(["python3", str(AGENT), *words])


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_what_a_program_asks_is_recorded_as_it_was_drawn(policy, tasks, dialect):
    [episode] = play(policy, wrap(tasks, agent(dialect, "3", "keep"), 10))
    assert (episode.status, len(episode.steps)) == ("completed", 3)
    said = [m["content"] for m in episode.messages if m["role"] == "assistant"]
    assert episode.total == float(said[-1].startswith("S"))
    written = [
        (b, i) for b, branch in enumerate(episode.branches) for i, wrote in enumerate(branch.mask) if wrote
    ]
    assert written == sorted((s.branch, i) for s in episode.steps for i in range(s.start, s.end))
    for step, text in zip(episode.steps, said, strict=True):
        ids = episode.branches[step.branch].ids[step.start : step.end]
        assert policy.tokenizer.decode(ids, skip_special_tokens=True) == text
    for part in sequences([episode]):  # what was recorded is what the learner says
        [learned] = policy.scorer([part.encoded]).split()
        assert (learned.cpu() - part.old)[part.mask].abs().max() < 1e-4


def test_a_program_that_drops_its_history_begins_branches(policy, tasks):
    [kept], [dropped] = (play(policy, wrap(tasks, agent("chat", "3", how), 10)) for how in ("keep", "forget"))
    assert (len(kept.branches), len(dropped.branches)) == (1, 3)
    assert sum(map(sum, (b.mask for b in dropped.branches))) == sum(s.end - s.start for s in dropped.steps)


def test_a_program_is_ended_at_its_limit_and_judged_as_it_stands(policy, tasks):
    [episode] = play(policy, wrap(tasks, agent("chat", "9", "keep"), 2))
    assert (episode.status, len(episode.steps), episode.total) == ("truncated", 2, 0.0)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (f"python3 {AGENT} nonsense 1 keep", "ended with 1 before it asked the model"),
        (f"python3 {AGENT} chat 0 keep", "ended before it asked the model anything"),
    ],
)
def test_a_program_that_never_asks_is_a_failure_and_no_reward(policy, tasks, command, why):
    [episode] = play(policy, wrap(tasks, command, 10))
    assert (episode.status, episode.steps) == ("failed", ())
    assert why in episode.stop_reason


def test_a_box_reaches_our_server_and_nothing_else():
    with open_sandbox(Limits(seconds=20), network=True) as box:
        assert box.listener is not None
        look = (
            "import socket\n"
            f"socket.create_connection(('127.0.0.1', {box.listener.getsockname()[1]}), 2).close()\n"
            "for address in (('127.0.0.1', 22), ('192.0.2.1', 80)):\n"
            "    try:\n        socket.create_connection(address, 2); raise SystemExit('out')\n"
            "    except OSError:\n        pass\n"
            "try:\n    socket.socket(socket.AF_UNIX); print('unix')\nexcept OSError:\n    print('kept in')\n"
        )
        result = box.exec(["python3", "-I", "-S", "-c", look])
    assert result.ok, result.stderr
    assert result.stdout.strip() in ("kept in", "unix" if box.rung == "bubblewrap" else "kept in")


def test_on_landlock_a_program_sees_itself_among_the_processes_and_nothing_else(tmp_path):
    (tmp_path / "secret").write_text("seen")
    look = (
        "import os, sys\n"
        "assert open('/proc/self/stat').read() and os.listdir('/proc/self/task')\n"
        "closed = [f'/proc/{os.getppid()}/stat', '/proc/1/stat', '/proc/meminfo', '/proc/self/root/etc/shadow',\n"
        "          '/proc/self/root' + sys.argv[1], '/proc/self/task/../../../' + sys.argv[1]]\n"
        "for path in closed:\n"
        "    try:\n        open(path).read(); raise SystemExit(path)\n    except OSError:\n        pass\n"
        "try:\n    open('/proc/self/oom_score_adj', 'w').write('1'); raise SystemExit('written')\n"
        "except OSError:\n    pass\n"
        "print('kept in')\n"
    )
    try:
        opened = open_sandbox(Limits(seconds=20), rung="landlock", network=True)
    except SandboxRefused:
        pytest.skip("Landlock does not hold here")
    with opened as box:
        result = box.exec(["python3", "-I", "-S", "-c", look, str(tmp_path / "secret")])
    assert result.stdout.strip() == "kept in", result.stdout + result.stderr


def test_presets_are_data_and_any_command_takes_the_task():
    assert {"claude-code", "codex", "opencode"} <= commands.presets().keys()
    for preset in commands.presets().values():
        assert any("{task}" in word for word in preset["command"])
        for text in preset.get("files", {}).values():
            filled = commands.fill(text, {"url": "http://u", "key": "k", "model": "m"})
            assert "{url}" not in filled
    opencode = next(iter(commands.presets()["opencode"]["files"].values()))
    assert json.loads(commands.fill(opencode, {"url": "u", "key": "k", "model": "m"}))["provider"]
    made = commands.command(f"python3 {AGENT} chat")
    assert made.words == ("python3", str(AGENT), "chat", "{task}")
    assert made.copied == {str(AGENT): AGENT.resolve()}
    assert commands.fill("{task} {url}", {"task": "a {url} {{b}}"}) == "a {url} {{b}} {url}"
    with pytest.raises(NotFound, match="not installed"):
        commands.command("no-such-agent-program {task}")
    with pytest.raises(UsageError, match="no command"):
        commands.command("agent 'unclosed")


def test_tasks_without_a_box_are_refused_in_a_sentence():
    with pytest.raises(UsageError, match="@clawback"):
        wrap(find("tools:shop"), f"{sys.executable} x.py", 5)


def test_what_does_not_fit_is_a_failure_of_that_episode(policy, tasks):
    environments = wrap(tasks, agent("chat", "1", "keep"), 10)

    async def look():
        world = environments.make()
        opened = await world.reset(environments.tasks("train")[0], 0)
        await world.close()
        return opened.request

    request = asyncio.run(look())
    assert request.max_tokens == 6
    ids, length = request.encode(policy)
    assert policy.tokenizer.decode(ids).count("fox") == 1
    assert length == len(ids)
    with pytest.raises(EnvironmentFailure, match="0 tokens"):
        ProgramDialogue(policy).request(ConversationRequest((), lambda _: ((), 0)))


def test_requests_that_are_cut_are_told_with_the_setting_that_lets_them_be_read(policy, tasks):
    policy.max_prompt = 40
    environments = wrap(tasks, agent("chat", "6", "keep"), 10)
    [episode] = play(policy, environments)
    lengths = [m.get(REQUEST_TOKENS, 0) for m in episode.messages if m["role"] == "assistant"]
    assert lengths[0] == 0 < 40 < lengths[-1] == max(lengths)
    assert lengths == sorted(lengths)
    cut = sum(map(bool, lengths))
    text = cut_notice(policy, [episode])
    assert f"{cut} of 6 requests of the program were cut: they have up to {lengths[-1]} tokens" in text
    assert "shown 40" in text
    assert "`clawback config set generation.max_prompt 1024`" in text
    assert (
        text in plan_replies(policy, environments, Wish("", harness="x"), [episode], drawn_here=True).notice
    )
    policy.max_prompt = 1024
    [episode] = play(policy, environments)
    assert not any(REQUEST_TOKENS in m for m in episode.messages)
    assert cut_notice(policy, [episode]) == ""


def test_a_base_that_is_too_short_for_a_program_is_told_with_the_context_that_would_do(policy):
    said = [{"role": "assistant", "content": "x", REQUEST_TOKENS: 6048}]
    episode = Episode("codex", "1", 0, tuple(said), (), (), "completed")
    assert "at most: take a base with a context of 8,192 tokens or more." in cut_notice(policy, [episode])
