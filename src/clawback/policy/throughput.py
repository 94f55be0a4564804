"""How fast a model draws, reads and trains on this machine: measured within a limit, and kept for the next run.

Work on a CPU is counted in processor time: the time of the thread that computes, which takes part in everything. It is what
the work takes on an idle machine, however busy this one is. Work on a device is counted until the device has done it.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from clawback import files

if TYPE_CHECKING:
    import torch

    from clawback.policy.policy import Policy
    from clawback.progress import OnProgress
    from clawback.records import JsonObject
    from clawback.sampling import Chance, Sampled


LIMIT = 45.0
"""Seconds by the clock after which nothing more is begun."""
_ROWS = (2, 8, 32)
"""Rows that are drawn together to measure: more of them as long as there is time."""
_STEPS = 8
_TAIL = 16
"""Tokens that each row draws, and tokens of their prompts."""
_REPEATS = 3
_TEXTS = (1, 6)
"""Texts of ``_LENGTH`` tokens that are read to measure."""
_LENGTH = 128
_ANSWERS = 8
"""Answers of its own that show how long they are."""
_LONGEST = 256
_SHARED_DRAWS = ((4, 8), (8, 16), (64, 64))
"""Rows and tokens by which a sampler elsewhere is measured: the next one as long as it takes few seconds."""
_SHARED_SECONDS = 5.0
_PROBE = 0.1
"""Seconds of products that show how busy the machine is."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of a model on a machine that does nothing else, and tokens of its own answers."""

    draw: float
    """Of all rows together, prompts read beforehand."""
    read: float
    train: float
    """Forward and backward."""
    answer: float = 0.0
    """Tokens of an ordinary answer of the model itself; 0: not known."""


class MeasuredSampler(Protocol):
    """A sampler elsewhere (``generate.Sampler``), with a name under which its speed is kept."""

    name: str

    def __call__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], chance: Chance, merge: bool
    ) -> list[list[Sampled]]: ...


def clock(device: torch.device) -> tuple[float, float]:
    """Seconds by the clock, and seconds of work done so far."""
    from clawback import devices

    devices.wait(device)
    now = time.perf_counter()
    if device.type != "cpu":
        return now, now
    import torch

    return now, max(time.thread_time(), time.process_time() / torch.get_num_threads())


class _Meter:
    """Times work until a limit is reached."""

    def __init__(self, device: torch.device, limit: float) -> None:
        self.device = device
        self.deadline = clock(device)[0] + limit

    def has(self, seconds: float) -> bool:
        """Whether so many seconds by the clock are left."""
        return clock(self.device)[0] + seconds <= self.deadline

    def time(self, work: Callable[[], object]) -> tuple[float, float]:
        """Seconds of work, the least of some repetitions, and seconds by the clock that the last one took."""
        least, wall = math.inf, 0.0
        for _ in range(_REPEATS):
            wall_before, work_before = clock(self.device)
            work()
            wall_after, work_after = clock(self.device)
            wall = wall_after - wall_before
            least = min(least, work_after - work_before)
            if not self.has(wall):
                break
        return max(least, 1e-6), wall


def measure(
    policy: Policy, prompts: Sequence[Sequence[int]], tell: OnProgress = lambda _: None, limit: float = LIMIT
) -> Speed:
    """Draw and read a few hundred tokens, the smallest pieces first. The policy is as before."""
    import torch

    meter = _Meter(policy.device, limit)
    steps = len(_TEXTS) + len(_ROWS)
    with torch.no_grad():
        read, texts = 1.0, 0
        for number, count in enumerate(_TEXTS):
            tell({"phase": "measure", "step": number, "steps": steps})
            read, texts = _reading(policy, meter, count), count
            if not meter.has(2 * _TEXTS[-1] / texts * _LENGTH / read):
                break
        # The first draw puts weights in order, and proves that the quick way says what the model does.
        draw = 0.0
        for number, rows in enumerate(_ROWS, len(_TEXTS)):
            tell({"phase": "measure", "step": number, "steps": steps, "read_speed": read})
            speed, wall = _drawing(policy, meter, prompts, rows)
            draw = max(draw, min(speed, read))
            if not meter.has(4 * wall):
                break
    tell({"phase": "measure", "step": steps, "steps": steps, "read_speed": read, "draw_speed": draw})
    # Backward to the inputs costs as much again as forward, and what LoRA adds is little beside either; so does the reading of the base's states.
    return Speed(draw, read, read / 2.4)


def _reading(policy: Policy, meter: _Meter, count: int) -> float:
    """Tokens a second of so many texts. They differ: what texts begin with alike is read once."""
    from clawback.templates import Encoded

    half = max(1, min(_LENGTH, policy.info.context // 2) // 2)
    texts = [Encoded(tuple([i % 7 + 1] * half), tuple([1] * half)) for i in range(count)]
    policy.scorer(texts)
    seconds, _ = meter.time(lambda: policy.scorer(texts))
    return 2 * half * count / seconds


def _drawing(
    policy: Policy, meter: _Meter, prompts: Sequence[Sequence[int]], rows: int
) -> tuple[float, float]:
    """Tokens a second of so many rows, the reading of prompts taken off; and seconds by the clock of one such draw."""
    some = [list(prompts[i % len(prompts)])[-_TAIL:] for i in range(rows)]

    from clawback.sampling import DrawSettings

    def draw(tokens: int) -> None:
        policy.sample(some, DrawSettings(max_tokens=tokens, rows=rows, stop=()))

    draw(1)
    begun, _ = meter.time(lambda: draw(1))
    whole, wall = meter.time(lambda: draw(1 + _STEPS))
    # A difference of two noisy times may be anything; a token costs its share of the whole at the least.
    drawing = max(whole - begun, whole * _STEPS / (_TAIL + 1 + _STEPS))
    return rows * _STEPS / drawing, wall


def answer_tokens(policy: Policy, prompts: Sequence[Sequence[int]], room: int, speed: Speed) -> float:
    """Tokens of an ordinary answer of the model itself, of ``room`` at most; 0 where drawing a few would take too long."""
    step = _ROWS[-1] / speed.draw  # seconds; fewer rows take no longer
    most = int(min(room, _LONGEST, LIMIT / 2 / step))
    if most < 16:
        return 0.0
    from clawback.sampling import DrawSettings

    some = [list(prompts[i % len(prompts)]) for i in range(_ANSWERS)]
    answers = [group[0] for group in policy.sample(some, DrawSettings(max_tokens=most, rows=_ANSWERS))]
    return sum(len(one.ids) if one.finished else room for one in answers) / len(answers)


def load(device: torch.device) -> float:
    """How many times longer work takes by the clock than it should, for other programs are busy too; 1 on a device."""
    import torch

    if device.type != "cpu":
        return 1.0
    square = torch.ones(192, 192)
    wall_before, work_before = clock(device)
    while clock(device)[1] - work_before < _PROBE:
        square @ square
    wall_after, work_after = clock(device)
    return max(1.0, (wall_after - wall_before) / (work_after - work_before))


# ---------------------------------------------------------------------------------------------- kept for later


def name(policy: Policy) -> str:
    """The model on this machine, as it computes now: another precision, device, number of threads or PyTorch is another speed."""
    import torch

    dtype = str(next(policy.model.parameters()).dtype).removeprefix("torch.")
    threads = torch.get_num_threads()
    machine = f"{device_name(policy.device)}, {threads} threads, torch {torch.__version__}"
    return f"{policy.info.base} {policy.info.revision} {policy.engine} {dtype} on {machine}"


def device_name(device: torch.device) -> str:
    """What the hardware calls itself."""
    import torch

    if device.type == "cuda" and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(device))
    return f"{device.type} {platform.processor() or platform.machine()}"


def stored_figures(file: Path | None, key: str) -> JsonObject:
    """What was measured before; empty where nothing was, or the file cannot be read."""
    with suppress(OSError, ValueError, AttributeError):
        entry = json.loads(file.read_text("utf-8")).get(key) if file else None
        if isinstance(entry, dict):
            return entry
    return {}


def keep(file: Path | None, key: str, entry: Mapping[str, object]) -> None:
    """Write a measurement down. A file that cannot be written is no reason not to go on."""
    if file is None:
        return
    entries: JsonObject = {}
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text("utf-8"))
        entries = found if isinstance(found, dict) else {}
    entries[key] = dict(entry)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        files.replace(file, json.dumps(entries, indent=1, sort_keys=True).encode(), mode=0o600)


def speed_of(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    room: int,
    file: Path | None = None,
    tell: OnProgress = lambda _: None,
) -> Speed:
    """The model's speed here: as it was measured before (``file``), else measured now and kept."""
    key = name(policy)
    with suppress(TypeError, ValueError):
        before = Speed(**{field: float(value) for field, value in stored_figures(file, key).items()})
        if min(before.draw, before.read, before.train) > 0:
            return before
    speed = measure(policy, prompts, tell)
    speed = replace(speed, answer=answer_tokens(policy, prompts, room, speed))
    keep(file, key, asdict(speed))
    return speed


def sampler_speed(
    sampler: MeasuredSampler, policy: Policy, prompts: Sequence[Sequence[int]], file: Path | None = None
) -> float:
    """Tokens a second by the clock that a sampler elsewhere draws, prompts included: as it was measured before, else measured now and kept."""
    from clawback.sampling import Chance

    key = f"{name(policy)}, drawn by {sampler.name}"
    with suppress(TypeError, ValueError):
        if (before := float(stored_figures(file, key).get("draw", 0.0))) > 0:
            return before
    speed = 0.0
    for rows, tokens in ((1, 1), *_SHARED_DRAWS):  # the first draw starts what draws
        some = [prompts[row % len(prompts)] for row in range(rows)]
        began = time.perf_counter()
        groups = sampler(policy, some, Chance.of_seed(rows, 1, tokens, policy.sampling.truncates, 0), False)
        seconds = max(time.perf_counter() - began, 1e-6)
        speed = max(speed, sum(len(one.ids) for group in groups for one in group) / seconds)
        if rows > 1 and seconds > _SHARED_SECONDS:
            break
    keep(file, key, {"draw": speed})
    return speed
