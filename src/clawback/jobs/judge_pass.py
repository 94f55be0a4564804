"""A pass of the judge: which model is used, what it may cost, and a lock so that only one pass runs at a time.

Only here do the live policy and the judge meet: ``feedback`` calls a function and knows no engine.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from clawback import config, store
from clawback.errors import Busy, JudgeError, UsageError
from clawback.feedback import hints as hinting
from clawback.feedback import next_state_judge as judging
from clawback.feedback.endpoint import Ask, CallBudget, Endpoint, JudgeAnswer, guess
from clawback.feedback.passes import PassPlan
from clawback.feedback.verdict import HINT, JUDGE, shown
from clawback.jobs import seams
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.progress import OnProgress
    from clawback.records import JsonObject
    from clawback.rewards.generative import Generative
    from clawback.sampling import Sampled

LOCAL = "local"
Draw = Callable[[Sequence[int], int, int], "Sampled"]
"""The answer to a prompt of token ids, of so many tokens at most, by a seed."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of a pass, and what it used."""

    judged: judging.Tally
    hinted: hinting.HintCounts | None
    calls: int
    tokens: int

    @property
    def stopped(self) -> str:
        return self.judged.stopped or (self.hinted.stopped if self.hinted else "")

    def to_dict(self) -> JsonObject:
        return asdict(self) | {"judged": self.judged.to_dict(), "stopped": self.stopped}

    def summary(self) -> str:
        """One sentence."""
        j = self.judged
        text = f"{j.turns} turns judged: {j.good} good, {j.bad} bad, {j.unclear} unclear"
        text += f", {j.by_conversation} of them kept for their conversation" if j.by_conversation else ""
        text += f"; {j.failed} without a readable answer" if j.failed else ""
        if self.hinted:
            text += f"; {self.hinted.hints} hints for {self.hinted.hinted} of {self.hinted.turns} turns"
        text += f" ({self.calls} calls, {self.tokens} tokens)"
        return text + (f". Stopped early: {self.stopped}" if self.stopped else "")


@dataclass(frozen=True, slots=True)
class JudgingPlan:
    """What a pass would do at most, computed without asking anything."""

    model: str
    url: str
    turns: int
    hint_turns: int
    calls: int
    tokens: int


def plan(home: Home, *, limit: int = -1, votes: int | None = None, hints: bool | None = None) -> JudgingPlan:
    """Turns that wait, and the most calls and tokens that they take (votes that are certain early take fewer)."""
    settings = config.load(home.config).judge
    model, votes = name_of(settings), votes or settings.votes
    with store.connect(home.database) as db:
        turns = judging.pending(db, model, limit)
        hinted = (
            hinting.pending_hints(db, model, limit) if (settings.hints if hints is None else hints) else []
        )
    asked = sum(guess(JUDGE + shown(t)) for t in turns) + sum(guess(HINT + shown(t)) for t in hinted)
    calls = votes * (len(turns) + len(hinted))
    return JudgingPlan(
        model, settings.url, len(turns), len(hinted), calls, votes * asked + calls * settings.answer_tokens
    )


def judge_once(
    home: Home,
    *,
    limit: int = -1,
    votes: int | None = None,
    hints: bool | None = None,
    ray: tuple[str, int] | None = None,
    on_progress: OnProgress | None = None,
) -> Pass:
    """Judge what waits, then look for hints where that is asked for; what is not given is as the settings have it.

    ``ray``: address and workers (0: one a machine) of a cluster that draws the votes of the local judge.

    Raises ``Busy`` while another process does the same, ``JudgeError`` where the judge cannot be asked, ``UsageError`` where no cluster answers.
    """
    from filelock import FileLock, Timeout

    loaded = config.load(home.config)
    settings, silent = loaded.judge, loaded.training.session_timeout
    model = name_of(settings)
    if ray is not None and settings.api != LOCAL:
        raise UsageError(
            f"The judge is {model} on a server ([judge] api): a cluster draws for the local judge alone. Leave --ray out."
        )
    budget = CallBudget(settings.max_calls, settings.max_seconds, settings.max_tokens)
    home.create()
    try:
        # One at a time: two would pay for the same votes.
        with FileLock(home.judge_lock, timeout=0), store.connect(home.database) as db, ExitStack() as stack:
            ask = asker(home, db, settings, budget)
            parallel = 1 if settings.api == LOCAL else settings.parallel
            if ray is not None:
                assert isinstance(ask, SelfJudge)
                parallel = stack.enter_context(seams.cluster().judging(ask, ray, on_progress))
            tell = on_progress or (lambda _: None)
            plan = PassPlan(model, budget, votes or settings.votes, limit, parallel, tell)
            judged = judging.judge(db, ask, plan, silent=silent)
            wanted = settings.hints if hints is None else hints
            hinted = hinting.extract(db, ask, plan) if wanted and not judged.stopped else None
    except Timeout:
        raise Busy("The judge is running already in another process.") from None
    return Pass(judged, hinted, budget.calls, budget.tokens)


def generative(home: Home) -> tuple[str, Generative]:
    """The judge as a reward model for answers that nobody came back to, within one pass's budget; and its name.

    Raises ``JudgeError`` where it cannot be asked.
    """
    from clawback.rewards.generative import Generative

    settings = config.load(home.config).judge
    budget = CallBudget(settings.max_calls, settings.max_seconds, settings.max_tokens)
    name = name_of(settings)
    with store.connect(home.database) as db:
        return f"judge:{name}", Generative(asker(home, db, settings, budget), settings.votes)


def name_of(settings: config.JudgeSection) -> str:
    """The judge's name in ``judge:NAME``: its model, or ``local``."""
    if settings.api != LOCAL and not settings.model:
        raise JudgeError("[judge] model is not set: name the model that the server is to judge with.")
    return LOCAL if settings.api == LOCAL else settings.model


def asker(home: Home, db: store.Store, settings: config.JudgeSection, budget: CallBudget) -> Ask:
    if settings.api == "local":
        from clawback import release

        release.heal(db, home)
        return SelfJudge(release.load(home, db.live()), budget, settings.answer_tokens)
    key = ""
    if settings.key_env:
        key = os.environ.get(settings.key_env, "")
        if not key:
            raise JudgeError(f"The environment variable {settings.key_env} ([judge] key_env) is not set.")
    return Endpoint(
        settings.api, settings.url, settings.model, key, budget, settings.timeout, settings.answer_tokens
    )


class SelfJudge:
    """The live policy as a judge of its own answers. What a call draws follows from its text and from how often that was asked before:
    votes differ, and a pass over the same turns gives the same votes, whoever draws them and in whatever order.
    """

    def __init__(self, policy: Policy, budget: CallBudget, answer_tokens: int) -> None:
        self.policy, self.budget = policy, budget
        self.answer_tokens = min(answer_tokens, policy.max_response)
        self.draw: Draw = self._sample_one
        self._asked: Counter[bytes] = Counter()

    def __call__(self, system: str, user: str) -> JudgeAnswer:
        from clawback.sampling import completion

        held = guess(system + user) + self.answer_tokens
        self.budget.take(held)
        used = 0
        try:
            prompt = self.policy.chat.prompt(
                [{"role": "system", "content": system}, {"role": "user", "content": user}]
            )
            sampled = self.draw(prompt, self.answer_tokens, self._seed(f"{system}\0{user}"))
            made = completion(self.policy.chat, prompt, sampled)
            used = guess(system + user) + len(made.ids)
            return JudgeAnswer(made.text, used, made.finished)
        finally:
            self.budget.settle(held, used)

    def _seed(self, text: str) -> int:
        name = hashlib.sha256(text.encode()).digest()
        self._asked[name] += 1  # one thread asks for the votes of a turn
        return int.from_bytes(hashlib.sha256(name + bytes([self._asked[name] % 256])).digest()[:7])

    def _sample_one(self, prompt: Sequence[int], max_tokens: int, seed: int) -> Sampled:
        from clawback.sampling import DrawSettings

        [[sampled]] = self.policy.sample([prompt], DrawSettings(max_tokens=max_tokens, seed=seed))
        return sampled
