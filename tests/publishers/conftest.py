"""The home of tests/release, the base in a GGUF file, and servers played over HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from clawback.models import GREEDY

from ..release.conftest import Run, improved, moved, moved_once, run

__all__ = ["Play", "Run", "Server", "improved", "moved", "moved_once", "run"]

Play = Callable[[Any], str]


@pytest.fixture(scope="session")
def base_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model's weights as llama.cpp's converter writes them."""
    gguf = pytest.importorskip("gguf")
    from clawback import engine
    from tests.engine import gguf_files

    model = engine.load("embedded").model
    path = tmp_path_factory.mktemp("gguf") / "base.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("embedded")
    for name, values in gguf_files.tensors(model).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def in_ollama(base_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same file in a folder of Ollama's, as small:1b."""
    digest = "sha256:" + hashlib.sha256(base_gguf.read_bytes()).hexdigest()
    folder = tmp_path / "ollama"
    manifest = folder / "manifests" / "registry.ollama.ai" / "library" / "small" / "1b"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": digest}
    manifest.write_text(json.dumps({"layers": [layer]}))
    (folder / "blobs").mkdir()
    (folder / "blobs" / digest.replace(":", "-")).symlink_to(base_gguf)
    monkeypatch.setenv("OLLAMA_MODELS", str(folder))
    return digest


class Server(BaseHTTPRequestHandler):
    """What both played servers share: JSON in and out, and answers by our engine."""

    protocol_version = "HTTP/1.1"
    policy: Any
    loaded: dict[str, Path]
    seen: list[str]
    honest = True

    def say(self, status: int, data: Any) -> None:
        raw = b"" if self.command == "HEAD" else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def body(self) -> bytes:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.seen.append(f"{self.command} {self.path}")
        return raw

    def answer(self, asked: dict[str, Any]) -> None:
        folder = self.loaded.get(asked["model"])
        self.policy.put(folder if self.honest else None)
        [[made]] = self.policy.generate([asked["messages"]], sampling=GREEDY, max_tokens=asked["max_tokens"])
        self.say(200, {"choices": [{"message": {"content": made.text}}]})

    def log_message(self, *_: Any) -> None:
        pass
