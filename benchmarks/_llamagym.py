"""The side of ``python -m benchmarks gym_llamagym`` that runs in LlamaGym's own Python: makes the models, plays and learns Blackjack and FrozenLake.

Its Python needs llamagym 0.1.1 with transformers 4.37.2 (``gym_llamagym`` says how). Nothing of Clawback is imported here.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'system' %}<s>[INST] {{ m['content'] }}\n{% elif m['role'] == 'user' %}"
    "{% if loop.index0 != 1 %}<s>[INST] {% endif %}{{ m['content'] }} [/INST]{% else %} {{ m['content'] }} </s>{% endif %}{% endfor %}"
)
SYSTEM = (
    "You play blackjack. Each turn you see your sum, the dealer's card and whether you hold a usable ace. "
    'Write "Action: 0" to stand or "Action: 1" to take a card.'
)
SIZES = {"0.14 M": (64, 2, 4), "2.8 M": (256, 4, 4)}
"""Hidden size, layers, heads: Llamas with random weights, as in the facts of an earlier measurement."""


def model(folder: Path, size: str) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=432, special_tokens=["<pad>", "<s>", "</s>"], initial_alphabet=alphabet
    )
    core.train_from_iterator(
        [SYSTEM, *(f"You: {n}. Dealer: {n % 10 + 1}. You have no ace." for n in range(4, 22))] * 20, trainer
    )
    words = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE
    )
    hidden, layers, heads = SIZES[size]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=432, hidden_size=hidden, intermediate_size=hidden * 5 // 2, num_hidden_layers=layers, num_attention_heads=heads,
        max_position_embeddings=2048, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    made = LlamaForCausalLM(config)
    made.save_pretrained(folder)
    words.save_pretrained(folder)


def play(folder: Path, episodes: int) -> dict[str, Any]:
    """The published Blackjack example, on a CPU and without 8 bits and wandb: LoRA of rank 16, 8 turns a batch, its other defaults."""
    import gymnasium as gym
    import torch
    from llamagym import Agent
    from peft import LoraConfig
    from transformers import AutoTokenizer
    from trl import AutoModelForCausalLMWithValueHead

    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Blackjack(Agent):
        def get_system_prompt(self) -> str:
            return SYSTEM

        def format_observation(self, observation: Any) -> str:
            total, dealer, ace = observation
            return f"You: {total}. Dealer: {dealer}. You have {'an' if ace else 'no'} ace."

        def extract_action(self, response: str) -> int:
            found = re.search(r"Action: ([01])\b", response)
            return int(found.group(1)) if found else 0  # as the example: what cannot be read stands

    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, bias="none", task_type="CAUSAL_LM")
    base = AutoModelForCausalLMWithValueHead.from_pretrained(str(folder), peft_config=lora)
    words = AutoTokenizer.from_pretrained(str(folder))
    generate = {
        "max_new_tokens": 32,
        "do_sample": True,
        "top_p": 0.6,
        "top_k": 0,
        "temperature": 0.9,
        "pad_token_id": 0,
    }
    agent = Blackjack(base, words, "cpu", generate, {"batch_size": 8, "mini_batch_size": 8})
    env = gym.make("Blackjack-v1", natural=False, sab=False)
    begun, turns, updates = time.process_time(), 0, 0
    for episode in range(episodes):
        observation, _ = env.reset(seed=42 + episode)
        done = False
        while not done:
            action = agent.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            agent.assign_reward(reward)
            turns += 1
            done = terminated or truncated
        updates += bool(agent.terminate_episode())
    cpu = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"episodes": episodes, "turns": turns, "updates": updates, "cpu_seconds": cpu, "peak_mb": peak}


def learn(folder: Path, episodes: int, seed: int, rate: float) -> dict[str, Any]:
    """FrozenLake by the model that is taught the form of a reply and nothing of the map: its returns, in order.

    As the published examples, but for a temperature of 1 and no top-p, so that all directions are tried, and a learning rate; 40 turns an episode.
    """
    import gymnasium as gym
    import torch
    from llamagym import Agent
    from peft import LoraConfig
    from trl import AutoModelForCausalLMWithValueHead

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    ways = ("left", "down", "right", "up")

    class Lake(Agent):
        def get_system_prompt(self) -> str:
            return ""

        def format_observation(self, observation: Any) -> str:
            row, column = divmod(int(observation), 4)
            return f"{'abcd'[row]}{column + 1}"

        def extract_action(self, response: str) -> int:
            word = (response.split() or [""])[-1]
            # As in the published examples, what cannot be read is an action, too.
            return ways.index(word) if word in ways else 0

    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, bias="none", task_type="CAUSAL_LM")
    base = AutoModelForCausalLMWithValueHead.from_pretrained(str(folder), peft_config=lora)
    words = inst_tokenizer(folder)
    generate = {"max_new_tokens": 3, "do_sample": True, "top_p": 1.0, "top_k": 0, "temperature": 1.0, "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
    agent = Lake(
        base, words, "cpu", generate, {"batch_size": 16, "mini_batch_size": 16, "learning_rate": rate}
    )
    env = gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=40)
    begun, returns = time.process_time(), []
    for episode in range(episodes):
        observation, _ = env.reset(seed=1000 * seed + episode)
        total, done = 0.0, False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            agent.assign_reward(reward)
            total += float(reward)
            done = terminated or truncated
        agent.terminate_episode()
        returns.append(total)
    return {"returns": returns, "cpu_seconds": time.process_time() - begun}


def inst_tokenizer(folder: Path) -> Any:
    """The model's tokenizer, with its two marks of who speaks called ``[INST]`` and ``[/INST]``: LlamaGym knows no others."""
    from transformers import PreTrainedTokenizerFast

    told = json.loads((folder / "tokenizer.json").read_text())
    names = {"<|user|>": "[INST]", "<|assistant|>": "[/INST]"}
    for token in told["added_tokens"]:
        if token["content"] in names:
            token |= {"content": names[token["content"]], "special": False}
    told["model"]["vocab"] = {names.get(word, word): i for word, i in told["model"]["vocab"].items()}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(told, file)
        file.flush()
        made = PreTrainedTokenizerFast(tokenizer_file=file.name, pad_token="<|pad|>", eos_token="<|end|>", unk_token="<|unknown|>", clean_up_tokenization_spaces=False)  # fmt: skip
    made.chat_template = (
        "{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST] "
        "{% elif m['role'] == 'assistant' %}{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
    )
    return made


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "make":
        model(where, sys.argv[3])
    elif what == "learn":
        print(json.dumps(learn(where, int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))))
    else:
        print(json.dumps(play(where, int(sys.argv[3]))))
