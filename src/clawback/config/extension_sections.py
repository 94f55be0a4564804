"""Sections of the settings for extensions and channels, and what all sections are made of.

They are part of the core: ``config.toml`` is one checked file, and a home opens where an extension is missing.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Variable = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Z_][A-Z0-9_]*$", description="the name of an environment variable")
]
"""The name of an environment variable that holds a secret: the secret itself has no place in a file of settings."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file. Unknown keys are refused, so that a typing error is not silently ignored."""


class PeopleSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits per person on a shared server (``clawback serve --people``), read from the settings of the server's own home."""

    at_once: Annotated[int, msgspec.Meta(ge=1)] = 4
    """Requests of one person that may run at the same time; more are refused with 429."""
    tokens_a_day: Count = 0
    """Tokens that one person may generate per day (UTC); 0: no limit."""
    open: Annotated[int, msgspec.Meta(ge=1)] = 64
    """Homes that are kept open after their last request."""
    runs: Annotated[int, msgspec.Meta(ge=0)] = 1
    """Training runs at once, over all people; 0: the server starts none."""
    adapters: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    """Adapters that can answer at the same time; requests for another one wait."""
    adapters_memory: Annotated[int, msgspec.Meta(ge=16)] = 512
    """Megabytes of adapters kept in memory; others are read from disk when needed."""


class ChannelSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may do what in a chat channel. People are identified by the platform's ids."""

    owners: tuple[str | int, ...] = ()
    """They may ask, rate (in groups only they), and give the commands that ``[capture] admin`` lists."""
    allowed: tuple[str | int, ...] = ()
    """They may ask, and rate in direct messages. Nobody else is answered."""
    model: str = "clawback"
    """The model name sent to the server; with an upstream, a model there."""


class SlackSection(ChannelSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Slack bot (docs/channels.md)."""

    token: Variable = "SLACK_BOT_TOKEN"  # noqa: S105
    """The bot's token (``xoxb-``)."""
    app_token: Variable = "SLACK_APP_TOKEN"  # noqa: S105
    """The app's token (``xapp-``), with which it listens."""
    api: str = "https://slack.com/api/"
    """Where Slack's API is."""


class DiscordSection(ChannelSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Discord bot (docs/channels.md)."""

    token: Variable = "DISCORD_BOT_TOKEN"  # noqa: S105
    """The bot's token."""


class TelegramSection(ChannelSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Telegram bot (docs/channels.md)."""

    token: Variable = "TELEGRAM_BOT_TOKEN"  # noqa: S105
    """The bot's token."""
    api: str = "https://api.telegram.org"
    """Telegram's own, or a Bot API server of yours."""


class HostedSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A remote trainer, for models that do not fit this machine (docs/hosted.md)."""

    url: str = ""
    """Its address; empty: runs are trained on this machine."""
    provider: Literal["tinker", "fireworks"] = "tinker"
    """What it speaks: Tinker's API, or that of Fireworks, where trainer and sampler are jobs of their own."""
    key_env: Variable | None = None
    """The variable that holds its key; not set: `TINKER_API_KEY` or `FIREWORKS_API_KEY`."""
    shape: str = ""
    """Fireworks' training shape, `accounts/fireworks/trainingShapes/NAME`."""
    model: str = ""
    """The base model's name on that server; not set: ``[model] base``."""
    save_every: Annotated[int, msgspec.Meta(ge=1)] = 8
    """Steps between states saved on that server; a run resumes from the last one if the trainer loses the model."""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    """Time limit of one request in seconds, retries included."""
    max_tokens: Count = 0
    """Most tokens of a run; 0: only the next limit applies."""
    max_money: NotNegative = 0.0
    """Most money that a run may cost, by the prices below; 0: no limit."""
    price_train: NotNegative = 0.0
    """Price of a million tokens trained on."""
    price_prefill: NotNegative = 0.0
    """Price of a million tokens scored or read without training."""
    price_sample: NotNegative = 0.0
    """Price of a million tokens generated."""
    price_hour: NotNegative = 0.0
    """Price of an hour of the machines of a run, where they are paid by time (Fireworks)."""


class VllmSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vLLM that a run starts with ``[training] draw = "vllm"`` (docs/vllm.md)."""

    command: str = ""
    """The program ``vllm``, or the folder of the environment that it is installed in. Empty: the one of this Python's environment, or on the
    ``PATH``."""
    arguments: list[str] = []
    """Further arguments of ``vllm serve``, such as ``["--tensor-parallel-size", "2"]``."""
    gpu_memory: Share = 0.0
    """Share of a GPU's memory that it may use while it draws; 0: what the learner leaves free, less a reserve."""
