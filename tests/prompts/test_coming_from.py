"""Every Python block of docs/coming-from/rlprompt.md runs as it stands there, but for ports."""

import re
import socket
import threading
import time
from pathlib import Path

import pytest

import clawback

PAGE = Path(__file__).parents[2] / "docs/coming-from/rlprompt.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
SEED_NAMES = ["Prompt", "PromptHistory", "RefinementLoop", "PromptRefinementEnv", "ScalarReward", "HybridReward", "MockLLM", "LLMResponse",
              "OpenAIBackend", "LocalLLMBackend", "PromptGenome", "Population", "RandomActor", "MockCritic", "TrainingLoop", "TrainingConfig",
              "HybridOptimizationFlow", "EvolutionaryParams", "ActorCriticParams", "HumanFeedbackCollector", "launch_standalone", "GPROOptimizer",
              "guided_mutation"]  # fmt: skip


@pytest.mark.parametrize("name", SEED_NAMES)
def test_every_name_of_the_readme_is_there(name):
    import clawback.prompts

    assert getattr(clawback.prompts, name)


@pytest.mark.parametrize("number", [i for i, block in enumerate(BLOCKS) if "Collector" not in block])
def test_the_block_runs(number, model_server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.url)
    block = BLOCKS[number].replace(
        'LocalLLMBackend(model="local-model")',
        f'LocalLLMBackend(model="local-model", base_url="{model_server.url}")',
    )
    namespace = {}
    for earlier in BLOCKS[: number if number == 1 else 0]:
        exec(earlier, namespace)
    exec(block, namespace)
    if "OpenAIBackend" in block or "LocalLLMBackend" in block:
        assert namespace["resp"].text == "Better."


def test_the_collectors_block_runs(tmp_path, monkeypatch):
    """With its server and a person, who rates what comes."""
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    block = next(b for b in BLOCKS if "Collector" in b).replace("7860", str(port))
    home = clawback.home()

    def rates():
        for _ in range(600):
            if home.database.exists():
                with clawback.connect(home.database) as store:
                    if turns := store.turns():
                        clawback.score(store, turns[0].id, 10)
                        return
            time.sleep(0.1)

    person = threading.Thread(target=rates)
    person.start()
    namespace = {}
    exec(block, namespace)
    person.join()
    assert namespace["score"] == 1.0
    assert namespace["collector"]._server is None


def test_the_librarys_page_runs_too():
    page = (PAGE.parents[1] / "prompts-library.md").read_text("utf-8")
    for block in re.findall(r"```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(block, {})
