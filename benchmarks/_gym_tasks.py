"""Tasks of the terminal and repository agents in numbers, for a model that knows a dozen commands: what is to be done to what.

A task names an operation and a file. Each operation and each file comes in training, but held-out tasks are pairs of them that training has not, with
contents of their own: they are solved by whoever has learned what each word asks for, and by nobody who has learned pairs by heart.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks._gym_model import Action, Sight

TERMINAL = {"Sort": "sort", "Reverse": "tac", "Number": "nl", "Shorten": "head -n 2"}
"""What an instruction begins with → the command."""
FILES = ("names.txt", "towns.txt", "birds.txt", "trees.txt")
REPAIRS = {
    "sign": ("a - b", "a + b"),
    "order": ("x > y", "x < y"),
    "limit": ("n + 1", "n"),
}
"""What a report says is wrong → the mistake, and what stands there once it is mended."""
MODULES = ("area.py", "cost.py", "mean.py", "step.py")
WORDS = [
    "ash",
    "bay",
    "cob",
    "dew",
    "elm",
    "fir",
    "gum",
    "hop",
    "ivy",
    "jay",
    "kit",
    "lea",
    "moss",
    "nut",
    "oak",
    "pea",
    "rye",
    "sea",
    "tea",
    "urn",
    "vow",
    "wax",
    "yew",
    "zinc",
]


def held_out(first: int, second: int) -> bool:
    """Of the pairs one in four, along a diagonal: each operation and each file is in one of them, and in three of training."""
    return first % 4 == second % 4


# ---- terminal: Harbor folders


def terminal_seen() -> list[str]:
    return [f"{verb} {file}" for verb in TERMINAL for file in FILES]


def terminal_shown(seen: str) -> str:
    return f"{seen} into answer.txt"


def terminal_sight(rng: random.Random) -> Sight:
    return _asked(terminal_seen(), terminal_shown, rng)


def _asked(seen: list[str], shown: Callable[[str], str], rng: random.Random) -> Sight:
    """One of these, which asks for the action at its place."""
    at = rng.randrange(len(seen))
    return Sight(seen[at], shown(seen[at]), at)


def terminal_actions() -> list[Action]:
    """Replies, in tokens: each is a fence with one command."""
    commands = [(command, file) for command in TERMINAL.values() for file in FILES]
    return [("\n```bash\n", command, f"< {file}", "> answer.txt\n```") for command, file in commands]


def terminal(root: Path, train: int = 4, test: int = 8) -> Path:
    """Folders of tasks: ``train`` contents of each pair that is learned from, ``test`` of each that is held out."""
    if root.is_dir():
        return root
    rng = random.Random(1)
    beside = root.with_name(root.name + ".new")
    for i, verb in enumerate(TERMINAL):
        for j, file in enumerate(FILES):
            split = "test" if held_out(i, j) else "train"
            for n in range(test if split == "test" else train):
                _harbor(beside / f"{verb}-{Path(file).stem}-{n}".lower(), verb, file, split, rng)
    beside.rename(root)
    return root


def commands(root: Path) -> Path:
    """The tasks of the terminal for a real model, with one worked example of each command: ``shots.jsonl``."""
    terminal(root)
    pairs = [(verb, FILES[(i + 1) % 4]) for i, verb in enumerate(TERMINAL)]  # (i, i) is held out
    shots = [
        (terminal_shown(f"{verb} {file}"), f"```bash\n{TERMINAL[verb]} < {file} > answer.txt\n```")
        for verb, file in pairs
    ]
    return _with_shots(root, shots)


def _with_shots(root: Path, shots: list[tuple[str, str]]) -> Path:
    """``root`` with ``shots.jsonl``: a request and its reply on each line."""
    lines = [
        {"messages": [{"role": "user", "content": request}, {"role": "assistant", "content": reply}]}
        for request, reply in shots
    ]
    (root / "shots.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def _harbor(folder: Path, verb: str, file: str, split: str, rng: random.Random) -> None:
    texts = {name: rng.sample(WORDS, 6) for name in FILES}
    wanted = subprocess.run(
        TERMINAL[verb], shell=True, input="".join(f"{w}\n" for w in texts[file]), capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    told = {
        "task.toml": f'schema_version = "1.4"\n[task]\nname = "bench/{folder.name}"\n[metadata]\nsplit = "{split}"\n[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": terminal_shown(f"{verb} {file}"),
        "environment/Dockerfile": "FROM python:3.11-slim\nWORKDIR /app\nCOPY files .\n",
        **{f"environment/files/{name}": "".join(f"{w}\n" for w in words) for name, words in texts.items()},
        "tests/wanted.txt": wanted,
        "tests/test.sh": "#!/bin/bash\nmkdir -p /logs/verifier\nif cmp -s answer.txt /tests/wanted.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
        "solution/solve.sh": f"#!/bin/bash\n{TERMINAL[verb]} < {file} > answer.txt\n",
    }
    for name, text in told.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# ---- repository: rows of SWE-bench over one repository


def repository_seen() -> list[str]:
    return [f"{what} {module}" for what in REPAIRS for module in MODULES]


def repository_shown(seen: str) -> str:
    what, module = seen.split()
    return f"The {what} is wrong in {module} since the last release."


def spelled_out(seen: str) -> str:
    """A report for a model that knows English: it says what stands there, and what should."""
    what, module = seen.split()
    wrong, right = REPAIRS[what]
    return f"In kit/{module}, `return {wrong}` should be `return {right}`."


def repository_sight(rng: random.Random) -> Sight:
    return _asked(repository_seen(), repository_shown, rng)


def repository_actions() -> list[Action]:
    made = [(wrong, right, module) for wrong, right in REPAIRS.values() for module in MODULES]
    return [("\n```bash\nsed -i", f"'s/return {wrong}/return {right}/'", f"kit/{module}\n```") for wrong, right, module in made]  # fmt: skip


def repository(root: Path, shown: Callable[[str], str] = repository_shown) -> Path:
    """``rows.jsonl`` and ``clones`` with one repository, in which a branch has one mistake each. ``shown``: the report of a mistake and a module."""
    if root.is_dir():
        return root
    beside = root.with_name(root.name + ".new")
    clone = beside / "clones" / "bench__kit"
    clone.mkdir(parents=True)
    _git(clone, "init", "--quiet", "--initial-branch=main")
    for module in MODULES:
        _put(clone, f"kit/{module}", _module())
        _put(clone, f"tests/test_{module}", _tests(module, "begin"))
    _put(clone, "kit/__init__.py", "")
    _commit(clone, "Begin")
    rows = list(_rows(clone, shown))
    (beside / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    beside.rename(root)
    return root


def repairs(root: Path) -> Path:
    """The tasks of the repository for a real model, with one worked example, of the first mistake: ``shots.jsonl``."""
    repository(root, spelled_out)
    wrong, right = REPAIRS["sign"]
    module = MODULES[1]  # (0, 0) is held out
    reply = f"```bash\nsed -i 's/return {wrong}/return {right}/' kit/{module}\n```"
    return _with_shots(root, [(spelled_out(f"sign {module}"), reply)])


def _rows(clone: Path, shown: Callable[[str], str]) -> Iterator[dict[str, object]]:
    for i, (what, (wrong, right)) in enumerate(REPAIRS.items()):
        for j, module in enumerate(MODULES):
            _git(clone, "checkout", "--quiet", "-b", f"{what}-{module[:-3]}", "main")
            code = (clone / "kit" / module).read_text()
            _put(clone, f"kit/{module}", code.replace(f"return {right}\n", f"return {wrong}\n"))
            _commit(clone, f"Change {module}")
            base = _git(clone, "rev-parse", "HEAD").strip()
            _put(clone, f"kit/{module}", code)
            patch = _git(clone, "diff", "--", "kit")
            _put(clone, f"tests/test_{module}", _tests(module, what))
            test_patch = _git(clone, "diff", "--", "tests")
            _commit(clone, f"Mend {module}")
            yield {
                "instance_id": f"bench__kit-{what}-{module[:-3]}", "repo": "bench/kit", "base_commit": base, "patch": patch,
                "test_patch": test_patch, "problem_statement": shown(f"{what} {module}"), "split": "test" if held_out(i, j) else "train",
                "FAIL_TO_PASS": [f"tests/test_{module}::test_{what}"],
                "PASS_TO_PASS": [f"tests/test_{other}::test_begin" for other in MODULES],
            }  # fmt: skip


def _module() -> str:
    return "def sign(a, b):\n    return a + b\n\n\ndef order(x, y):\n    return x < y\n\n\ndef limit(n):\n    return n\n"


def _tests(module: str, what: str) -> str:
    checks = {
        "begin": "callable(kit.sign)",
        "sign": "kit.sign(2, 3) == 5",
        "order": "kit.order(1, 2)",
        "limit": "kit.limit(4) == 4",
    }
    names = ["begin"] if what == "begin" else ["begin", what]
    tests = "".join(f"\n\ndef test_{name}():\n    assert {checks[name]}\n" for name in names)
    return f"from kit import {module[:-3]} as kit\n{tests}"


def _put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def _commit(root: Path, words: str) -> None:
    _git(root, "add", "--all")
    _git(
        root,
        "-c",
        "user.name=bench",
        "-c",
        "user.email=bench@clawback.invalid",
        "commit",
        "--quiet",
        "-m",
        words,
    )


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


# ---- tools: a house that does what it is told

HOUSE = """
class House:
    \"\"\"What is set, by place.\"\"\"

    def __init__(self):
        self.set = {}

    def state(self):
        return self.set

    def set_light(self, room: str, percent: int) -> str:
        \"\"\"Set how bright the light of a room is.

        Args:
            room: the room
            percent: 0 is off, 100 as bright as it can be
        \"\"\"
        return self._now(f"light {room}", percent)

    def set_heating(self, room: str, degrees: int) -> str:
        \"\"\"Set how warm a room is to be.

        Args:
            room: the room
            degrees: in Celsius
        \"\"\"
        return self._now(f"heating {room}", degrees)

    def play(self, room: str, music: str) -> str:
        \"\"\"Play music in a room.

        Args:
            room: the room
            music: what is to be heard
        \"\"\"
        return self._now(f"music {room}", music)

    def lock(self, door: str) -> str:
        \"\"\"Lock a door.

        Args:
            door: which door
        \"\"\"
        return self._now(f"door {door}", "locked")

    def start_timer(self, minutes: int, label: str) -> str:
        \"\"\"Ring after some minutes.

        Args:
            minutes: how many
            label: what for
        \"\"\"
        return self._now(f"timer {label}", minutes)

    def _now(self, what, value):
        self.set[what] = value
        return "done"
"""
ROOMS = ("kitchen", "bedroom", "bathroom", "cellar", "office", "hall", "attic", "garage")
MUSIC = ("jazz", "Mozart", "rock", "piano music", "bird song", "the news")
DOORS = ("front", "back", "garage", "cellar", "balcony", "garden")
LABELS = ("eggs", "tea", "bread", "laundry", "meeting", "pasta")
REQUESTS = {
    "set_light": ("Dim the light in the {room} to {percent} percent.", "Make the {room} light {percent} % bright.", "Set the lamp of the {room} to {percent}."),
    "set_heating": ("Heat the {room} to {degrees} degrees.", "I want {degrees} degrees in the {room}.", "The {room} should be {degrees} degrees warm."),
    "play": ("Play {music} in the {room}.", "I would like to hear {music} in the {room}.", "Put {music} on in the {room}."),
    "lock": ("Lock the {door} door.", "Please lock the {door} door.", "Make sure that nobody comes in by the {door} door."),
    "start_timer": ("Set a timer of {minutes} minutes for the {label}.", "Remind me of the {label} in {minutes} minutes.", "The {label} will be ready in {minutes} minutes."),
}  # fmt: skip


def lamps(root: Path) -> Path:
    """The house with two of its tools, for which short prompts and few rounds are enough."""
    return house(root, 300, ("set_light", "start_timer"))


def house(root: Path, count: int = 600, tools: tuple[str, ...] = tuple(REQUESTS)) -> Path:
    """TOML files of tools and requests, which ``clawback env train tools:FILE`` takes as they are: ``house`` rewards the state that was wanted, ``lessons`` each part of the call."""
    if root.is_dir():
        return root
    rng = random.Random(1)
    beside = root.with_name(root.name + ".new")
    beside.mkdir(parents=True)
    rows: dict[str, str] = {}
    while len(rows) < count:
        values = {
            "room": rng.choice(ROOMS), "music": rng.choice(MUSIC), "door": rng.choice(DOORS), "label": rng.choice(LABELS),
            "percent": rng.randrange(0, 101, 5), "degrees": rng.randrange(12, 27), "minutes": rng.randrange(2, 60),
        }  # fmt: skip
        name = rng.choice(sorted(tools))
        text = rng.choice(REQUESTS[name])
        arguments = {key: value for key, value in values.items() if f"{{{key}}}" in text}
        asked = text.format(**values)
        rows[asked] = json.dumps(
            {"id": str(len(rows)), "prompt": asked, "actions": [{"name": name, "arguments": arguments}]}
        )
    (beside / "rows.jsonl").write_text("\n".join(rows.values()) + "\n")
    methods = HOUSE.split("    def ")
    kept = [m for m in methods if m.partition("(")[0] not in REQUESTS.keys() - set(tools)]
    (beside / "house.py").write_text("    def ".join(kept))
    for file, reward in (("house", "end-state"), ("lessons", "calls")):
        (beside / f"{file}.toml").write_text(
            f'name = "house"\nsystem = "You run a house with the tools you have."\nturns = 1\nobject = "house.py:House"\nreward = "{reward}"\nrows = "rows.jsonl"\n'
        )
    beside.rename(root)
    return root
