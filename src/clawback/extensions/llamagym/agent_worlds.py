"""An agent's three methods and a Gym-like environment as an environment set, so that many episodes can be played at once."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

from clawback.environments.core import Environment, Observation, Split, Step, Task
from clawback.environments.world_helpers import MOST_REPLIES
from clawback.records import Message

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
UNREAD = object()
"""What ``read_action`` gives for a reply that cannot be read."""


class Speaks(Protocol):
    """What is needed of an agent here: no model."""

    retries: int

    def get_system_prompt(self) -> str: ...

    def format_observation(self, observation: object) -> str: ...

    def extract_action(self, response: str) -> Any: ...

    def hint(self, response: str) -> str: ...

    def fallback_action(self, observation: object) -> Any: ...

    def action_replies(self) -> Sequence[str]: ...


def read_action(agent: Speaks, response: str) -> Any:
    """The action of a reply, or ``UNREAD``: whatever the method raises, and None, mean that it could not be read."""
    try:
        action = agent.extract_action(response)
    except Exception:
        return UNREAD
    return UNREAD if action is None else action


_DIGITS = re.compile(r"-?\d+")
LABEL = "Action: "
FORMS = (LABEL + "{}", "{}")
"""How actions are written where the agent's own words show no form that is read."""


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """Replies that each name one action, word for word, and whether the agent reads an action in replies that name none."""

    replies: tuple[str, ...] = ()
    default: Any = UNREAD
    """The action that is read in an empty reply, as scripts for LlamaGym do."""

    def names(self, reply: str, action: object) -> bool:
        """Whether this action was written, and is not what is read where nothing is."""
        if self.default is UNREAD or not self.replies or _plain(action) != _plain(self.default):
            return True
        return any(known.lower() in reply.lower() for known in self.replies)


def reply_form(agent: Speaks, env: object = None) -> ReplyForm:
    """The form of the replies that this agent reads, as far as its words or the actions of ``env`` show it. Each of the replies was read
    by ``extract_action`` as an action of its own, and together they name all actions that are known."""
    own = _distinct(agent, agent.action_replies())
    known = numbered_actions(env)
    replies = own
    if known is not None and len(known) <= MOST_REPLIES and {_plain(a) for a in own.values()} != set(known):
        forms = [
            *dict.fromkeys(_DIGITS.sub("{}", text) for text in own if len(_DIGITS.findall(text)) == 1),
            *FORMS,
        ]
        found = (_distinct(agent, [form.format(n) for n in known]) for form in forms)
        replies = next((one for one in found if [_plain(a) for a in one.values()] == list(known)), {})
    return ReplyForm(tuple(replies), read_action(agent, ""))


@dataclass(frozen=True, slots=True)
class ActionReading:
    """What a reply says."""

    action: Any
    """``UNREAD`` where it is to be asked for again."""
    named: bool
    """Whether the reply names an action."""
    guessed: bool = False
    """The action is ``fallback_action``'s."""

    @property
    def again(self) -> bool:
        return self.action is UNREAD


class ActionReader:
    """Reads replies as actions. One that cannot be read is asked for again, ``retries`` times in a row; then ``fallback_action`` decides."""

    def __init__(self, agent: Speaks, form: ReplyForm, env: object = None) -> None:
        self.agent, self.form, self.env = agent, form, env
        self.missed = 0
        """Replies in a row that could not be read."""

    def read(self, reply: str, observation: object) -> ActionReading:
        action = read_action(self.agent, reply)
        if action is not UNREAD and not is_possible(self.env, action):
            action = UNREAD
        if action is not UNREAD:
            self.missed = 0
            return ActionReading(action, self.form.names(reply, action))
        self.missed += 1
        if self.missed <= self.agent.retries:
            return ActionReading(UNREAD, named=False)
        self.missed = 0
        return ActionReading(self.agent.fallback_action(observation), named=False, guessed=True)


def equal_forms(agent: Speaks, replies: Sequence[str]) -> list[Sequence[str]]:
    """These replies, and the same after a word, where the agent reads the same actions in them."""
    actions = [_plain(read_action(agent, text)) for text in replies]
    labelled = [text if text.startswith(LABEL) else LABEL + text for text in replies]
    equal = labelled != list(replies) and [_plain(read_action(agent, text)) for text in labelled] == actions
    return [replies, labelled] if equal else [replies]


def numbered_actions(env: object) -> range | None:
    """The actions of an environment whose space is Discrete; None for others."""
    space: Any = getattr(env, "action_space", None)
    if type(space).__name__ != "Discrete":
        return None
    return range(int(space.start), int(space.start) + int(space.n))


def is_possible(env: object, action: object) -> bool:
    """Whether an environment has this action, as far as its space shows: a number that it does not have is no action, and no fault of its own."""
    known = numbered_actions(env)
    return known is None or _plain(action) in known


def _distinct(agent: Speaks, texts: Sequence[str]) -> dict[str, Any]:
    """Those that are read, the first one of each action."""
    found: dict[str, Any] = {}
    for text in texts:
        action = read_action(agent, text)
        if action is not UNREAD and all(_plain(action) != _plain(other) for other in found.values()):
            found[text] = action
    return found


def _plain(action: object) -> Any:
    return action.item() if hasattr(action, "item") and getattr(action, "size", 1) == 1 else action


def shown(agent: Speaks, observation: object) -> Message:
    """An observation as the message that the model reads, without a terminal's colours."""
    return {"role": "user", "content": _ANSI.sub("", str(agent.format_observation(observation)))}


def opening(agent: Speaks, observation: object) -> list[Message]:
    system = agent.get_system_prompt()
    return [*([{"role": "system", "content": system}] if system else []), shown(agent, observation)]


def begun(env: Any, seed: int | None) -> Any:
    """The first observation, of Gymnasium's ``reset`` or of an older one without seeds (TextWorld)."""
    try:
        said = env.reset(seed=seed)
    except TypeError:
        if seed is not None and hasattr(env, "seed"):
            env.seed(seed)
        said = env.reset()
    return said[0] if isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], dict) else said


def step_result(env: Any, action: Any) -> tuple[Any, float, bool, bool]:
    """Observation, reward, terminated and truncated, of Gymnasium's five values or of Gym's four."""
    said = env.step(action)
    if len(said) == 4:
        observation, reward, done, info = said
        cut = bool(info.get("TimeLimit.truncated")) if isinstance(info, dict) else False
        return observation, float(reward), bool(done) and not cut, cut
    observation, reward, terminated, truncated, _ = said
    return observation, float(reward), bool(terminated), bool(truncated)


def baseline(
    agent: Speaks, make_env: Callable[[], Any], seeds: Sequence[int], turns: int, *, at_random: bool
) -> list[float]:
    """The return of an episode for each seed, of ``turns`` actions at most: random ones where the space is known, else the agent's
    ``fallback_action``."""
    env, returns = make_env(), []
    for seed in seeds:
        observation, total = begun(env, seed), 0.0
        known = hasattr(env, "action_space")
        if known:
            env.action_space.seed(seed)
        for _ in range(turns):
            free = at_random and known
            action = env.action_space.sample() if free else agent.fallback_action(observation)
            observation, reward, terminated, truncated = step_result(env, action)
            total += reward
            if terminated or truncated:
                break
        returns.append(total)
    return returns


@dataclass(frozen=True, slots=True)
class SeedTasks(Sequence[Task]):
    """A task for each of some seeds, made when it is asked for: of a hundred thousand, a run looks at a few hundred."""

    name: str
    seeds: range
    split: Split

    def __len__(self) -> int:
        return len(self.seeds)

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> SeedTasks: ...

    def __getitem__(self, index: int | slice) -> Task | SeedTasks:
        if isinstance(index, slice):
            return SeedTasks(self.name, self.seeds[index], self.split)
        seed = self.seeds[index]
        return Task(f"{self.name}/{seed}", {"seed": seed}, self.split)


class AgentWorlds:
    """An environment set: ``make_env`` makes the Gym-like environment of one episode, the agent puts it into words.

    A task is a seed of the environment; those of ``test`` are none of ``train``'s. There are more than a run plays: a seed decides all that is
    left to chance, and of a thousand hands of Blackjack a policy learns by which of its sums the dealer happened to go bust.
    """

    def __init__(
        self,
        name: str,
        agent: Speaks,
        make_env: Callable[[], Any],
        *,
        train: int = 100_000,
        test: int = 10_000,
    ) -> None:
        self.name, self.agent, self.make_env = name, agent, make_env
        self.counts = {"train": train, "test": test}
        self._form: ReplyForm | None = None

    def tasks(self, split: Split) -> Sequence[Task]:
        first = 0 if split == "train" else 1_000_000
        return SeedTasks(self.name, range(first, first + self.counts[split]), split)

    def make(self) -> Environment:
        env = self.make_env()
        # A copy each: what an agent notes down about its episode is that episode's.
        return _AgentWorld(copy.copy(self.agent), env, self.form(env))

    def form(self, env: object) -> ReplyForm:
        """The form of replies, found once."""
        if self._form is None:
            self._form = reply_form(self.agent, env)
        return self._form

    def action_replies(self) -> Sequence[str]:
        """See ``action_form.Acting``."""
        if self._form is None:
            env = self.make_env()
            self.form(env)
            if (close := getattr(env, "close", None)) is not None:
                close()
        assert self._form is not None
        return self._form.replies

    def action_forms(self) -> Sequence[Sequence[str]]:
        """Several forms of these replies: a model may hardly tell those of the first apart."""
        return equal_forms(self.agent, self.action_replies())


class _AgentWorld:
    def __init__(self, agent: Speaks, env: object, form: ReplyForm) -> None:
        self.agent, self.env = agent, env
        self.reader = ActionReader(agent, form, env)
        self.observation: Any = None

    async def reset(self, task: Task, seed: int) -> Observation:
        """The task's own seed is the world's: ``seed`` would make another world of it."""
        self.observation = begun(self.env, int(task.data.get("seed", seed)))
        self.reader.missed = 0
        return Observation(tuple(opening(self.agent, self.observation)))

    async def step(self, message: Message) -> Step:
        reply = str(message.get("content") or "")
        reading = self.reader.read(reply, self.observation)
        if reading.again:
            return Step(({"role": "user", "content": self.agent.hint(reply)},), info={"unparsable": True})
        self.observation, reward, terminated, truncated = step_result(self.env, reading.action)
        over = terminated or truncated
        return Step(
            () if over else (shown(self.agent, self.observation),),
            reward,
            over,
            {"unparsable": not reading.named, "truncated": truncated and not terminated},
        )

    async def close(self) -> None:
        close = getattr(self.env, "close", None)
        if close is not None:
            close()
