"""The training loop over its seam: the guards, the schedule and what a checkpoint holds, whatever learner has the weights."""

import dataclasses
import math

import pytest
import torch

from clawback import engine
from clawback.errors import Stopped
from clawback.learning.training import plan_for
from clawback.rl import algorithms
from clawback.scoring.logprobs import Scored
from clawback.templates.chat_tokens import Encoded
from clawback.trainer import training_loop
from clawback.trainer.examples import Shared, TrainingExample, pack
from clawback.trainer.run import TrainingRun
from clawback.trainer.torch_learner import TorchLearner
from clawback.trainer.training_loop import LoopSettings, fit
from tests.engine.test_train import make_samples, recipe

FAR = Encoded((1, 2), (3,))


class Source:
    """One example a step, of the reward of that step."""

    critic = None

    def __init__(self, rewards, fresh=True):
        self.rewards, self.fresh, self.steps = rewards, fresh, len(rewards)

    def examples(self, step):
        nothing = torch.zeros(1)
        return [TrainingExample(FAR, 1.0, old=nothing, ref=nothing, reward=self.rewards[step])]

    def state(self):
        return {}

    def restore(self, state):
        pass


class CountingLearner:
    """Weights that are a number of steps, ``drift`` nats further from the base after each. They are kept at every ``save_every``-th step."""

    def __init__(self, drift=0.0, save_every=1):
        self.drift, self.save_every = drift, save_every
        self.weights = self.good = 0
        self.rates, self.seen_rates, self.pauses = [1.0], [], []

    def score(self, examples):
        # The drift of a log-prob that is d below the base's is d + exp(-d) - 1.
        return Scored(torch.full((len(examples),), -self.weights * self.drift), (1,) * len(examples))

    def backward(self, examples, algorithm, kl_scale):
        distance = self.weights * self.drift
        return {"loss": 0.0, "drift": distance + math.exp(-distance) - 1}

    def step(self, rates):
        self.seen_rates.append(rates[0])
        self.weights += 1
        return {}

    def remember(self, steps):
        if self.weights % self.save_every == 0:
            self.good = self.weights

    def restore(self):
        self.weights = self.good
        return self.good

    def save(self, state, *, pause=False):
        self.pauses.append(pause)
        return {**state, "weights": self.weights}

    def load(self, state):
        self.weights = state["weights"]
        return state


def run(learner, rewards=(0.0,) * 8, callbacks=(), **settings):
    algorithm = algorithms.make("reinforce", {})
    return fit(learner, Source(rewards), algorithm, LoopSettings(1.0, **settings), callbacks)


@pytest.mark.parametrize("save_every", [1, 3])
def test_a_drift_beyond_its_limit_goes_back_to_weights_that_were_within_it(save_every):
    learner, alerts = CountingLearner(drift=0.5, save_every=save_every), []
    fitted = run(learner, max_drift=1.2, callbacks=[lambda p: alerts.append(p["phase"])])
    # After 4 steps the distance is 2 nats, the drift 1.14; after 5 it is 1.58.
    assert fitted.steps == learner.weights == 4 // save_every * save_every
    assert "drifted" in fitted.stopped
    assert alerts[-1] == "alert"


def test_the_last_step_is_measured_as_all_others_were():
    learner = CountingLearner(drift=0.5)
    fitted = run(learner, (0.0,) * 5, max_drift=1.2)
    assert fitted.stopped.startswith("after the last step")
    assert fitted.steps == learner.weights == 4


@pytest.mark.parametrize(
    ("limits", "steps"),
    [({"max_reward_drop": 0.5}, 7), ({"min_reward": 0.45}, 7), ({"min_reward": -1.0}, 10)],
)
def test_falling_rewards_of_fresh_answers_end_a_run(limits, steps):
    """The mean of four steps: 1, 1, 1, 0.75, 0.5, 0.25 and so on from the fourth."""
    fitted = run(CountingLearner(), (1.0,) * 6 + (0.0,) * 4, **limits)
    assert bool(fitted.stopped) == (steps < 10)
    assert fitted.steps == steps


def test_the_first_rates_rise_and_the_last_fall():
    learner = CountingLearner()
    run(learner, warm_up=2, decay=True)
    assert learner.seen_rates == [0.5, 1.0, *(1 - step / 8 for step in range(2, 8))]
    learner = CountingLearner()
    run(learner, warm_up=2)
    assert learner.seen_rates == [0.5] + [1.0] * 7


def test_a_stop_is_a_pause_and_the_run_goes_on_where_it_was(tmp_path):
    def stop(progress):
        if progress["step"] == 3:
            raise Stopped("enough")

    settings = {"checkpoint": tmp_path / "checkpoint.pt", "fingerprint": "it"}
    learner = CountingLearner()
    with pytest.raises(Stopped):
        run(learner, callbacks=[stop], **settings)
    assert learner.pauses == [True]
    again = CountingLearner()
    fitted = run(again, **settings)
    assert again.weights == fitted.steps == 8
    assert len(again.seen_rates) == 5
    assert len(fitted.history) == 8


def test_where_the_newest_weights_are_lost_the_loop_goes_on_from_those_that_are_left(tmp_path):
    class Forgetful(CountingLearner):
        def load(self, state):
            self.weights = state["earlier"]["weights"]
            return state["earlier"]

        def save(self, state, *, pause=False):
            return {**super().save(state), "earlier": {**state, "step": 2, "weights": 2, "history": []}}

    settings = {"checkpoint": tmp_path / "checkpoint.pt", "fingerprint": "it", "checkpoint_seconds": 0.0}
    run(Forgetful(), **settings)
    assert training_loop.read_checkpoint(settings["checkpoint"], "it")["step"] == 7
    again = Forgetful()
    assert run(again, **settings).steps == 8
    assert len(again.seen_rates) == 6


def test_the_weights_are_those_of_a_plain_loop_of_pytorch(folders, tmp_path):
    """The learner in this process: the same bits as by AdamW over whole batches, written down here once more."""
    policy, samples = engine.load(str(folders("llama"))), make_samples()
    settings = dataclasses.replace(
        recipe(policy, "reinforce", steps=4, learning_rate=1e-3), max_drift=math.inf
    )
    engine.train(policy, samples, settings, seed=3, out=tmp_path)
    ours = [p.detach().clone() for _, p in sorted(policy.model.named_parameters()) if p.requires_grad]

    policy = engine.load(str(folders("llama")))
    policy.attach(rank=settings.rank, alpha=settings.alpha, seed=3)
    plan = plan_for(TrainingRun(policy, samples, settings, seed=3))
    weights = [p for _, p in sorted(policy.model.named_parameters()) if p.requires_grad]
    before = [p.detach().clone() for p in weights]
    optimizer = torch.optim.AdamW(
        weights, lr=plan.rate or settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    for step in range(plan.source.steps):
        examples = plan.source.examples(step)
        scored = policy.scorer([example.encoded for example in examples])
        loss, _ = plan.algorithm.loss(pack(examples, scored, Shared.of(examples)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, settings.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
    assert any(not torch.equal(old, new) for old, new in zip(before, ours, strict=True))
    assert all(torch.equal(mine, plain) for mine, plain in zip(ours, weights, strict=True))


def test_a_learner_without_an_adapter_is_refused(folders):
    from clawback.errors import TrainingError

    with pytest.raises(TrainingError, match="no adapter"):
        TorchLearner(engine.load(str(folders("llama"))), LoopSettings(1.0))
