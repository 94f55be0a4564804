"""The engine on PyTorch: any Hugging Face causal LM with a PEFT LoRA adapter, on CPU or CUDA."""
