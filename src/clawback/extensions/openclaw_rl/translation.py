"""Import of OpenClaw-RL's settings: what each key becomes here, and why.

Both of its formats are read: the YAML of a training run (``model``, ``training``, ``rollout``,
``evaluation``) and the JSON of sessions (``rollout_config``). A key changes a setting of ours, or holds here
anyway, or has no counterpart; an unknown key is reported as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clawback import installed
from clawback.errors import UsageError

Kind = Literal["set", "same", "other", "not", "unknown"]
WORDS: Mapping[Kind, str] = {
    "set": "set",
    "same": "is so here",
    "other": "done another way",
    "not": "not taken over",
    "unknown": "not known",
}
METHODS = {"binary": "grpo", "opd": "opd", "combine": "combined", "combined": "combined"}


@dataclass(frozen=True, slots=True)
class SettingAnswer:
    """What became of one key."""

    key: str
    value: Any
    kind: Kind
    note: str
    sets: Mapping[str, object] = field(default_factory=dict)
    """Our key → its value."""


Reader = Callable[[Any], tuple[Kind, str, Mapping[str, Any]]]


def read(path: Path) -> list[SettingAnswer]:
    """Every key of the file, answered for. Raises ``UsageError`` for what is none of its forms, or a value that cannot be."""
    try:
        text = path.read_text("utf-8")
        given: Any = json.loads(text) if path.suffix == ".json" else _yaml(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}.") from error
    if not isinstance(given, dict) or not given:
        raise UsageError(f"{path} holds no settings of OpenClaw-RL (a table of tables).")
    return [_answer(key, value) for key, value in _flat(given)]


def changes(answers: list[SettingAnswer]) -> dict[str, dict[str, Any]]:
    """What is to be set, as ``config.save`` takes it."""
    found: dict[str, dict[str, Any]] = {}
    for one in answers:
        for key, value in one.sets.items():
            section, _, name = key.partition(".")
            found.setdefault(section, {})[name] = value
    return found


def _yaml(text: str) -> object:
    try:
        import yaml
    except ImportError as error:
        raise UsageError(f"YAML needs one more package: {installed.add('train')}.") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _flat(table: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """``a.b`` → value; a table that is a value of its own (message_classification) stays one."""
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in READERS and value:
            found += _flat(value, f"{key}.")
        else:
            found.append((key, value))
    return found


def _answer(key: str, value: object) -> SettingAnswer:
    reader = READERS.get(key)
    if reader is None:
        return SettingAnswer(
            key, value, "unknown", "OpenClaw-RL documents no such key; nothing was done with it"
        )
    try:
        kind, said, sets = reader(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{key} is {value!r}: {error}.") from error
    return SettingAnswer(key, value, kind, said, sets)


def _sets(setting: str, make: Callable[[Any], Any], note: str = "") -> Reader:
    def reader(value: object) -> tuple[Kind, str, Mapping[str, Any]]:
        made = make(value)
        return "set", note or f"{setting} = {made}", {setting: made}

    return reader


def _lam(value: object) -> tuple[Kind, str, Mapping[str, Any]]:
    lam = _number(value)
    parts = ("ppo", "episodes")
    return "set", "lam, of ppo and of episodes", {f"training.options.{part}.lam": lam for part in parts}


def _is(kind: Kind, note: str) -> Reader:
    return lambda _: (kind, note, {})


def _positive(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("it has to be a whole number from 1")
    return value


def _number(value: object) -> float:
    # YAML 1.1 reads 1e-6, without a dot, as a text.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("it has to be a number")
    return float(value)


def _share(value: object) -> float:
    found = _number(value)
    if not 0 <= found < 1:
        raise ValueError("it has to be from 0 to 1")
    return found


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("it has to be a text")
    return value


def _method(value: object) -> tuple[Kind, str, Mapping[str, Any]]:
    ours = METHODS.get(str(value))
    if ours is None:
        raise ValueError(f"there are {', '.join(METHODS)}")
    sets: dict[str, Any] = {"training.algorithm": ours}
    if ours == "grpo":  # one answer a prompt, as from a person's use: its advantage is its reward
        sets["training.options.grpo.grouped"] = False
    return "set", f"training.algorithm = {ours}; `auto` learns more from few ratings", sets


def _clip(value: object) -> tuple[Kind, str, Mapping[str, Any]]:
    share = _share(value)
    low, high = 1 - share, 1 + share
    return (
        "set",
        f"clip_low = {low:g}, clip_high = {high:g}",
        {"training.overrides.clip_low": low, "training.overrides.clip_high": high},
    )


def _temperature(value: object) -> tuple[Kind, str, Mapping[str, Any]]:
    if _number(value) == 1.0:
        return "same", "the teacher is the policy at its own temperature", {}
    return (
        "not",
        "the teacher is the policy at its own temperature, or its log-probs would be of another distribution",
        {},
    )


def _majority(value: object) -> tuple[Kind, str, Mapping[str, Any]]:
    if value in (True, "majority"):
        return "other", "votes are averaged, so that a narrow majority counts for less than a clear one", {}
    return "set", "judge.votes = 1", {"judge.votes": 1}


_JUDGE = "judge.enabled = true, judge.model; name its server with judge.url and judge.api (empty: your own live version judges)"


def _judge(value: object) -> tuple[Kind, str, Mapping[str, Any]]:
    return "set", _JUDGE, {"judge.enabled": True, "judge.model": _text(value)}


def _hints(value: object) -> tuple[Kind, str, Mapping[str, Any]]:
    return (
        "set",
        "judge.hints = true, and the judge writes them",
        {"judge.hints": True, "judge.model": _text(value)},
    )


def _feedback(value: object) -> tuple[Kind, str, Mapping[str, Any]]:
    if value == "next_state_feedback":
        return "set", "judge.enabled = true: it reads what came after an answer", {"judge.enabled": True}
    return "not", "rewards come from ratings, the judge, verifiers (`[reward]`) or an environment", {}


READERS: Mapping[str, Reader] = {
    "model.name": _is("other", "a name that is shown; model.checkpoint_path says what is trained"),
    "model.checkpoint_path": _sets("model.base", _text),
    "model.tokenizer_path": _is("not", "the tokenizer is that of the model's own folder; another would change what tokens mean"),
    "training.method": _method,
    "training.batch_size": _sets("training.overrides.batch", _positive),
    "training.gradient_accumulation_steps": _sets("training.overrides.accumulation", _positive),
    "training.learning_rate": _sets("training.overrides.learning_rate", _number),
    "training.warmup_steps": _is("not", "a run has some dozen steps; on episodes the rate rises over the first 20"),
    "training.max_steps": _is(
        "other", "a run takes what its ratings and [training] budget give (overrides.steps), and the next one goes on"
    ),
    "training.ppo_clip_ratio": _clip,
    "training.value_clip_ratio": _sets("training.options.ppo.value_clip", _share, "value_clip, where ppo has values"),
    "training.gae_lambda": _lam,
    "training.teacher_temperature": _temperature,
    "training.hint_extraction_model": _hints,
    "training.binary_weight": _sets("training.options.combined.w_binary", _number, "w_binary, of combined"),
    "training.opd_weight": _sets("training.options.combined.w_opd", _number, "w_opd, of combined"),
    "rollout.num_workers": _is("other", "one batched generator draws for all; judge.parallel says how many turns are judged at once"),
    "rollout.max_turns": _is("other", "`clawback env train --max-turns N`; conversations with people have no limit"),
    "rollout.session_aware": _is("same", "turns belong to sessions, also without headers"),
    "rollout.parallel_envs": _is("other", "`clawback env train --together N`"),
    "evaluation.judge_model": _judge,
    "evaluation.majority_voting": _majority,
    "evaluation.num_judges": _sets("judge.votes", _positive),
    "evaluation.consensus_threshold": _is("other", "a verdict weighs as much as the votes agree; there is no threshold"),
    "evaluation.eval_frequency": _is("other", "every version is judged by the gate before it goes live"),
    "rollout_config.collection_mode": _is("same", "an answer never waits for training"),
    "rollout_config.max_concurrent_sessions": _is("same", "sessions are rows of a database: there is no limit"),
    "rollout_config.session_timeout": _sets("training.session_timeout", _number),
    "rollout_config.trajectory_format": _is("same", "turns keep all that led to them; credit over turns: training.credit"),
    "rollout_config.message_classification": _is(
        "other", "turns are main or side as a whole (X-Turn-Type, or as they look); roles within a turn decide nothing"
    ),
    "rollout_config.reward_computation.type": _feedback,
    "rollout_config.reward_computation.aggregation": _majority,
    "rollout_config.reward_computation.num_samples": _sets("judge.votes", _positive),
}  # fmt: skip
"""Every key that OpenClaw-RL's users are told of."""
