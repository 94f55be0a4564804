"""One ``Config``, read from ``config.toml``. Every setting, its default and its meaning is in this file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from clawback.errors import ConfigError
from clawback.files import replace

EMBEDDED = "embedded"
"""The name of the small model that ships with Clawback."""
DEMONSTRATION = (
    "The embedded model is a demonstration made of templates, not an assistant; "
    "`clawback model list` shows what to use in its place."
)
"""Said wherever the embedded model is the base."""
SILENT = 3600.0
"""Seconds without a turn after which a conversation is taken to be over, unless ``[training] session_timeout`` says otherwise."""

AlgorithmName = str
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Preset = Literal["careful", "balanced", "aggressive"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file. Unknown keys are refused, so that a typing error is not silently ignored."""


class Model(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained: ``embedded``, ``smollm2``, a folder, a hub id, a GGUF file, ``ollama:NAME`` or ``lmstudio:NAME`` (docs/models.md)."""

    base: str = EMBEDDED
    """What is trained."""
    revision: str | None = None
    """Commit, branch or tag of a hub id."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the weights. ``auto`` chooses by the device and the memory there is."""
    engine: Literal["torch", "mlx"] = "torch"
    """What trains, and answers in the gate and in `clawback ask`: ``mlx`` on Apple's MLX (docs/mlx.md). The server is torch's."""
    load_in_4bit: bool | None = None
    """Not set: 8 or 4 bits where 16 do not fit (CUDA only); true: 4 bits; false: never quantised."""
    chat_template_args: dict[str, Any] = {}
    """Given to the model's chat template everywhere, such as ``{enable_thinking = true}``. A template that knows ``enable_thinking`` gets
    false unless it is set here."""

    @property
    def device(self) -> str | None:
        """What ``engine.load`` is asked for; None: the best that torch has."""
        return "mlx" if self.engine == "mlx" else None


class Training(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How and when a run is made."""

    algorithm: AlgorithmName = "auto"
    """``auto``: a reward head reads the ratings; the taste is said in words and distilled, or fresh answers are graded; where the head cannot be trusted
    ``reinforce`` on the ratings themselves."""
    preset: Preset = "balanced"
    """How boldly to learn: ``careful`` drifts least, ``aggressive`` learns fastest."""
    threshold: Annotated[int, msgspec.Meta(ge=1)] = 32
    """Fresh ratings that start a run by themselves."""
    background: bool = True
    """Whether runs start by themselves at all."""
    budget: str = "20m"
    """Time that a run may take on this machine, gate included: ``"90s"``, ``"20m"``, ``"8h"``. How much is drawn and learned from follows from it; a run
    that does not fit even at its smallest is refused."""
    seed: int = 0
    """The same feedback and seed give the same version."""
    newest: Annotated[int, msgspec.Meta(ge=32)] = 4096
    """Newest pieces of feedback that a run learns from (and as many votes of judges): what a run costs does not grow with the years."""
    credit: Share = 0.0
    """Share of a turn's reward that goes on to the unrated turn before it in its session, 0 to 1; 0: each turn for itself."""
    min_turns: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """Main turns that a session must have for rewards to go on within it; 1: all sessions."""
    session_timeout: Annotated[float, msgspec.Meta(ge=0)] = SILENT
    """Seconds without a turn after which a conversation is taken to be over (one that is said to be done is at once). With ``credit``,
    conversations that still go on wait for the next run; a judge picks its turn of a conversation when it is over."""
    raters: Literal["agreement", "equal"] = "agreement"
    """Where several people rate: each counts by how far they agree with the others, or all the same. One person alone counts in full."""
    curriculum: Literal["off", "reward", "length", "both"] = "off"
    """Runs on the ratings themselves begin with easy ones: clear ratings, short answers, or both."""
    thinking: bool = False
    """Also train on what the model thought before an answer. It is then learned from by the answer's rating, which says nothing of it."""
    overrides: dict[str, Any] = {}
    """Single recipe values set by hand, such as ``{learning_rate = 5e-4}``."""


class Schedule(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a background run may start."""

    quiet_hours: str = ""
    """``"22:00-07:00"``: never start within these local hours. Empty: any time."""
    only_when_idle: bool = False
    """Wait until the machine has nothing else to do."""
    idle_load: NotNegative = 0.5
    """One-minute load average per core under which the machine counts as idle."""
    nice: Annotated[int, msgspec.Meta(ge=0, le=19)] = 10
    """How far a background run stands back for other programs, as ``nice`` has it."""
    retry_minutes: Annotated[int, msgspec.Meta(ge=1)] = 15
    """Minutes after which a run that had to wait looks again."""


class Gate(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a candidate must pass before it goes live."""

    held_out: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.125
    """Share of feedback kept out of training, for the gate alone."""
    confidence: Share = 0.93
    """How sure the gate must be that the candidate is better than the live version."""
    more_ratings: Count = 16
    """What is asked for where the ratings do not tell: after so many more the candidate is judged again. 0: it is rejected."""
    max_kl: NotNegative = 8.0
    """Drift from the base model that is always allowed, in nats per answer."""
    max_kl_per_token: NotNegative = 0.25
    """For longer answers: nats per token of the candidate's answers."""
    max_perplexity_ratio: NotNegative = 1.25
    """Perplexity of neutral text under the candidate over that under the base."""


class Generation(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How versions answer, in training and the gate as to the person. What is not set is as the model's own generation config says."""

    temperature: NotNegative | None = None
    """0: always the likeliest token."""
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Draw from the likeliest tokens that make up this much probability."""
    top_k: Count | None = None
    """Draw from so many of the likeliest tokens; 0: from all."""
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Longest answer. Not set: what the model's own settings or its context allow; the gate goes by what was rated."""


class Privacy(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is stored."""

    redact: bool = True
    """Secrets are taken out of what is stored."""
    rules: tuple[str, ...] = ()
    """Your own regular expressions (Python's): what they find is stored as ``[redacted]``, such as ``["PROJ-[0-9]+", "(?i)acme gmbh"]``."""
    require_consent: bool = False
    """True: imported turns that do not say ``consent: true`` are kept to look at and never trained on."""
    keep_days: Count = 0
    """Days after which ``clawback prune`` deletes turns that nobody rated; 0: none by their age."""
    keep_versions: Count = 0
    """Versions, besides the live one and the way back from it, that ``clawback prune`` leaves; 0: all."""
    max_turn_bytes: Annotated[int, msgspec.Meta(ge=1)] = 2_000_000
    """Turns larger than this are shortened from the front before they are stored."""

    def __post_init__(self) -> None:
        for rule in self.rules:
            try:
                found = re.compile(rule)
            except re.error as error:
                raise ValueError(f"the rule {rule!r} is no regular expression ({error})") from None
            if found.match("") is not None:
                raise ValueError(f"the rule {rule!r} finds the empty text, and so is everywhere")


class Capture(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What agents are told, and what becomes of turns that nobody rated."""

    ask: bool = False
    """A line after each response that invites to rate it."""
    unrated: Literal["keep", "drop"] = "keep"
    """``drop``: turns that nobody rated lose what was said in them when they have faded. Never a bad rating."""
    fade_days: Count = 30
    """Days after which a turn that nobody rated is asked about no more."""
    admin: tuple[Literal["train", "rollback", "reset"], ...] = ()
    """What may be ordered from an agent or a chat channel (``/rl train``). Whoever can speak to us there may then do it."""


class Trial(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether what the gate accepts is tried on some sessions first (where Clawback's own server answers)."""

    share: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.0
    """Share of sessions that the candidate answers, at most 0.5; 0: it goes live at once."""
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.05
    """Chance of promoting a version that is no better, or turning one down that is no worse."""


class Judge(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that reads what came after an answer and says how the answer was taken (docs/judges.md)."""

    enabled: bool = False
    """True: judge before each run that starts by itself. ``clawback judge`` works either way."""
    api: Literal["local", "openai", "anthropic"] = "local"
    """``local``: the live version itself; else the dialect that the server at ``url`` speaks."""
    url: str = ""
    """Such as ``http://127.0.0.1:11434`` or ``https://api.anthropic.com``."""
    model: str = ""
    """Its name over there."""
    key_env: str = ""
    """The NAME of the environment variable that holds the key; the key itself never goes into a file."""
    votes: Annotated[int, msgspec.Meta(ge=1, le=25)] = 3
    """How often it is asked about a turn; the votes are averaged."""
    hints: bool = False
    """Also ask what a better answer would have needed to know: the hints that `opd` and `combined` learn from."""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Seconds that one call may take."""
    max_calls: Annotated[int, msgspec.Meta(ge=0)] = 500
    """Calls in one pass, repeated ones included."""
    max_seconds: Annotated[float, msgspec.Meta(gt=0)] = 1800.0
    """Seconds that one pass may take."""
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000
    """Tokens in one pass, those sent and those received."""
    answer_tokens: Annotated[int, msgspec.Meta(ge=16)] = 512
    """Tokens of one vote, its reasoning included."""
    parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Turns asked about at the same time (a local model takes one after another)."""


class Reward(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the trained reward model has a say, and what rewards add up from (docs/reward-models.md)."""

    grade: bool = False
    """True: rollouts are graded by it instead of by the head that each run fits for itself."""
    pessimism: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Standard deviations between its members that are taken off a score."""
    weights: dict[
        Literal["feedback", "critic", "coherence", "tokens", "safety"], Annotated[float, msgspec.Meta(ge=0)]
    ] = {}
    """λ of each part of a reward that adds up, such as ``{feedback = 0.8, critic = 0.2}``; one that is not named has none. Empty, without
    ``verifiers``: the reward is the feedback."""
    verifiers: tuple[dict[str, Any], ...] = ()
    """The critic: ``{name = "regex", pattern = "…"}``, a verifier's name with its settings. ``python-tests`` and ``exit-code`` run what a
    model wrote, and that is no sandbox."""
    tokens: tuple[Annotated[int, msgspec.Meta(ge=1)], Annotated[int, msgspec.Meta(ge=2)]] = (200, 800)
    """Tokens up to which an answer gets all of the part ``tokens``, and from which it gets nothing."""


class Prompts(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prompts that are learned where the weights are not yours, and who answers while they are tried (docs/prompts.md)."""

    api: Literal["openai", "anthropic", "local"] = "openai"
    """What the server speaks; ``local``: your own live version answers."""
    url: str = ""
    """The server that is asked; not set: ``[serve] upstream``."""
    model: str = ""
    """The model that is asked; not set: the one that answered you last."""
    key_env: str = ""
    """Name of the environment variable that holds its key."""
    proposer: Literal["auto", "templates", "model"] = "auto"
    """Who writes new sentences: our own ``templates`` and your remarks, or the ``model`` (these you see first). ``auto``: ``templates``."""
    max_calls: Annotated[int, msgspec.Meta(ge=8)] = 200
    """Answers that a search may ask for, the gate's among them."""
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000
    """Tokens that a search may use, sent and received."""
    max_money: NotNegative = 0.0
    """Money that a search may cost, by the prices below; 0: no limit but the others."""
    price_sent: NotNegative = 0.0
    """Of a million tokens sent."""
    price_received: NotNegative = 0.0
    """Of a million tokens received."""
    answer_tokens: Annotated[int, msgspec.Meta(ge=16)] = 1024
    """Longest answer that is asked for."""
    gate_answers: Annotated[int, msgspec.Meta(ge=8, le=256)] = 32
    """Fresh answers with each prompt that the gate compares."""
    every: Annotated[int, msgspec.Meta(ge=1)] = 32
    """Fresh ratings after which a prompt is refined."""
    automatic: bool = False
    """Whether the server starts a search by itself when that many are there: it costs calls."""


class Serve(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server on the network."""

    host: str = "127.0.0.1"
    """The address to listen on; the default is this machine alone."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8742
    """Where to listen; 0 takes a free port."""
    upstream: str = ""
    """Another server that answers, such as ``http://127.0.0.1:11434``; empty: the embedded engine answers."""
    names: tuple[str, ...] = ()
    """Further host names that requests may come under, where it listens on more than loopback."""


class People(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each may use where many share one server (``clawback serve --people``). Settings of the server's own home count."""

    at_once: Annotated[int, msgspec.Meta(ge=1)] = 4
    """Requests of one person that are answered at the same time; more are refused with 429."""
    tokens_a_day: Count = 0
    """Tokens that one person's answers may have from midnight to midnight UTC; 0: no limit."""
    open: Annotated[int, msgspec.Meta(ge=1)] = 64
    """Homes that are kept open after their last request."""
    runs: Annotated[int, msgspec.Meta(ge=0)] = 1
    """Training runs at once, of all people together; 0: none are begun here."""
    adapters: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    """Adapters that can answer at the same moment. Who asks for another waits."""
    adapters_memory: Annotated[int, msgspec.Meta(ge=16)] = 512
    """Megabytes of adapters that are kept in memory; those beyond are read from the disk again."""


class Tracking(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told the figures of a run."""

    to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ("tensorboard",)
    """The first writes files into ``logs``; the others are services of their own."""
    names: Literal["clawback", "openclaw-rl"] = "clawback"
    """``openclaw-rl``: its names for what it shows too (``loss/total``, ``reward/mean``, ``gradient/norm``, …), so that its dashboards go on."""


Variable = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Z_][A-Z0-9_]*$", description="the name of an environment variable")
]
"""The name of an environment variable that holds a secret: the secret itself has no place in a file of settings."""


class Channel(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may do what where people talk to the live version. People are named by the platform's own ids."""

    owners: tuple[str | int, ...] = ()
    """They may ask, rate (in groups they alone), and give the orders that ``[capture] admin`` lists."""
    allowed: tuple[str | int, ...] = ()
    """They may ask, and rate in their direct messages. Nobody else is answered."""
    model: str = "clawback"
    """What the server is asked for; with an upstream, the name of a model there."""


class Slack(Channel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Slack bot (docs/channels.md)."""

    token: Variable = "SLACK_BOT_TOKEN"  # noqa: S105
    """The bot's token (``xoxb-``)."""
    app_token: Variable = "SLACK_APP_TOKEN"  # noqa: S105
    """The app's token (``xapp-``), with which it listens."""
    api: str = "https://slack.com/api/"
    """Where Slack's API is."""


class Discord(Channel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Discord bot (docs/channels.md)."""

    token: Variable = "DISCORD_BOT_TOKEN"  # noqa: S105
    """The bot's token."""


class Telegram(Channel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Telegram bot (docs/channels.md)."""

    token: Variable = "TELEGRAM_BOT_TOKEN"  # noqa: S105
    """The bot's token."""
    api: str = "https://api.telegram.org"
    """Telegram's own, or a Bot API server of yours."""


class Hosted(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trainer elsewhere that speaks Tinker's API, for models that do not fit this machine (docs/hosted.md)."""

    url: str = ""
    """Its address; empty: runs are trained on this machine."""
    key_env: Variable = "TINKER_API_KEY"
    """The variable that holds its key."""
    model: str = ""
    """The base model's name over there; not set: ``[model] base``."""
    save_every: Annotated[int, msgspec.Meta(ge=1)] = 8
    """Steps between states that are kept over there: what a run goes on from where the trainer forgot it."""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    """Seconds that one request may take, with all that is tried again."""
    max_tokens: Count = 0
    """Tokens that a run may use; 0: no limit but the next."""
    max_money: NotNegative = 0.0
    """Money that a run may cost, by the prices below; 0: no limit."""
    price_train: NotNegative = 0.0
    """Of a million tokens trained on."""
    price_prefill: NotNegative = 0.0
    """Of a million tokens that are scored or read without training."""
    price_sample: NotNegative = 0.0
    """Of a million tokens written."""


class Config(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file: a table for each section."""

    model: Model = Model()
    training: Training = Training()
    schedule: Schedule = Schedule()
    gate: Gate = Gate()
    generation: Generation = Generation()
    capture: Capture = Capture()
    tracking: Tracking = Tracking()
    privacy: Privacy = Privacy()
    serve: Serve = Serve()
    people: People = People()
    trial: Trial = Trial()
    judge: Judge = Judge()
    slack: Slack = Slack()
    discord: Discord = Discord()
    telegram: Telegram = Telegram()
    reward: Reward = Reward()
    prompts: Prompts = Prompts()
    hosted: Hosted = Hosted()


def load(path: Path) -> Config:
    """Read the file; a missing one gives the defaults.

    Raises ``ConfigError`` with the place and the reason when it cannot be read or holds a wrong value.
    """
    import tomllib

    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), Config)
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"{path} cannot be used: {error}. Correct it, or delete it for the defaults."
        ) from error


def changed(section: Serve, values: dict[str, Any]) -> Serve:
    """The same settings with these in place of theirs."""
    return msgspec.structs.replace(section, **values)


def save(path: Path, changes: dict[str, dict[str, Any]]) -> Config:
    """Set the given keys (``{"model": {"base": …}}``; ``overrides.steps`` is a key within a table of values), keep the rest of the file and
    its comments. None takes a key out, so that its default counts.

    The new text is checked before it replaces the old, which it does in one rename. Raises ``ConfigError``.
    """
    import tomlkit

    try:
        document = tomlkit.parse(path.read_text("utf-8")) if path.exists() else tomlkit.document()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}. Correct it, or delete it for the defaults."
        ) from error
    for section, values in changes.items():
        table: Any = document.setdefault(section, tomlkit.table())
        for key, value in values.items():
            *inside, last = key.split(".")
            place = table
            for name in inside:
                place = place.setdefault(name, tomlkit.inline_table())
            if value is None:
                place.pop(last, None)
            else:
                place[last] = value
    try:
        config = msgspec.convert(document.unwrap(), Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"That setting cannot be used: {error}.") from error
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(path, tomlkit.dumps(document).encode(), mode=0o600)
    return config
