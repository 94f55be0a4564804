"""Where a run trains and draws: in this process, in several, or in a part that an extension provides.

The parts' interfaces are the protocols here; ``plugins`` finds the parts by name. How many processes a run has follows from its options, from a file of
`accelerate config`, or from `accelerate launch`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from clawback import plugins
from clawback.errors import UsageError

if TYPE_CHECKING:
    from clawback.config import Config
    from clawback.environments.core import EnvironmentSet
    from clawback.models import TrainResult
    from clawback.paths import Home
    from clawback.policy import Policy, Sampler
    from clawback.progress import OnProgress
    from clawback.records import Episode, Run
    from clawback.rollouts.concurrent import Drawer, EpisodeSource
    from clawback.runs.run_options import RunOptions
    from clawback.sampling import Chance, Sampled
    from clawback.trainer import Recipe, TrainingRun


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster that this process is connected to."""

    ray: Any
    workers: int
    """0: one a machine."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What is played, and who hears of it."""

    policy: Policy
    worlds: EnvironmentSet
    wish: Any
    """A ``episode_runs.Wish``."""
    name: str
    """Of the folder for what a vLLM loads: a run's number."""
    tell: OnProgress
    seed: int = 0
    recipe: Recipe | None = None
    """None: nothing is learned from it."""
    keep: Callable[[Sequence[Episode]], None] = lambda _: None
    """Told of the episodes that are over."""


class Trainer(Protocol):
    """Runs whose weights are elsewhere."""

    def policy(self, settings: Config, base: str, system: str = "") -> Policy: ...

    def recipe(self, home: Home, settings: Config, draft: Recipe) -> Recipe: ...

    def present(self, home: Home, settings: Config, algorithm: str = "auto") -> None:
        """Raises where nothing answers, or the key is refused."""

    def train(self, home: Home, settings: Config, run: Run, inputs: TrainingRun) -> TrainResult:
        """``run``: as it is in the store."""
        ...


class ServedSampler(Protocol):
    """Draws the fresh answers of a run on ratings; a ``generate.Sampler`` with a name, and to be closed."""

    name: str

    def __call__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], chance: Chance, merge: bool
    ) -> list[list[Sampled]]: ...

    def report_to(self, tell: OnProgress) -> None:
        """Who is told of what happens from here on."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class VllmDrawing(Protocol):
    """Drawing by vLLM servers."""

    def check(self, draw: str, settings: Config) -> None:
        """Raises where ``draw`` (an address, or ``vllm``) cannot draw."""

    def sampler(
        self, home: Home, settings: Config, policy: Policy, recipe: Recipe, draw: str, tell: OnProgress
    ) -> ServedSampler: ...

    def drawer(self, home: Home, settings: Config, rollout: Rollout) -> Drawer: ...


class ClusterDrawing(Protocol):
    """Drawing and playing by the workers of a cluster."""

    def check(self, ray: tuple[str, int]) -> None:
        """Raises ``UsageError`` where no cluster answers, ``MissingExtra`` without Ray."""

    def connected(self, ray: tuple[str, int]) -> AbstractContextManager[Cluster]: ...

    def players(self, cluster: Cluster, rollout: Rollout) -> AbstractContextManager[EpisodeSource]: ...

    def sampler(
        self, ray: tuple[str, int], recipe: Recipe, tell: OnProgress
    ) -> AbstractContextManager[Sampler]: ...

    def judging(
        self, judge: object, ray: tuple[str, int], on_progress: OnProgress | None
    ) -> AbstractContextManager[int]:
        """``judge``: a ``judging.Local``."""
        ...


def is_hosted(recipe: Recipe) -> bool:
    """Whether the run of this recipe is trained elsewhere."""
    return bool(recipe.conditions.hosted)


def check_extensions(settings: Config, options: RunOptions) -> None:
    """Raises ``NotFound`` where the settings or options ask for a part whose extension is not installed. Imports no part."""
    draw = options.draw or settings.training.draw
    parts = (
        (settings.reward.grade, plugins.GRADERS, "reward-model", "`[reward] grade`"),
        (settings.model.engine == "mlx", plugins.ENGINES, "mlx", "`[model] engine`"),
        (bool(settings.hosted.url), plugins.TRAINERS, "hosted", "`[hosted] url`"),
        (options.processes > 1, plugins.TRAINERS, "processes", "`--processes`"),
        (draw not in ("", HERE), plugins.SAMPLERS, "vllm", "`draw`"),
        (options.ray is not None, plugins.SAMPLERS, "ray", "`--ray`"),
    )
    for wanted, group, name, user in parts:
        if wanted:
            plugins.require(group, name, user)


def hosted() -> Trainer:
    """The trainer elsewhere that the settings name."""
    trainer: Trainer = plugins.load(plugins.TRAINERS, "hosted")
    return trainer


def vllm() -> VllmDrawing:
    """Drawing by vLLM."""
    drawing: VllmDrawing = plugins.load(plugins.SAMPLERS, "vllm")
    return drawing


def cluster() -> ClusterDrawing:
    """Drawing by a Ray cluster."""
    drawing: ClusterDrawing = plugins.load(plugins.SAMPLERS, "ray")
    return drawing


HERE, OWN_VLLM = "here", "vllm"
"""Beside the address of a vLLM, what ``--draw`` and ``[training] draw`` may say: this process, or a vLLM that the run starts."""


def chosen(draw: str, settings: Config) -> str:
    """What draws: ``vllm``, an address, or "" for this process. Raises ``UsageError``, and ``HostedError`` where nothing answers at the address."""
    draw = draw or settings.training.draw
    if draw in ("", HERE):
        return ""
    vllm().check(draw, settings)
    return draw


INSTEAD = "Start it without `accelerate launch`: `clawback train --processes {}` starts its processes itself."


@dataclass(frozen=True, slots=True)
class Launch:
    """What a file of accelerate comes to here."""

    processes: int
    """On this machine."""
    variables: dict[str, str]
    """For several machines."""
    shard: bool = False
    answers: tuple[str, ...] = ()
    """A sentence for each key that is not done as it says."""


KINDS = ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP")
TAKEN = frozenset(
    [
        "distributed_type",
        "num_processes",
        "num_machines",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "fsdp_config",
        "mixed_precision",
        "use_cpu",
        "gpu_ids",
    ]
)
QUIET = frozenset(
    [
        "compute_environment",
        "debug",
        "main_training_function",
        "rdzv_backend",
        "same_network",
        "use_cpu",
        "gpu_ids",
        "enable_cpu_affinity",
        "tpu_env",
        "tpu_use_cluster",
        "tpu_use_sudo",
        "downcast_bf16",
        "ipex_config",
        "dynamo_config",
        "megatron_lm_config",
        "deepspeed_config",
        "mpirun_config",
        "fp8_config",
        "parallelism_config",
        "fp16",
        "commands",
        "command_file",
        "tpu_name",
        "tpu_vm",
        "tpu_zone",
    ]
)
"""Of what launches and of other devices: nothing here depends on it while it is empty or off."""
OFF: tuple[object, ...] = (None, False, "no", "NO", "", {}, [], 0)
ALWAYS_FINE = frozenset(["compute_environment", "main_training_function", "rdzv_backend", "same_network"])
SHARDED_AS = {
    "fsdp_version": (("2",), "the base is sharded by FSDP2, whatever version is asked for"),
    "fsdp_reshard_after_forward": (("true", "full_shard"), "each layer is given up after use"),
    "fsdp_sharding_strategy": (("full_shard", "1"), "each layer is given up after use"),
    "fsdp_auto_wrap_policy": (("transformer_based_wrap",), "each layer of the decoder is a unit"),
    "fsdp_offload_params": (("false",), "nothing is offloaded here"),
    "fsdp_cpu_ram_efficient_loading": (("true",), "processes load one after the other"),
    "fsdp_state_dict_type": (("full_state_dict",), "the adapter is whole everywhere and saved as one file"),
}
"""Values that are what is done here, and what is said of any other."""


def from_accelerate(path: Path) -> Launch:
    """A file that `accelerate config` wrote, every key of it answered for. Raises ``UsageError``."""
    import yaml

    try:
        settings: Any = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}.") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{path} is no file of `accelerate config`.")
    settings = {str(key): value for key, value in settings.items()}
    kind = str(settings.get("distributed_type", "NO")).upper()
    if kind not in KINDS:
        raise UsageError(
            f"{path} says distributed_type: {kind[:40]}. Here processes share gradients (use MULTI_CPU or MULTI_GPU), or the base, too (FSDP). "
            "For anything else, train elsewhere (docs/hosted.md)."
        )
    machines, world = _positive(settings, "num_machines", path), _positive(settings, "num_processes", path)
    if world % machines:
        raise UsageError(f"{path}: {world} processes cannot be shared out among {machines} machines.")
    variables = {"NNODES": str(machines), "NODE_RANK": str(settings.get("machine_rank") or 0)}
    for name, key in (("MASTER_ADDR", "main_process_ip"), ("MASTER_PORT", "main_process_port")):
        if settings.get(key):
            variables[name] = str(settings[key])
    if machines > 1 and not {"MASTER_ADDR", "MASTER_PORT"} <= variables.keys():
        raise UsageError(f"{path}: several machines need main_process_ip and main_process_port.")
    shard = kind == "FSDP"
    return Launch(world // machines, variables, shard, (*_answers(settings), *_of_sharding(settings, shard)))


def _answers(options: Mapping[str, object]) -> Iterator[str]:
    """What is said of keys that are not done as they stand."""
    precision = str(options.get("mixed_precision") or "no").lower()
    if precision == "bf16":
        yield "mixed_precision: bf16 is not taken over, because what trains is what answers. `clawback config set model.dtype bfloat16` is for both."
    elif precision != "no":
        yield f"mixed_precision: {precision[:20]} is not known here; the base is held as [model] dtype says (float32, bfloat16)."
    if options.get("use_cpu") and (name := _accelerator()):
        yield f"use_cpu: true is not taken over, and a run may use {name}. `clawback config set model.device cpu` keeps it on the CPU."
    if str(options.get("gpu_ids") or "all") != "all":
        yield "gpu_ids is not taken over: a run uses the first GPUs that it sees. CUDA_VISIBLE_DEVICES says which it sees."
    for key, value in options.items():
        if key in TAKEN or key in ALWAYS_FINE or (key in QUIET and value in OFF):
            continue
        known = "is not used here" if key in QUIET else "is no key that is known here; it is left alone"
        yield f"{key[:60]} {known}."


def _of_sharding(options: Mapping[str, object], shard: bool) -> Iterator[str]:
    settings = options.get("fsdp_config") or {}
    if not isinstance(settings, dict):
        yield "fsdp_config is no table and was left alone."
        return
    if settings and not shard:
        yield "fsdp_config is left alone, because distributed_type is not FSDP."
        return
    for key, value in settings.items():
        if key == "fsdp_activation_checkpointing":
            if value:
                yield "fsdp_activation_checkpointing: true is `clawback config set training.overrides.gradient_checkpointing true` here."
        elif key == "fsdp_transformer_layer_cls_to_wrap":
            continue  # its layers are found without a name
        elif key not in SHARDED_AS:
            yield f"{str(key)[:60]} is not used here."
        elif str(value).lower() not in SHARDED_AS[key][0]:
            yield f"{key}: {str(value)[:40]}: {SHARDED_AS[key][1]}."


def launched(environment: Mapping[str, str] = os.environ, parent: list[str] | None = None) -> str:
    """What `accelerate launch` or `torchrun` has made of this process, where it is not what was asked for; "" otherwise.

    Raises ``UsageError`` in each of several copies of one command: they would all train the same.
    """
    world = int(environment.get("WORLD_SIZE") or 1)
    if world > 1:
        raise UsageError(f"This command was started {world} times; start it once. {INSTEAD.format(world)}")
    if "ACCELERATE_MIXED_PRECISION" not in environment and "ACCELERATE_USE_CPU" not in environment:
        return ""
    asked = _process_count(_parent() if parent is None else parent, environment)
    if asked > 1:
        return (
            f"`accelerate launch` was asked for {asked} processes and started one (on CPUs it needs MPI for more, and does not say so). "
            + INSTEAD.format(asked)
        )
    return ""


@contextmanager
def sampler(
    ray: tuple[str, int] | None,
    vllm: ServedSampler | None,
    recipe: Recipe,
    tell: OnProgress,
) -> Iterator[Sampler | None]:
    """What draws fresh answers: a Ray cluster's workers, a vLLM, or None for this process. It is closed at the end. Raises ``UsageError``,
    ``MissingExtra``."""
    if vllm is not None:
        vllm.report_to(tell)
        with vllm:
            yield vllm
        return
    if ray is None:
        yield None
        return
    with cluster().sampler(ray, recipe, tell) as workers:
        yield workers


def help_out(count: int) -> int:
    """On a machine that is not the first: ``count`` workers of the run that is begun there. The highest of their exit codes."""
    workers: int = plugins.load(plugins.TRAINERS, "processes").workers_of_a_node(count)
    return workers


def _process_count(command: list[str], environment: Mapping[str, str]) -> int:
    """Processes that a launcher's command line asks for; else the file that it reads: one that is named, or accelerate's own."""
    count = _option(command, "num_processes")
    if count:
        return int(count) if count.isdecimal() else 1
    own = Path(
        environment.get("HF_HOME") or Path(environment.get("HOME", "~"), ".cache/huggingface")
    ).expanduser()
    named = _option(command, "config_file")
    files = (
        [Path(named)]
        if named
        else [own / "accelerate" / f"default_config.{kind}" for kind in ("yaml", "json")]
    )
    return next((_processes(file) for file in files if file.is_file()), 1)


def _option(command: list[str], wanted: str) -> str:
    """A launcher's own option, before the program that it launches has some of its own."""
    for place, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name.replace("-", "_").strip("_") == wanted and name.startswith("--"):
            return value if equals else (command[place + 1] if place + 1 < len(command) else "")
    return ""


def _processes(file: Path) -> int:
    """What accelerate's file asks for; 1 where it cannot be read: the launcher had its say about that."""
    import yaml

    with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        settings: Any = yaml.safe_load(file.read_text("utf-8"))
        count = settings.get("num_processes", 1) if isinstance(settings, dict) else 1
        return count if isinstance(count, int) else 1
    return 1


def _accelerator() -> str:
    """The device that a run would take, where it is no CPU."""
    from clawback import devices

    device = devices.choose(None).type
    return "" if device == "cpu" else device


def _parent() -> list[str]:
    import psutil

    try:
        parent = psutil.Process().parent()
        return parent.cmdline() if parent else []
    except psutil.Error:
        return []


def _positive(options: Mapping[str, object], name: str, path: Path) -> int:
    value = options.get(name, 1)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1024:
        raise UsageError(f"{path}: {name} is {value!r}; it has to be a whole number from 1.")
    return value
