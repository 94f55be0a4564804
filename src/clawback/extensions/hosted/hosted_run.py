"""Runs on a hosted trainer: what the settings say about it, and the run itself. Data and gate stay on this machine."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from clawback.config import Config
from clawback.errors import ConfigError, Interrupted, UsageError
from clawback.paths import HOSTED_KEY_FILE, Home, secret
from clawback.records import Run
from clawback.runs.trigger import hosted_key

if TYPE_CHECKING:
    from clawback.extensions.hosted.hosted_training import Where
    from clawback.models import TrainResult
    from clawback.policy import Policy
    from clawback.trainer import Recipe, TrainingRun

CAPABILITIES = "/api/v1/get_server_capabilities"
"""Of Tinker's API."""
ACCOUNTS = "/v1/accounts?pageSize=2"
"""Of Fireworks'."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def policy(settings: Config, base: str, system: str = "") -> Policy:
    """The tokenizer and the shape of the base model; its weights are elsewhere. What the gate will need of this machine is looked at first:
    a version that cannot be judged must not be paid for. Raises ``DoesNotFit``, and ``UsageError`` where answers are drawn at another temperature than is learned at."""
    from clawback import devices
    from clawback.extensions.hosted.remote_policy import RemotePolicy
    from clawback.models import load_tokenizer, sampling_of
    from clawback.policy import memory

    model = settings.model
    drawn = settings.generation.temperature
    scale = sampling_of(base, model.revision).scale if drawn is None else drawn or 1.0
    if scale != 1.0:
        raise UsageError(
            f"Answers are drawn at temperature {scale:g}, and a trainer elsewhere knows temperature 1 alone: what it trains would not be what "
            "answers. `clawback config set generation.temperature 1` makes them the same; or train on this machine."
        )
    tokenizer, info = load_tokenizer(base, model.revision)
    memory.holds(info, devices.choose(None), model.dtype, model.load_in_4bit)
    made = RemotePolicy(tokenizer, info, model.chat_template_args, settings.training.thinking, system)
    # It has what runs on ratings ask of a Policy.
    return cast("Policy", made)


def recipe(home: Home, settings: Config, draft: Recipe) -> Recipe:
    """A recipe as a hosted trainer can keep it. Raises ``UsageError``, and ``ConfigError`` where the trainer's key is missing."""
    from clawback.extensions.hosted.hosted_training import recipe_for

    where(home, settings)
    kept = recipe_for(draft)
    return dataclasses.replace(
        kept, conditions=dataclasses.replace(kept.conditions, hosted=settings.hosted.url)
    )


def where(home: Home, settings: Config) -> Where:
    """The trainer that the settings name. Raises ``ConfigError`` where its key is missing, or would go over the network in the clear."""
    from clawback.extensions.hosted.hosted_training import Where
    from clawback.extensions.hosted.request_journal import Cap
    from clawback.extensions.hosted.trainer_records import Prices

    given = settings.hosted
    address = urlsplit(given.url)
    if address.scheme != "https" and address.hostname not in LOOPBACK:
        raise ConfigError(
            f"[hosted] url is {given.url}: over plain http the key and what you wrote could be read on the way. Use https, or a tunnel to this machine."
        )
    fireworks = given.provider == "fireworks"
    if fireworks and not (given.shape.startswith("accounts/") and given.model.startswith("accounts/")):
        raise ConfigError(
            "Fireworks names a base and what to train it on: `clawback config set hosted.model accounts/fireworks/models/NAME` and "
            "`clawback config set hosted.shape accounts/fireworks/trainingShapes/NAME`."
        )
    name = hosted_key(settings)
    key = os.environ.get(name, "")
    if not key and address.hostname in LOOPBACK:
        key = secret(home.root / HOSTED_KEY_FILE)  # our own stand-in takes it
    if not key:
        raise ConfigError(
            f"{name} is not set: put the key for {given.url} into it, or name another variable with "
            "`clawback config set hosted.key_env NAME`."
        )
    prices = Prices(given.price_train, given.price_prefill, given.price_sample, given.price_hour)
    return Where(
        given.url,
        key,
        given.model or settings.model.base,
        given.save_every,
        given.timeout,
        shape=given.shape if fireworks else "",
        cap=Cap(given.max_tokens, given.max_money, prices),
    )


def present(home: Home, settings: Config, algorithm: str = "auto") -> None:
    """Before a run begins. Raises ``HostedError`` where nothing answers, or the key is refused; ``ConfigError`` as ``where``; ``UsageError`` for an
    algorithm that cannot be hosted."""
    from clawback.extensions.hosted import hosted_training, trainer_http

    hosted_training.hosted_name(algorithm)
    place = where(home, settings)
    trainer_http.present(place.url, ACCOUNTS if place.shape else CAPABILITIES, place.key)


def train(home: Home, settings: Config, run: Run, inputs: TrainingRun) -> TrainResult:
    """The run, over there; its adapter comes back into ``out``. Raises ``TrainingError``; ``Interrupted`` where the settings have changed since it was
    begun: what was paid for must not be lost for that."""
    from clawback.extensions.hosted import hosted_training

    begun_at = inputs.recipe.conditions.hosted
    if begun_at != settings.hosted.url:
        now = settings.hosted.url or "empty"
        raise Interrupted(
            f"Run {run.id} was begun at {begun_at}, and [hosted] url is {now} now: set it back to go on."
        )
    try:
        place = where(home, settings)
    except ConfigError as error:
        raise Interrupted(str(error)) from error
    return hosted_training.train(inputs, place)
