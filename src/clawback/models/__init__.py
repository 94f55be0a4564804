"""Base models and their adapters: found, read, loaded and saved.

The face of the room: what others may import. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.models.conversions import conversion_of, converted_before
    from clawback.models.identity import check_base
    from clawback.models.linear import onednn, product, wide
    from clawback.models.loading import (
        UnloadedModel,
        describe,
        load_base,
        load_tokenizer,
        look,
        names_of,
        own_max_tokens,
        own_sampling,
        resolve,
        sampling_of,
    )
    from clawback.models.lora_config import module_of
    from clawback.models.model_files import check_folder, check_trainable
    from clawback.models.traits import marks, read_as
    from clawback.models.types import (
        GREEDY,
        Bits,
        Bucket,
        Completion,
        Kind,
        LocalModel,
        ModelInfo,
        Sampling,
        TrainResult,
    )
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "identity": "check_base identity",
            "conversions": "conversion_of converted_before",
            "lora_config": "module_of",
            "linear": "onednn product wide",
            "loading": "UnloadedModel describe load_base load_tokenizer look names_of own_max_tokens own_sampling resolve sampling_of",
            "model_files": "check_folder check_trainable model_files",
            "types": "Bits Bucket Completion GREEDY Kind LocalModel ModelInfo Sampling TrainResult",
            "adapter": "adapter",
            "delta": "delta",
            "gguf_file": "gguf_file",
            "local_models": "local_models",
            "mlx_adapter": "mlx_adapter",
            "traits": "marks read_as traits",
        },
    )
