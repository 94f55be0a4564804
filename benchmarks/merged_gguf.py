"""A merged GGUF file of a trained version in the real llama.cpp: whether its answers are liked as often as ours, and its size.

A simulated person (``evidence.py``) edits answers of the base, a short run learns the pairs, and ``clawback versions publish gguf`` writes the file. llama.cpp
(``llama-cpp-python``, built once in a venv of its own: cmake and a compiler, some minutes) answers held-out prompts with the original file and with the merged one, with the
same prompt tokens and sampling settings as ours.

    python -m benchmarks merged_gguf --model smollm2
    python -m benchmarks merged_gguf --model FILE.gguf --home FOLDER   # the version and the converted model are kept in FOLDER
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks import evidence
from benchmarks.peers import venvs
from benchmarks.real import DATA, mean, user

PEER = Path(__file__).with_name("peers") / "llama_answers.py"
SEED = 77


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks merged_gguf", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", default="smollm2", help="smollm2, or a GGUF file")
    parser.add_argument("--prompts", type=Path, default=DATA, help="JSONL: `prompt`, `response`, `model`")
    parser.add_argument("--edits", type=int, default=24)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--own", type=int, default=64, help="prompts that the base answers for the person")
    parser.add_argument("--held", type=int, default=64, help="prompts that are compared")
    parser.add_argument("--rows", type=int, default=16, help="answers that llama.cpp draws at once")
    parser.add_argument("--home", type=Path, help="CLAWBACK_HOME of the benchmark (default: one for a while)")
    options = parser.parse_args(argv)
    options.other, options.read = "", False  # of ``evidence``: nobody else's answers
    if not options.prompts.is_file():
        print(f"There is no {options.prompts}: name a file with --prompts.", file=sys.stderr)
        return 2
    place: Any = nullcontext(options.home) if options.home else tempfile.TemporaryDirectory()
    with place as folder:
        figures = compare(options, Path(folder).resolve())
    print(json.dumps(figures, indent=2))
    print(table(figures))
    return 0


def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train, publish, and ask both programs. ``folder``: the home."""
    from clawback.models import local_models

    os.environ["CLAWBACK_HOME"] = str(folder)
    world = evidence.World(options)
    origin = local_models.source(options.model)
    if origin is None:
        raise SystemExit(f"{options.model} is no GGUF file.")
    python = venvs.python_of("llama-cpp", venvs.cache_folder())
    started = time.process_time()
    adapter = train(world, options, folder / "run")
    trained = time.process_time() - started
    merged = publish(options, folder, adapter)
    own = [one for [one] in world.policy.generate(asked(world), max_tokens=evidence.ROOM, seed=SEED)]
    drawn = {
        ("ours", "base"): [one["text"] for one in world.base_held],
        ("ours", "version"): [one.text for one in own],
        ("llama.cpp", "base"): llama_answers(python, world, origin.path, options.rows),
        ("llama.cpp", "version"): llama_answers(python, world, merged, options.rows),
    }
    return {
        "model": options.model,
        "train_cpu_seconds": round(trained),
        "bytes": [origin.path.stat().st_size, merged.stat().st_size],
        "answers": len(world.held),
        "shifts": shifts(python, world, (origin.path, merged), [list(one.ids) for one in own]),
        "rows": [
            {"program": program, "policy": policy, **shares(answers)}
            for (program, policy), answers in drawn.items()
        ],
    }


def train(world: evidence.World, options: argparse.Namespace, out: Path) -> Path:
    """DPO on pairs of an answer and its edit; the policy keeps the adapter. Its folder."""
    from clawback import engine

    samples, _ = world.feedback(f"edits:{options.edits}", 0)
    overrides = {"steps": options.steps, "learning_rate": options.learning_rate}
    recipe = engine.recipe(world.policy.info, algorithm="dpo", overrides=overrides)
    return Path(engine.train(world.policy, samples, recipe, seed=0, out=out).path)


def publish(options: argparse.Namespace, folder: Path, adapter: Path) -> Path:
    """The adapter becomes the live version of the home, and the product's own command writes the file."""
    from clawback import config, store
    from clawback.paths import Home
    from clawback.release import adoption, version_registry

    home = Home(folder)
    config.save(home.config, {"model": {"base": options.model}})
    with store.connect(home.database) as db:
        version = adoption.adopt(db, home, adapter, config.load(home.config), same_base=True)
        version_registry.go_live(db, home, version.number)
    out = folder / f"version-{version.number}.gguf"
    command = [sys.executable, "-m", "clawback", "versions", "publish", "gguf", "--output", str(out)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return out


def shifts(
    python: Path, world: evidence.World, files: tuple[Path, Path], answers: list[list[int]]
) -> dict[str, float]:
    """How much likelier the version has become to give its answers, nats a token: by llama.cpp (original and merged file) and by ours, answer by answer.

    Answers that are drawn differ by chance; what the two programs make of the same tokens does not. ``correlation`` and ``slope`` (theirs on ours) are 1 where the
    file is the version; ``base_gap`` is the mean distance before anything is learned: of the programs, and of the 4 bits.
    """
    import numpy as np

    lengths = np.array([len(ids) for ids in answers])
    before, after = (np.array(llama_job(python, world, file, answers=answers)) / lengths for file in files)
    version = np.array([float(one.mean()) for one in world.policy.logprobs(asked(world), answers)])
    with world.policy.base():
        base = np.array([float(one.mean()) for one in world.policy.logprobs(asked(world), answers)])
    ours, theirs = version - base, after - before
    return {
        "ours": round(float(ours.mean()), 3),
        "llama.cpp": round(float(theirs.mean()), 3),
        "correlation": round(float(np.corrcoef(ours, theirs)[0, 1]), 3),
        "slope": round(float(np.polyfit(ours, theirs, 1)[0]), 3),
        "base_gap": round(float(np.abs(before - base).mean()), 3),
        "version_gap": round(float(np.abs(after - version).mean()), 3),
    }


def llama_job(python: Path, world: evidence.World, file: Path, **more: Any) -> list[Any]:
    """What the peer's script prints of a file: answers as ours are drawn, or of given ``answers`` the log-probs."""
    from clawback.sampling import stop_ids

    policy, sampling = world.policy, world.policy.sampling
    prompts = [policy.chat.prompt(messages, policy.max_prompt) for messages in asked(world)]
    job = {
        "prompts": prompts,
        "max_tokens": evidence.ROOM,
        "rows": 1,
        "temperature": sampling.scale,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": SEED,
        "stop": stop_ids(policy.model, policy.chat.end_id),
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as work:
        json.dump(job | more, work)
        work.flush()
        done = subprocess.run([python, str(PEER), str(file), work.name], stdout=subprocess.PIPE, check=True)
    return list(json.loads(done.stdout))


def llama_answers(python: Path, world: evidence.World, file: Path, rows: int) -> list[str]:
    """What llama.cpp answers with a file, cut as ours are where a next speaker begins."""
    from clawback.sampling import Sampled, completion, stop_ids, until_speaker

    policy, stop = world.policy, stop_ids(world.policy.model, world.policy.chat.end_id)
    prompts = [policy.chat.prompt(messages, policy.max_prompt) for messages in asked(world)]
    answers = [
        Sampled(tuple(ids), (0.0,) * len(ids), ids[-1] in stop)
        for ids in llama_job(python, world, file, rows=rows)
    ]
    cut = until_speaker(policy.chat.speaker, answers)
    return [completion(policy.chat, prompt, one).text for prompt, one in zip(prompts, cut, strict=True)]


def asked(world: evidence.World) -> list[Any]:
    return [user(prompt) for prompt in world.held]


def shares(answers: list[str]) -> dict[str, float]:
    """The share that the person likes, its standard error, and the words of an answer."""
    liked = mean(map(evidence.likes, answers))
    return {
        "liked": liked,
        "error": round(math.sqrt(liked * (1 - liked) / len(answers)), 3),
        "words": mean(len(text.split()) for text in answers),
    }


def table(figures: dict[str, Any]) -> str:
    lines = ["| program | policy | liked | standard error | words |", "| --- | --- | --- | --- | --- |"]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in figures["rows"]]
    moved = figures["shifts"]
    lines += ["", "Of the version's own answers, nats a token: " + ", ".join(f"{name} {value}" for name, value in moved.items())]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
