"""TRL on matched work: its KTO trainer with the unpaired APO-zero loss, on a LoRA adapter.

Run by the Python of its venv: ``trl_kto.py job.json``. Why this trainer: like ours it takes single answers marked good
or bad, and does one forward and backward of the policy and one forward of the reference (by switching the adapter
off) for each, no more; its default ``kto`` loss needs extra forwards for a KL term, SFT has no reference, DPO needs
pairs, GRPO generates.

It is run as fast as it goes here: no gradient checkpointing, reference log-probs computed once before the first step
(counted as part of the loop), samples of like length together, and the number of samples of a forward
(``micro_batch``) chosen by the caller from a trial of several. Construction, tokenization and saving are not counted.
"""

from __future__ import annotations

import os
from typing import Any

from meter import Loop, read_job, write_result


def main() -> None:
    job = read_job()
    os.environ.update(TQDM_DISABLE="1", HF_DATASETS_CACHE=job["work"], HF_HUB_OFFLINE="1")

    import torch
    from datasets import Dataset, disable_progress_bars
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import KTOConfig, KTOTrainer

    disable_progress_bars()
    loop = Loop()
    reference: list[float] = []

    class Trainer(KTOTrainer):  # type: ignore[misc]
        """Timed where the reference is computed, which its constructor does after tokenization."""

        def _precompute_ref_logps(self, *args: Any, **kwargs: Any) -> Any:
            loop.start()
            dataset = super()._precompute_ref_logps(*args, **kwargs)
            loop.stop()
            reference.extend(dataset["ref_logps"])
            return dataset

    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=getattr(torch, job["dtype"]))
    dataset = Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": row["prompt"]}],
                "completion": [{"role": "assistant", "content": row["response"]}],
                "label": row["rating"] > 0,
                "length": len(row["prompt"].split()) + len(row["response"].split()),
            }
            for row in job["rows"]
        ]
    )
    arguments = KTOConfig(
        output_dir=job["work"],
        loss_type="apo_zero_unpaired",
        precompute_ref_log_probs=True,
        per_device_train_batch_size=job["micro_batch"],
        gradient_accumulation_steps=job["batch"] // job["micro_batch"],
        train_sampling_strategy="group_by_length",
        max_steps=job["steps"],
        learning_rate=job["learning_rate"],
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        bf16=False,
        max_length=None,
        max_grad_norm=1.0,
        optim="adamw_torch",
        remove_unused_columns=False,  # it would remove the lengths
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=job["rank"],
            lora_alpha=job["rank"],
            target_modules=job["targets"],
            bias="none",
            task_type="CAUSAL_LM",
        ),
    )
    tokens = [(len(row["prompt_ids"]), len(row["completion_ids"])) for row in trainer.train_dataset]
    loop.start()
    outcome = trainer.train()
    loop.stop()
    write_result(
        job,
        {
            "loop": loop.result(),
            "steps": outcome.global_step,
            "samples": outcome.global_step * job["batch"],
            "losses": [outcome.training_loss],
            "tokens": sum(a + b for a, b in tokens),
            "response_tokens": sum(b for _, b in tokens),
            "logprob_sums": reference if job["check"] else [],
        },
    )


if __name__ == "__main__":
    main()
