"""Does every causal architecture that transformers knows load, score, draw, train, come back and merge? One row each.

A tiny random model of each (``_family_models.py``) goes through: log-probs beside a full forward of one sequence at a time; greedy
answers beside transformers' own ``generate``; drawn answers, whose log-probs are scored again; the server's rows; two steps of
training; the adapter loaded again here and in PEFT; the weights merged. Everything in float32 on the CPU.

    python -m benchmarks families                        # all of them: some ten CPU minutes
    python -m benchmarks families --only gemma4_text,mamba
    python -m benchmarks families --slice 2/4            # the second quarter
    python -m benchmarks families --missing              # those that were not run yet, or failed
    python -m benchmarks families --page                 # write docs/families.md from what has been run
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._family_models import families, make

RESULTS, PAGE = Path("bench-results/families.json"), Path("docs/families.md")
CLOSE = 2e-3
"""Nats between two ways of computing the same log-prob in float32."""
TOKENS = 6


class Differs(Exception):
    """Two ways of computing the same thing do not agree."""


@dataclass
class Row:
    """One family: how far it came, and by which ways."""

    family: str
    architecture: str = ""
    verdict: str = ""
    """``ok``, ``refused`` in a sentence, ``failed`` at a step, or ``not made``: there is no tiny model of it."""
    step: str = ""
    draws: str = ""
    scores: str = ""
    note: str = ""
    seconds: float = 0.0


@dataclass
class Bench:
    """What the steps hand on: the folder, our policy, and transformers' own model."""

    folder: Path
    policy: Any = None
    stock: Any = None
    adapter: Path | None = None

    def samples(self) -> list[Any]:
        from clawback.records import Sample

        system = {"role": "system", "content": "Be brief."}
        user = {"role": "user", "content": "How do I boil an egg?"}
        return [
            Sample(1, (user,), "Eight minutes.", 1.0),
            Sample(2, (system, user), "I am sorry, but I cannot say that at all.", -1.0),
            Sample(3, (user, {"role": "assistant", "content": "Wait."}, user), "No.", 1.0),
        ]

    def encoded(self) -> list[Any]:
        return [self.policy.encode(sample) for sample in self.samples()]


def examine(family: str, folder: Path) -> Row:
    """Take a family through all steps. Nothing is raised."""
    from clawback.errors import ClawbackError

    row, started = Row(family), time.process_time()
    try:
        make(family, folder)
    except Exception as error:
        row.verdict, row.note = "not made", _sentence(error)
        return row
    bench = Bench(folder)
    try:
        for row.step, step in STEPS:
            step(bench, row)
        row.verdict, row.step = "ok", ""
    except ClawbackError as error:
        row.verdict, row.note = "refused", str(error).replace(str(folder), "…")
    except Exception as error:
        row.verdict, row.note = "failed", f"{_sentence(error)} {_where()}"
        if refusal := _refusal_of_init(bench):
            row.verdict, row.note = "refused", refusal.replace(str(folder), "…")
    row.seconds = round(time.process_time() - started, 1)
    return row


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0][:300]}"


def _where() -> str:
    """The last line of ours on the stack."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [
        frame for frame in frames if "/clawback/" in frame.filename and "site-packages" not in frame.filename
    ]
    return f"({Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""


def _reference(model: Any, encoded: Any, temperature: float = 1.0) -> Any:
    """[response] log-probs by a full forward of this sequence alone."""
    import torch

    ids = torch.tensor([[*encoded.prompt, *encoded.response]])
    with torch.no_grad():
        logits = (model(input_ids=ids, use_cache=False).logits[0].float() / temperature).log_softmax(-1)
    return logits[len(encoded.prompt) - 1 : -1].gather(1, torch.tensor(encoded.response)[:, None])[:, 0]


def _close(values: Sequence[Any], expected: Sequence[Any], what: str) -> None:
    apart = max(float((a - b).abs().max()) for a, b in zip(values, expected, strict=True))
    if not apart < CLOSE:
        raise Differs(f"{what} differ by {apart:.4f} nats")


# ------------------------------------------------------------------------------------------------------- steps


def _refusal_of_init(bench: Bench) -> str:
    """The sentence by which ``clawback init`` refuses the model; "" where it takes it."""
    from clawback.admin import proof
    from clawback.errors import ModelError

    try:
        proof.tried(bench.policy, {})
    except ModelError as error:
        return str(error)
    return ""


def load(bench: Bench, row: Row) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from clawback import engine
    from clawback.models.types import GREEDY

    bench.policy = engine.load(str(bench.folder), device="cpu")
    bench.policy.sampling = GREEDY
    row.architecture = bench.policy.info.architecture
    bench.stock = AutoModelForCausalLM.from_pretrained(bench.folder, dtype=torch.float32).eval()


def score(bench: Bench, row: Row) -> None:
    scorer, encoded = bench.policy.scorer, bench.encoded()
    row.scores = "packed" if scorer.packed else "alone" if scorer.alone else "padded"
    row.scores += "" if scorer.fused_head else ", whole head"
    import torch

    with torch.no_grad():
        values = scorer(encoded).split()
    _close(values, [_reference(bench.stock, one) for one in encoded], "log-probs in a batch and alone")


def draw(bench: Bench, row: Row) -> None:
    from clawback.models.types import GREEDY, Sampling

    policy, prompts = bench.policy, [one.prompt for one in bench.encoded()]
    row.draws = _way(policy)
    from clawback.sampling import DrawSettings

    answers = policy.sample(prompts, DrawSettings(max_tokens=TOKENS, sampling=GREEDY, stop=()))
    for prompt, [answer] in zip(prompts, answers, strict=True):
        expected = _generated(bench.stock, prompt)
        if list(answer.ids) != expected:
            raise Differs(f"greedy answers differ: {list(answer.ids)}, and transformers' {expected}")
    sampling = Sampling(0.9, top_p=0.95)
    groups = policy.sample(
        prompts, DrawSettings(samples=3, max_tokens=TOKENS, sampling=sampling, seed=1, stop=(7, 11, 13, 17))
    )
    for prompt, group in zip(prompts, groups, strict=True):
        for answer in group:
            expected = _reference(bench.stock, _Pair(prompt, answer.ids), 0.9)
            _close([_tensor(answer.logprobs)], [expected], "log-probs of drawn answers and of a full forward")


def _way(policy: Any) -> str:
    from clawback.sampling.decoder_choice import fits
    from clawback.sampling.ways import way_of

    if fits(policy.model, 64):
        return "lean decoder"
    way = way_of(policy.model)
    if way.padded:
        return "padded"
    return "anew" if not way.cached else "cached" if way.selects else "cached, all rows to the end"


def serve(bench: Bench, _: Row) -> None:
    """Rows of the server: they are read, go on, leave, and others join."""
    import torch

    from clawback.sampling.batched_sampler import rows_of
    from clawback.sampling.choose import SamplingRequest
    from clawback.sampling.decoder_choice import lean

    texts = [list(one.prompt) for one in bench.encoded()]
    with torch.no_grad():
        policy = bench.policy
        rows = rows_of(lambda: policy.model, lean(policy), expected=2, memory=True)
        rows.read([SamplingRequest(ids, 1) for ids in texts[:2]])
        rows.step([20, 21])
        rows.keep([1])
        under_way = [[*texts[1], 21]]
        if rows.open:
            rows.read([SamplingRequest(texts[2], 1)])
            under_way.append(texts[2])
        last = [22, 23][: len(under_way)]
        logits = rows.step(last).float().log_softmax(-1)
        for found, ids, token in zip(logits, under_way, last, strict=True):
            expected = (
                bench.stock(input_ids=torch.tensor([[*ids, token]]), use_cache=False)
                .logits[0, -1]
                .float()
                .log_softmax(-1)
            )
            _close([found], [expected], "the server's log-probs and those of a full forward")


def train(bench: Bench, row: Row) -> None:
    from clawback import engine

    policy = bench.policy
    settings = {"steps": 2, "batch": 3, "rank": 2, "alpha": 4, "learning_rate": 1e-2, "max_drift": 1e6}
    recipe = engine.recipe(policy.info, algorithm="reinforce", overrides=settings)
    result = engine.train(policy, bench.samples(), recipe, seed=1, out=bench.folder / "run")
    bench.adapter = Path(result.path)
    still = [name for name, p in policy.model.named_parameters() if "lora_B" in name and not bool(p.any())]
    if still:
        row.note = (
            f"no gradient reaches {len(still)} parts of the adapter, such as {still[0].split('.lora_B')[0]}"
        )


def come_back(bench: Bench, row: Row) -> None:
    """The adapter loaded again here, in PEFT, and merged into the weights by PEFT; what differs in PEFT alone is a note."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from clawback import engine
    from clawback.models.types import GREEDY

    encoded = bench.encoded()
    with torch.no_grad():
        expected = bench.policy.scorer(encoded).split()
    again = engine.load(str(bench.folder), adapter=bench.adapter, device="cpu")
    again.sampling = GREEDY
    with torch.no_grad():
        _close(again.scorer(encoded).split(), expected, "log-probs of the adapter loaded again")
    fresh = AutoModelForCausalLM.from_pretrained(bench.folder, dtype=torch.float32)
    wrapped = PeftModel.from_pretrained(fresh, bench.adapter).eval()
    try:
        _close([_reference(wrapped, one) for one in encoded], expected, "log-probs in PEFT")
        merged = wrapped.merge_and_unload().eval()
        _close(
            [_reference(merged, one) for one in encoded], expected, "log-probs of weights that PEFT merged"
        )
    except Differs as error:
        row.note = "; ".join(filter(None, (row.note, f"comes back right here, not in PEFT: {error}")))


STEPS = (
    ("load", load),
    ("score", score),
    ("draw", draw),
    ("serve", serve),
    ("train", train),
    ("come back", come_back),
)


@dataclass(frozen=True)
class _Pair:
    prompt: Sequence[int]
    response: Sequence[int]


def _tensor(values: Sequence[float]) -> Any:
    import torch

    return torch.tensor(values)


def _generated(model: Any, prompt: Sequence[int]) -> list[int]:
    """transformers' own greedy answer; where its ``generate`` does not work, the likeliest token of a full forward, again and again."""
    import torch
    from transformers import GenerationConfig

    ids = torch.tensor([list(prompt)])
    # In place of the family's own, which may force an end at the limit.
    model.generation_config = GenerationConfig(do_sample=False, max_new_tokens=TOKENS, pad_token_id=0)
    with torch.no_grad():
        try:
            return [
                int(t) for t in model.generate(ids, attention_mask=torch.ones_like(ids))[0, len(prompt) :]
            ]
        except Exception:
            for _ in range(TOKENS):
                following = model(input_ids=ids, use_cache=False).logits[0, -1].argmax()
                ids = torch.cat([ids, following[None, None]], 1)
            return [int(t) for t in ids[0, len(prompt) :]]


# -------------------------------------------------------------------------------------------------- the table


def page(rows: Sequence[Row]) -> str:
    """``docs/families.md``."""
    import transformers

    count = {
        verdict: sum(row.verdict == verdict for row in rows)
        for verdict in ("ok", "refused", "failed", "not made", "not run")
    }
    slow = sum(row.verdict == "ok" and row.draws not in ("lean decoder", "padded") for row in rows)
    lines = [
        "# Families of models",
        "",
        "<!-- Written by `python -m benchmarks families --page`. Do not edit. -->",
        "",
        f"Every causal architecture of transformers {transformers.__version__}, as a tiny random model on a CPU: {len(rows)} in all; "
        f"**{count['ok']} ok** ({slow} of them by the slow path), {count['refused']} refused in a sentence, {count['failed']} failed, "
        f"{count['not made']} without a tiny model, {count['not run']} not run yet. What *ok* means: the model loads; log-probs of several answers in one batch are those of each "
        "alone; greedy answers are those of transformers' own `generate`; drawn answers have the log-probs of a full forward; the server's rows do, too; "
        "it is trained; the adapter comes back here and, unless the row says otherwise, in PEFT, and merges. What it does not mean: that real weights of the family were tried.",
        "",
        "| drawn by | what that is |",
        "| --- | --- |",
        "| lean decoder | the fast sampler: Llama-like models |",
        "| padded | the model's own forward, many rows of any length together |",
        "| cached | the model's own forward and cache, rows of one length together: convolutions, recurrent states, anything unknown. Slower |",
        "| anew | no cache that can be gone on from: each token reads everything again. Slow |",
        "",
        "| family | class | drawn by | scored | result |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in sorted(rows, key=lambda row: row.family):
        result = row.verdict + (f" ({row.step})" if row.step and row.verdict != "not made" else "")
        result += f": {row.note}" if row.note else ""
        result = result.replace("|", "\\|")
        lines.append(f"| `{row.family}` | {row.architecture} | {row.draws} | {row.scores} | {result} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks families", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", default="", help="names, with commas between them")
    parser.add_argument("--slice", default="1/1", help="N/M: the Nth of M parts")
    parser.add_argument("--missing", action="store_true", help="those that were not run yet, or failed")
    parser.add_argument(
        "--page", action="store_true", help="write docs/families.md from all that was run, and run nothing"
    )
    options = parser.parse_args(argv)
    known = _results()
    if not options.page:
        part, parts = map(int, options.slice.split("/"))
        names = options.only.split(",") if options.only else families()[part - 1 :: parts]
        if options.missing:
            names = [
                name for name in names if name not in known or known[name].verdict not in ("ok", "refused")
            ]
        _quiet()
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                os.environ["CLAWBACK_HOME"] = folder
                row = examine(name, Path(folder) / name)
            print(
                f"{name:<28} {row.verdict:<9} {row.step:<10} {row.draws:<12} {row.scores:<8} {row.note} {row.seconds}",
                flush=True,
            )
            known = _results() | {name: row}  # another slice may have written meanwhile
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(
                json.dumps({key: asdict(value) for key, value in sorted(known.items())}, indent=1)
            )
    if options.page or (not options.only and options.slice == "1/1"):
        PAGE.write_text(
            page([known.get(name) or Row(name, verdict="not run") for name in families()]), "utf-8"
        )
    return int(any(row.verdict == "failed" for row in known.values()))


def _results() -> dict[str, Row]:
    """Name → row, of all that was run so far."""
    if not RESULTS.is_file():
        return {}
    return {name: Row(**row) for name, row in json.loads(RESULTS.read_text("utf-8")).items()}


def _quiet() -> None:
    import torch
    import transformers

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())
