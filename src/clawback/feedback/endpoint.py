"""A judge model on the network: ``models_api.ModelServer`` under one budget, with the errors and sentences of judges."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from clawback import config
from clawback.errors import JudgeError, UsageError
from clawback.http_client import REDIRECTS, BadReply, Retry, StatusError, TransportError, is_address
from clawback.models_api import (
    SETUP_STATUSES,
    Api,
    BudgetExceeded,
    CallBudget,
    ModelRequest,
    ModelServer,
    guess,
)
from clawback.paths import home

__all__ = [
    "Ask",
    "BudgetExceeded",
    "CallBudget",
    "Endpoint",
    "JudgeAnswer",
    "NoAnswer",
    "guess",
    "unreadable",
]


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """What a judge model wrote. ``tokens``: sent and received, as its server counts them or, where it does not, guessed."""

    text: str
    tokens: int
    complete: bool = True
    """False where it was cut off at its limit."""


Ask = Callable[[str, str], JudgeAnswer]
"""(system, user) → the answer. Raises ``NoAnswer``, ``BudgetExceeded``, ``JudgeError``."""


class NoAnswer(JudgeError):
    """One call returned nothing that can be parsed; another may."""


def unreadable(answer: JudgeAnswer) -> NoAnswer:
    """The error for an answer without a verdict."""
    if not answer.complete:
        return NoAnswer("the judge's answer was cut off before its verdict (raise [judge] answer_tokens)")
    return NoAnswer("the judge's answer holds no verdict (a larger model may keep to the form)")


@dataclass(frozen=True)
class Endpoint:
    """A server that answers as a judge; calling it asks. ``pause``: seconds before the second try, doubled for the third."""

    api: Api
    url: str
    model: str
    key: str
    budget: CallBudget
    timeout: float = 60.0
    answer_tokens: int = 512
    pause: float = 1.0

    def __post_init__(self) -> None:
        if not is_address(self.url):
            raise JudgeError(
                f"[judge] url = {self.url!r} is not like http://127.0.0.1:11434. Correct it in config.toml."
            )
        if not self.model:
            raise JudgeError("[judge] model is not set: name the model that the server is to judge with.")

    def __call__(self, system: str, user: str) -> JudgeAnswer:
        server = ModelServer(
            self.api, self.url, self.model, self.key, self.timeout, Retry(pause=self.pause), self.budget
        )
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        # No temperature: some models take none but their own, and what servers do without one suits votes.
        request = ModelRequest(self.model, messages, self.answer_tokens)
        try:
            answer = server.complete(request)
        except StatusError as error:
            if error.status in SETUP_STATUSES or error.status in REDIRECTS:
                raise JudgeError(
                    f"The judge at {self.url} answers with {error.status}: {error.words}. {_remedy(error.status)}"
                ) from None
            raise NoAnswer(f"the judge answers with {error.status}: {error.words}") from None
        except TransportError as error:
            raise NoAnswer(f"the judge at {self.url} cannot be reached: {error.reason}") from None
        except BadReply:
            raise NoAnswer("the judge's reply does not have the form of its API") from None
        return JudgeAnswer(answer.text, answer.tokens or guess(system + user + answer.text), answer.complete)


def _remedy(status: int) -> str:
    if status in (401, 403):
        return "Put the key into an environment variable and its name into [judge] key_env."
    return "Check [judge] url, api and model."


def configured_judge() -> Ask:
    """The judge of ``[judge]`` for rewards, where it is one on the network. Raises ``UsageError``."""
    asked = config.load(home().config).judge
    if asked.api == "local":
        raise UsageError(
            "A judge as reward needs one on the network: set [judge] api, url and model (docs/judges.md)."
        )
    budget = CallBudget(asked.max_calls, asked.max_seconds, asked.max_tokens)
    key = os.environ.get(asked.key_env, "") if asked.key_env else ""
    return Endpoint(asked.api, asked.url, asked.model, key, budget, asked.timeout, asked.answer_tokens)
