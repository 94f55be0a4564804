"""The judge of the settings, for environments that ask one."""

from __future__ import annotations

import os

from clawback import config
from clawback.errors import UsageError
from clawback.feedback.endpoint import Ask, CallBudget, Endpoint
from clawback.paths import home


def configured() -> Ask:
    """The judge of ``[judge]``, where it is one on the network. Raises ``UsageError``."""
    asked = config.load(home().config).judge
    if asked.api == "local":
        raise UsageError(
            "A judge as reward needs one on the network: set [judge] api, url and model (docs/judges.md)."
        )
    budget = CallBudget(asked.max_calls, asked.max_seconds, asked.max_tokens)
    key = os.environ.get(asked.key_env, "") if asked.key_env else ""
    return Endpoint(asked.api, asked.url, asked.model, key, budget, asked.timeout, asked.answer_tokens)
