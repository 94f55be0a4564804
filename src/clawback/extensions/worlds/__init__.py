"""Adapters to other projects' environments, one file each.

Here are its kinds of environments, as they are registered. Importing it loads none of them.
"""

from __future__ import annotations

from clawback.environments.registry import Kind

_ROOM = "clawback.extensions.worlds"
GYMNASIUM = Kind(
    f"{_ROOM}.gymnasium", "Gymnasium's worlds, in words", "gymnasium:FrozenLake-v1", "gymnasium", 32
)
TEXTARENA = Kind(f"{_ROOM}.textarena", "TextArena's games", "textarena:GuessTheNumber-v0", "textarena", 128)
REASONING_GYM = Kind(
    f"{_ROOM}.reasoning_gym", "Procedural questions", "reasoning-gym:leg_counting", "reasoning_gym"
)
OPENENV = Kind(f"{_ROOM}.openenv", "A running OpenEnv server", "openenv:ws://127.0.0.1:8000", "aiohttp")
TRL = Kind(f"{_ROOM}.trl", "A class for TRL's environment_factory", "trl:my_env.py:Game")
SKYRL_GYM = Kind(
    f"{_ROOM}.skyrl_gym", "SkyRL's environments over rows", "skyrl-gym:gsm8k?rows=FILE", "skyrl_gym"
)
GSM8K = Kind(
    f"{_ROOM}.gsm8k", "GSM8K questions, from a file", "gsm8k:FILE?tools=calculator", reply_tokens=512
)
BFCL = Kind(f"{_ROOM}.bfcl", "Function calls of the BFCL wheel", "bfcl:simple_python?data=FOLDER")
