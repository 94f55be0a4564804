"""One ``Config``, read from ``config.toml``. Every setting, its default and its meaning is here, those of extensions in ``extension_sections.py``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from clawback.config.extension_sections import ChannelSection as ChannelSection
from clawback.config.extension_sections import Count, NotNegative, Section, Share
from clawback.config.extension_sections import DiscordSection as DiscordSection
from clawback.config.extension_sections import HostedSection as HostedSection
from clawback.config.extension_sections import PeopleSection as PeopleSection
from clawback.config.extension_sections import SlackSection as SlackSection
from clawback.config.extension_sections import TelegramSection as TelegramSection
from clawback.config.extension_sections import VllmSection as VllmSection
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
Preset = Literal["careful", "balanced", "aggressive"]


class ModelSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained: ``embedded``, ``smollm2``, a folder, a hub id, a GGUF file, ``ollama:NAME`` or ``lmstudio:NAME`` (docs/models.md)."""

    base: str = EMBEDDED
    """The base model."""
    revision: str | None = None
    """Commit, branch or tag of a hub id."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the weights. ``auto`` chooses by the device and the free memory."""
    engine: Literal["torch", "mlx"] = "torch"
    """The library that trains, and that answers in the gate and in `clawback ask`. ``mlx``: Apple's MLX (docs/mlx.md). The server always uses torch."""
    load_in_4bit: bool | None = None
    """Not set: 8 or 4 bits where 16 do not fit (CUDA only); true: 4 bits; false: never quantised."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where the torch engine computes. ``auto``: on a GPU where there is one; a model of up to 300 million parameters where it is faster, which is
    measured when it is first loaded (docs/training.md)."""
    chat_template_args: dict[str, Any] = {}
    """Passed to the model's chat template everywhere, such as ``{enable_thinking = true}``. A template that knows ``enable_thinking`` gets
    false unless it is set here."""

    @property
    def load_device(self) -> str | None:
        """What ``engine.load`` is asked for; None: what is fastest."""
        return "mlx" if self.engine == "mlx" else self.torch_device

    @property
    def torch_device(self) -> str | None:
        """The same for what always uses the torch engine."""
        return None if self.device == "auto" else self.device


class TrainingSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How training runs are made, and when one starts."""

    algorithm: AlgorithmName = "auto"
    """``auto``: a reward ensemble is fitted to the ratings, then answers that it prefers are distilled or, on models under 50 M parameters, trained on with
    GRPO; without a pattern in the ratings it learns edits and comparisons alone, and without these no run begins (docs/training.md)."""
    preset: Preset = "balanced"
    """How far one run may move the model: ``careful`` drifts least, ``aggressive`` learns fastest."""
    threshold: Annotated[int, msgspec.Meta(ge=1)] = 32
    """Number of fresh ratings that starts a run."""
    background: bool = True
    """Whether runs start by themselves."""
    budget: str = "20m"
    """Time that a run may take on this machine, gate included: ``"90s"``, ``"20m"``, ``"8h"``. It decides how many answers a run samples and
    learns from; a run that does not fit at its smallest size is refused."""
    draw: str = ""
    """What draws the fresh answers of runs and the replies of episodes. Empty: the run itself; ``vllm``: a vLLM that the run starts and ends;
    an address: a vLLM that runs there (docs/vllm.md). ``--draw`` takes precedence."""
    seed: int = 0
    """The same feedback and seed give the same version."""
    newest: Annotated[int, msgspec.Meta(ge=32)] = 4096
    """How many of the newest pieces of feedback a run learns from (and as many votes of judges), so that runs do not grow without limit."""
    credit: Share = 0.0
    """Share of a turn's reward that is passed to the unrated turn before it in its session, 0 to 1; 0: none."""
    min_turns: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """With ``credit``: main turns that a session must have for rewards to be passed on in it; 1: all sessions."""
    session_timeout: Annotated[float, msgspec.Meta(ge=0)] = SILENT
    """Seconds without a turn after which a conversation counts as closed (``X-Session-Done`` closes it at once). With ``credit``, open
    conversations wait for the next run; a judge chooses its turn of a conversation when that is closed."""
    raters: Literal["agreement", "equal"] = "agreement"
    """If several people rate: ``agreement`` weights each by their agreement with the others, ``equal`` weights all the same."""
    curriculum: Literal["off", "reward", "length", "both"] = "off"
    """Order of the ratings in runs on the ratings themselves: clear ratings first (``reward``), short answers first (``length``), or both."""
    full: bool = False
    """Train all weights of the model's layers in place of an adapter, where memory allows: about 24 bytes a weight. A version is then a file of what is
    added to them (docs/training.md)."""
    thinking: bool = False
    """Also train on what the model thought before an answer, by the rating of the answer."""
    learn_from: list[str] = []
    """Other models whose answers may be learned word for word, by name; ``*`` stands for any text (``["gpt-4*"]``). Empty: none. The terms of many vendors
    forbid training other models on their output: read those of each model that you name (docs/training.md)."""
    overrides: dict[str, Any] = {}
    """Recipe values set by hand, such as ``{learning_rate = 5e-4}``."""
    options: dict[str, dict[str, Any]] = {}
    """Settings of single algorithms and sources of examples, by their names, such as ``{grpo = {grouped = false}}`` (docs/training.md)."""


class ScheduleSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a background run may start."""

    quiet_hours: str = ""
    """``"22:00-07:00"``: never start within these local hours. Empty: any time."""
    only_when_idle: bool = False
    """Start only while the load per core is at most ``idle_load``."""
    idle_load: NotNegative = 0.5
    """One-minute load average per core under which the machine counts as idle."""
    nice: Annotated[int, msgspec.Meta(ge=0, le=19)] = 10
    """Priority of a background run: the increment of ``nice``, 19 is the lowest priority."""
    retry_minutes: Annotated[int, msgspec.Meta(ge=1)] = 15
    """Minutes after a failed run, or a process that failed before it began one, until the next is started."""


class GateSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a candidate must pass before it goes live."""

    held_out: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.125
    """Share of the prompts that are kept out of every run, for the gate, with what was said of their answers."""
    confidence: Share = 0.95
    """How sure the gate must be: of versions that are no better than the live one it accepts at most the rest."""
    more_ratings: Count = 16
    """Questions at most (which of two answers is better) where nothing else decides about a candidate; more than 16 are never asked. 0: it is rejected."""
    max_kl: NotNegative = 8.0
    """Drift from the base model that is always allowed, in nats per answer."""
    max_kl_per_token: NotNegative = 0.25
    """For longer answers: drift that is allowed in nats per token."""
    max_perplexity_ratio: NotNegative = 1.25
    """Limit of the perplexity of the base model's own answers under the candidate, divided by that under the base."""


class GenerationSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sampling, the same in training, in the gate and for you. What is not set comes from the model's own generation config."""

    temperature: NotNegative | None = None
    """0: always the likeliest token."""
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Sample from the likeliest tokens that together have this probability."""
    top_k: Count | None = None
    """Sample from this many of the likeliest tokens; 0: from all."""
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Longest answer, in tokens. Not set: the model's own limit, else 2048, or less where the context has no room for that beside `max_prompt`. A request
    to the server that names none may fill the context, except with a model without a chat template; in training and the gate the length of
    rated answers decides."""
    max_prompt: Annotated[int, msgspec.Meta(ge=32)] | None = None
    """Tokens of a conversation that are read, for an answer and in training; the oldest messages beyond are left out. Not set: 4096. At most three quarters of the
    model's context. Time and memory of a run grow with it."""


class PrivacySection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is stored."""

    redact: bool = True
    """Replace recognisable secrets by ``[redacted]`` before anything is stored."""
    rules: tuple[str, ...] = ()
    """Your own regular expressions (Python syntax); matches are stored as ``[redacted]``. For example ``["PROJ-[0-9]+", "(?i)acme gmbh"]``."""
    require_consent: bool = False
    """True: imported turns without ``consent: true`` can be looked at but are never trained on."""
    keep_days: Count = 0
    """Age in days at which ``clawback data prune`` deletes unrated turns; 0: age does not matter."""
    keep_versions: Count = 0
    """Number of versions that ``clawback data prune`` keeps besides the live one and the one before it; 0: all."""
    copies: Count = 3
    """Copies of the database that the server and training runs make by themselves, one a day at most, and keep beside it; 0: none.
    `clawback data forget` deletes them; what `clawback data prune` deleted is in them until newer ones have taken their place."""
    max_turn_bytes: Annotated[int, msgspec.Meta(ge=1)] = 2_000_000
    """Larger turns are shortened from the front before they are stored."""
    max_picture_bytes: Count = 5_000_000
    """Largest picture (PNG, JPEG, WebP, GIF) that is stored of what the proxy passes on; a larger one is left out. 0: none is stored."""
    max_turn_picture_bytes: Count = 20_000_000
    """Pictures of one turn, all together; of more the newest are stored. A picture that many turns repeat is stored once."""

    def __post_init__(self) -> None:
        for rule in self.rules:
            try:
                found = re.compile(rule)
            except re.error as error:
                raise ValueError(f"the rule {rule!r} is no regular expression ({error})") from None
            if found.match("") is not None:
                raise ValueError(f"the rule {rule!r} finds the empty text, and so is everywhere")


class CaptureSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What agents show, and what happens to unrated turns."""

    ask: bool = False
    """Show a line after each response that asks for a rating."""
    unrated: Literal["keep", "drop"] = "keep"
    """``drop``: the text of unrated turns is deleted after ``fade_days``. An unrated turn never counts as bad."""
    fade_days: Count = 30
    """Days after which the inbox no longer asks about an unrated turn."""
    admin: tuple[Literal["train", "rollback", "reset"], ...] = ()
    """Commands that may be given from an agent or a chat channel (``/rl train``), by whoever may write there."""
    survived: bool = False
    """Notice how much of an agent's edits is still there at the next commit, as a guess that never outweighs a rating."""


class TrialSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A/B test: try an accepted candidate on some of the sessions first (where Clawback's own server answers)."""

    share: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.0
    """Share of sessions that the candidate answers, at most 0.5; 0: it goes live at once."""
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.05
    """Accepted error rate: of promoting a version that is no better, or rejecting one that is no worse."""


class JudgeSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that reads what came after an answer and says how the answer was taken (docs/judges.md)."""

    enabled: bool = False
    """True: the judge votes before each run that starts by itself. ``clawback lab judge`` works either way."""
    api: Literal["local", "openai", "anthropic"] = "local"
    """``local``: the live version is the judge; otherwise the API of the server at ``url``."""
    url: str = ""
    """The server's address, such as ``http://127.0.0.1:11434`` or ``https://api.anthropic.com``."""
    model: str = ""
    """The model's name on that server."""
    key_env: str = ""
    """The NAME of the environment variable that holds the key; the key itself never goes into a file."""
    votes: Annotated[int, msgspec.Meta(ge=1, le=25)] = 3
    """Votes per turn; the value with the most votes is the verdict."""
    hints: bool = False
    """Also ask what the answer should have known: hints, from which `opd` and `combined` learn."""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Time limit of one call, in seconds."""
    max_calls: Annotated[int, msgspec.Meta(ge=0)] = 500
    """Most calls in one pass, retries included."""
    max_seconds: Annotated[float, msgspec.Meta(gt=0)] = 1800.0
    """Time limit of one pass, in seconds."""
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000
    """Most tokens in one pass, sent and received."""
    answer_tokens: Annotated[int, msgspec.Meta(ge=16)] = 512
    """Most tokens of one vote, reasoning included."""
    parallel: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Turns judged at the same time (a local model judges one after another)."""


class RewardSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Use of the trained reward model, and composite rewards (docs/reward-models.md)."""

    grade: bool = False
    """True: the trained reward model scores rollouts, instead of the ensemble that each run fits."""
    pessimism: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Standard deviations between its members that are subtracted from a score."""
    weights: dict[
        Literal["feedback", "critic", "coherence", "tokens", "safety"], Annotated[float, msgspec.Meta(ge=0)]
    ] = {}
    """Weight λ of each part of a composite reward, such as ``{feedback = 0.8, critic = 0.2}``; parts that are not named have none. Empty, and
    no ``verifiers``: the reward is the feedback."""
    verifiers: tuple[dict[str, Any], ...] = ()
    """The critic: verifiers with their settings, such as ``{name = "regex", pattern = "…"}``. ``python-tests`` and ``exit-code`` run what a
    model wrote, without a sandbox."""
    tokens: tuple[Annotated[int, msgspec.Meta(ge=1)], Annotated[int, msgspec.Meta(ge=2)]] = (200, 800)
    """The part ``tokens`` is 1 up to the first length (in tokens) and falls to 0 at the second."""


class PromptsSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Learned prompts, for models whose weights you do not have, and the model that answers during a search (docs/prompts.md)."""

    api: Literal["openai", "anthropic", "local"] = "openai"
    """The server's API; ``local``: your own live version answers."""
    url: str = ""
    """The server's address; not set: ``[serve] upstream``."""
    model: str = ""
    """The model's name; not set: the model that answered you last."""
    key_env: str = ""
    """The NAME of the environment variable that holds its key."""
    proposer: Literal["auto", "templates", "model"] = "auto"
    """Who proposes new sentences: ``templates`` and your remarks, or the ``model`` (you must accept its sentences). ``auto``: ``templates``."""
    max_calls: Annotated[int, msgspec.Meta(ge=8)] = 200
    """Most answers that a search may request, including the gate's."""
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000
    """Most tokens of a search, sent and received."""
    max_money: NotNegative = 0.0
    """Most money that a search may cost, by the prices below; 0: only the other limits apply."""
    price_sent: NotNegative = 0.0
    """Price of a million tokens sent."""
    price_received: NotNegative = 0.0
    """Price of a million tokens received."""
    answer_tokens: Annotated[int, msgspec.Meta(ge=16)] = 1024
    """Longest answer that is requested."""
    gate_answers: Annotated[int, msgspec.Meta(ge=8, le=256)] = 32
    """Fresh answers that the gate compares under each of the two prompts."""
    every: Annotated[int, msgspec.Meta(ge=1)] = 32
    """Number of fresh ratings after which a prompt is refined."""
    automatic: bool = False
    """Whether the server then starts a search by itself, which costs calls."""


class ServeSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server on the network."""

    host: str = "127.0.0.1"
    """The address to listen on; the default is this machine alone."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8742
    """Where to listen; 0 takes a free port."""
    upstream: str = ""
    """Another server that answers, such as ``http://127.0.0.1:11434``; empty: the embedded engine answers."""
    names: tuple[str, ...] = ()
    """Further host names under which requests are accepted, if it listens on more than loopback."""


class TrackingSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the metrics of a run are logged."""

    to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ("tensorboard",)
    """``tensorboard`` writes files into ``logs``; ``wandb`` and ``trackio`` are separate services."""
    names: Literal["clawback", "openclaw-rl"] = "clawback"
    """``openclaw-rl``: use OpenClaw-RL's metric names (``loss/total``, ``reward/mean``, ``gradient/norm``, …), so that its dashboards keep working."""


class PublishTarget(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that gets every version that goes live, as `clawback versions publish WHERE` is told it."""

    where: str
    """`merged`, `gguf`, `vllm`, `ollama`, `llama-cpp`, `lm-studio`, `mlx`, or a plugin's name."""
    url: str = ""
    """The server's address."""
    output: str = ""
    """The folder or file that is written."""
    base: str = ""
    """What the base model is called on that server."""
    name: str = "clawback"
    """What the new one is to be called."""
    presets: str = ""
    """The presets of a llama-server that is a router."""


class RulesSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What you want of every answer, a sentence each (docs/rules.md)."""

    remind: bool = True
    """Say the rules again that an agent's model has broken of late: your agent's hook adds them to your prompt."""
    send_back: bool = False
    """Send an answer that breaks a rule back to the model, once, where code can see the breach and the agent has a hook for it."""


class PublishSection(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other servers that follow the live version (docs/publish.md)."""

    targets: tuple[PublishTarget, ...] = ()
    """A table for each server: ``clawback versions publish WHERE --always`` adds one, ``--stop`` removes it."""
    converter: str = ""
    """llama.cpp's `convert_hf_to_gguf.py`, which makes GGUF files of models that did not come from one; where it is empty, it is looked for in PATH."""


class Config(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file: a table for each section."""

    model: ModelSection = ModelSection()
    training: TrainingSection = TrainingSection()
    schedule: ScheduleSection = ScheduleSection()
    gate: GateSection = GateSection()
    generation: GenerationSection = GenerationSection()
    capture: CaptureSection = CaptureSection()
    tracking: TrackingSection = TrackingSection()
    privacy: PrivacySection = PrivacySection()
    serve: ServeSection = ServeSection()
    people: PeopleSection = PeopleSection()
    trial: TrialSection = TrialSection()
    judge: JudgeSection = JudgeSection()
    slack: SlackSection = SlackSection()
    discord: DiscordSection = DiscordSection()
    telegram: TelegramSection = TelegramSection()
    reward: RewardSection = RewardSection()
    prompts: PromptsSection = PromptsSection()
    hosted: HostedSection = HostedSection()
    vllm: VllmSection = VllmSection()
    publish: PublishSection = PublishSection()
    rules: RulesSection = RulesSection()


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


def changed(section: ServeSection, values: dict[str, Any]) -> ServeSection:
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
    model = changes.get("model", {})
    if "base" in model and model["base"] != document.get("model", {}).get("base"):
        changes = changes | {"model": {"revision": None} | model}  # a commit of another model means nothing
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
