"""How fast a model is: measured in work and not by the clock, within a limit, and once a machine."""

import dataclasses
import itertools
import json
from types import SimpleNamespace

import pytest
import torch

from clawback import engine
from clawback.policy import throughput
from clawback.policy.throughput import Speed
from clawback.sampling.batched_sampler import Sampled


class Clockwork:
    """A policy whose work takes so long by a clock of its own; the first time of each kind takes a minute more."""

    engine = "torch"
    device = torch.device("cpu")

    def __init__(self, read=500.0, step=0.16, first=60.0, load=1.0, context=2048):
        self.info = SimpleNamespace(context=context, base="clockwork", revision="1")
        self.model = SimpleNamespace(parameters=lambda: iter([torch.zeros(1)]))
        self.read, self.step, self.first, self.load = read, step, first, load
        self.work = self.wall = 0.0
        self.known, self.calls = set(), 0

    def _takes(self, kind, seconds):
        self.calls += 1
        seconds += self.first * (kind not in self.known)
        self.known.add(kind)
        self.work += seconds
        self.wall += seconds * self.load

    def sample(self, prompts, settings):
        kind = "draw" if settings.stop is not None else "answers"
        self._takes(kind, sum(map(len, prompts)) / self.read + self.step * settings.max_tokens)
        return [[Sampled(tuple(range(5 + i)), (), i > 0)] for i in range(len(prompts))]

    def scorer(self, texts):
        self._takes("read", sum(len(one.prompt) + len(one.response) for one in texts) / self.read)


@pytest.fixture
def timed(monkeypatch):
    def use(policy):
        monkeypatch.setattr(throughput, "clock", lambda device: (policy.wall, policy.work))
        return policy

    return use


PROMPTS = [(1, 2, 3), (4, 5)]


def test_what_only_the_first_time_takes_is_no_part_of_a_speed(timed):
    speed = throughput.measure(timed(Clockwork()), PROMPTS, limit=1e9)
    assert speed.read == pytest.approx(500)
    assert speed.draw == pytest.approx(32 / 0.16)


@pytest.mark.parametrize("load", [1.0, 3.0, 40.0])
def test_other_programs_change_no_speed(timed, load):
    speed = throughput.measure(timed(Clockwork(load=load)), PROMPTS, limit=1e9)
    assert (speed.read, speed.draw) == pytest.approx((500, 32 / 0.16))


@pytest.mark.parametrize("slower", [1, 20, 400])
@pytest.mark.parametrize("load", [1.0, 20.0])
def test_nothing_is_begun_after_the_limit(timed, slower, load):
    """However slow model and machine are, there is a speed, and little more than the smallest pieces were tried beyond the limit."""
    policy = timed(Clockwork(500 / slower, 0.16 * slower, first=0.0, load=load))
    speed = throughput.measure(policy, PROMPTS, limit=45)
    assert min(speed.draw, speed.read, speed.train) > 0
    smallest = load * slower * (2 * 128 / 500 + 3 * (32 / 500 + 0.16 * 9))
    assert policy.wall <= 45 + smallest


def test_a_difference_of_noisy_times_gives_no_absurd_speed(monkeypatch):
    """Drawing a token is never faster than reading one."""
    policy = Clockwork(step=0.0, first=0.0)
    noise = itertools.cycle((0.0, 0.3, 0.1))
    monkeypatch.setattr(throughput, "clock", lambda device: (policy.wall, policy.work + next(noise)))
    speed = throughput.measure(policy, PROMPTS, limit=1e9)
    assert 0 < speed.draw <= speed.read


def test_progress_has_a_figure_from_its_second_step_on(timed):
    told = []
    throughput.measure(timed(Clockwork()), PROMPTS, told.append, limit=1e9)
    assert [one["step"] for one in told] == list(range(len(told)))
    assert told[-1]["step"] == told[-1]["steps"]
    assert all("read_speed" in one for one in told[2:])


def test_its_own_answers_are_as_long_as_they_are_and_those_that_do_not_end_take_the_room(timed):
    length = throughput.answer_tokens(timed(Clockwork()), PROMPTS, 100, Speed(200, 500, 200))
    assert length == pytest.approx((100 + sum(5 + i for i in range(1, 8))) / 8)
    assert throughput.answer_tokens(timed(Clockwork()), PROMPTS, 100, Speed(0.5, 500, 200)) == 0


def test_a_speed_is_measured_once_a_model_and_machine(timed, tmp_path):
    file, policy = tmp_path / "speeds.json", timed(Clockwork())
    first = throughput.speed_of(policy, PROMPTS, 100, file)
    calls = policy.calls
    assert throughput.speed_of(policy, PROMPTS, 100, file) == first
    assert policy.calls == calls
    policy.info.revision = "2"
    throughput.speed_of(policy, PROMPTS, 100, file)
    assert policy.calls > calls
    assert len(json.loads(file.read_text())) == 2


@pytest.mark.parametrize(
    "content", ["", "[1]", '{"a": 3}', "\x00\x01", "KEY: []", 'KEY: {"draw": 0, "read": 1, "train": 1}']
)
def test_a_file_that_cannot_be_read_is_measured_anew(timed, tmp_path, content):
    file, policy = tmp_path / "speeds.json", timed(Clockwork())
    if content.startswith("KEY: "):
        content = json.dumps({throughput.name(policy): json.loads(content[5:])})
    file.write_text(content)
    speed = throughput.speed_of(policy, PROMPTS, 100, file)
    assert speed.draw > 0
    assert Speed(**json.loads(file.read_text())[throughput.name(policy)]) == speed


@pytest.mark.parametrize(("threads", "work"), [(1, 8.0), (2, 5.0)])
def test_work_is_counted_in_processor_time(monkeypatch, threads, work):
    """That of the thread that computes, which takes part in everything; more where its helpers did more than their share."""
    times = SimpleNamespace(perf_counter=lambda: 100.0, thread_time=lambda: 5.0, process_time=lambda: 8.0)
    monkeypatch.setattr(throughput, "time", times)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert throughput.clock(torch.device("cpu")) == (100.0, work)


def test_a_device_is_waited_for_and_timed_by_the_clock(monkeypatch):
    waited = []
    monkeypatch.setattr("clawback.devices.wait", waited.append)
    wall, work = throughput.clock(torch.device("mps"))
    assert wall == work
    assert waited == [torch.device("mps")]
    assert throughput.load(torch.device("mps")) == 1.0


@pytest.mark.parametrize("busy", [1.0, 40.0])
def test_how_busy_the_machine_is(monkeypatch, busy):
    ticks = itertools.count()

    def clock(device):
        work = 0.03 * next(ticks)
        return busy * work, work

    monkeypatch.setattr(throughput, "clock", clock)
    assert throughput.load(torch.device("cpu")) == pytest.approx(busy)


def test_a_real_model_is_measured_and_left_as_it_was():
    policy = engine.load("embedded")
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    speed = throughput.speed_of(policy, [tuple(policy.chat.prompt([{"role": "user", "content": "Hi"}]))], 64)
    assert all(value > 0 for value in dataclasses.astuple(speed))
    assert all((a == b).all() for a, b in zip(before, policy.model.parameters(), strict=True))
    assert not policy.has_adapter


@pytest.mark.parametrize(("speed", "draws"), [(10.0, 3), (1000.0, 4)])
def test_a_sampler_elsewhere_is_measured_by_the_clock_with_more_rows_where_it_is_fast(
    speed, draws, timed, tmp_path, monkeypatch
):
    policy, file = timed(Clockwork()), tmp_path / "speeds.json"
    policy.sampling = SimpleNamespace(truncates=False)
    now, rows = [0.0], []

    def sampler(policy, prompts, chance, merge):
        rows.append(len(prompts))
        tokens = chance.first.shape[2]
        now[0] += len(prompts) * tokens / speed + (60.0 if len(rows) == 1 else 0.0)  # it starts
        return [[Sampled((7,) * tokens, (0.0,) * tokens, False)] for _ in prompts]

    sampler.name = "vLLM"
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: now[0])
    assert throughput.sampler_speed(sampler, policy, PROMPTS, file) == pytest.approx(speed)
    assert len(rows) == draws
    assert throughput.sampler_speed(sampler, policy, PROMPTS, file) == pytest.approx(speed)
    assert len(rows) == draws
    assert throughput.stored_figures(file, throughput.name(policy)) == {}
