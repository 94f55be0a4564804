"""Single answers for many threads at once, drawn by a cluster: what a judge asks for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from clawback.extensions.scale.adapters import AdapterCrew, lost, published
from clawback.extensions.scale.dispatch import Dispatcher, Unit
from clawback.extensions.scale.ray_sampler import cut
from clawback.policy import gap
from clawback.sampling import Chance, DrawSettings, Sampled

if TYPE_CHECKING:
    from clawback.policy import Policy


class SharedDraw:
    """Call it from any thread. Workers are those of ``Drawer``; what nobody else is there for, this process draws."""

    def __init__(
        self,
        crew: AdapterCrew,
        policy: Policy,
        tell: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self.crew, self.policy, self.tell = crew, policy, tell
        self.adapter = published(policy, crew)
        self.here = 0
        """Answers that this process drew."""
        self._asked: queue.SimpleQueue[tuple[Unit, Future[Sampled]] | None] = queue.SimpleQueue()
        self._heard: set[str] = set()
        """Workers of which an answer was compared with the policy's own log-probs."""
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)
        self._thread.start()

    def __call__(self, prompt: Sequence[int], max_tokens: int, seed: int) -> Sampled:
        """The answer that ``policy.sample`` gives with this seed, up to rounding. Raises ``TrainingError`` where a worker has another model."""
        chance = Chance.of_seed(1, 1, max_tokens, self.policy.sampling.truncates, seed)
        [unit], _ = cut(self.policy, [prompt], chance, False, self.adapter, 1)
        answer: Future[Sampled] = Future()
        self._asked.put((unit, answer))
        return answer.result()

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()
        self.crew.close()

    def __enter__(self) -> SharedDraw:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        dispatcher = Dispatcher(self.crew, self._draw_here)
        waiting: dict[str, tuple[Unit, list[Future[Sampled]]]] = {}
        while self._take(dispatcher, waiting):
            before = self.crew.lost
            try:
                for name, result in dispatcher.step().items():
                    unit, answers = waiting[name]
                    sampled = self._held(unit, result)
                    for answer in answers:
                        answer.set_result(sampled)
                    del waiting[name]
            except Exception as error:  # for whoever waits: this thread has nobody to tell
                for _, answers in waiting.values():
                    for answer in answers:
                        answer.set_exception(error)
                waiting.clear()
                dispatcher = Dispatcher(self.crew, self._draw_here)
            if (news := lost(self.crew, before)) is not None:
                self.tell(news)

    def _take(self, dispatcher: Dispatcher, waiting: dict[str, tuple[Unit, list[Future[Sampled]]]]) -> bool:
        """What was asked since: waits for it where there is nothing else to do. False: it is over."""
        while dispatcher.idle or not self._asked.empty():
            if (asked := self._asked.get()) is None:
                return False
            unit, answer = asked
            waiting.setdefault(unit.id, (unit, []))[1].append(answer)
            dispatcher.add([unit])
        return True

    def _held(self, unit: Unit, result: dict[str, Any]) -> Sampled:
        [[found]] = result["answers"]
        if result["by"] and result["by"] not in self._heard:
            ids, logprobs, _ = found
            gap(self.policy, unit.work["prompts"][0], ids, logprobs, result["by"])
            self._heard.add(result["by"])
        return Sampled(*found)

    def _draw_here(self, unit: Unit) -> dict[str, Any]:
        self.here += 1
        work = unit.work
        chance = Chance(*work["chance"])
        tokens = chance.first.shape[-1]
        groups = self.policy.sample(work["prompts"], DrawSettings(max_tokens=tokens, seed=chance))
        return {"by": "", "answers": [[(one.ids, one.logprobs, one.finished) for one in g] for g in groups]}
