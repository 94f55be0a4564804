"""Saved adapters to take home: by files with signed addresses, or as one archive."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.extensions.trainer_server.around import signature
from clawback.extensions.trainer_server.request_service import ApiRefused, Service
from clawback.extensions.trainer_server.requests import answer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

FILES = ("adapter_model.safetensors", "adapter_config.json")


class Downloads:
    """One method a route."""

    def __init__(self, service: Service, key: str) -> None:
        self.service, self.key = service, key

    def _adapter(self, request: Request, kinds: tuple[str, ...]) -> Path:
        run, checkpoint = request.path_params["run"], request.path_params["checkpoint"]
        for kind in kinds:
            try:
                return self.service.checkpoint(f"tinker://{run}/{kind}/{checkpoint}")
            except ApiRefused as error:
                if error.status != 404 or kind == kinds[-1]:
                    raise
        raise AssertionError("the last kind returns or raises")

    async def urls(self, request: Request) -> Response:
        self._adapter(request, ("external_weights",))
        urls = {name: self._signed(request, f"files/{name}") for name in FILES}
        return answer({"urls": urls, "expires": "2100-01-01T00:00:00Z"})

    async def archive(self, request: Request) -> Response:
        from starlette.responses import RedirectResponse

        self._adapter(request, ("sampler_weights",))
        return RedirectResponse(self._signed(request, "download"), 302)

    def _signed(self, request: Request, name: str) -> str:
        """The address of something beside a request's, which is given out without the key."""
        url = request.url.replace(path=request.url.path.rsplit("/", 1)[0] + "/" + name, query="")
        return f"{url}?signature={signature(self.key, url.path)}"

    async def download(self, request: Request) -> Response:
        from starlette.responses import Response as Answer

        folder = self._adapter(request, ("sampler_weights",))
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name in FILES:
                archive.add(folder / name, name)
        return Answer(packed.getvalue(), media_type="application/octet-stream")

    async def file(self, request: Request) -> Response:
        from starlette.responses import FileResponse

        folder, name = self._adapter(request, ("external_weights",)), request.path_params["name"]
        if name not in FILES:
            raise ApiRefused(404, "No such file")
        return FileResponse(folder / name)
