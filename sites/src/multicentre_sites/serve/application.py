"""The application: pages of a folder behind the checks of the door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from multicentre.errors import ConfigurationError, MulticentreError
from multicentre_sites.deployment.site_folder import SETTINGS, read_site
from multicentre_sites.serve.analyst import AnalystPages
from multicentre_sites.serve.door import Access, Door
from multicentre_sites.serve.forms import Form, read_form
from multicentre_sites.serve.rendering import STYLE, Renderer, style_sheet
from multicentre_sites.serve.steward import StewardPages

# HTTP status by exit status of an error (docs/command-line.md); any other is a fault of this program.
_STATUS = {3: 400, 4: 403, 5: 403, 8: 409}
Handler = Callable[[Request, Form], Response]


def make_application(folder: Path, access: Access) -> Door:
    """Return the ASGI application for a folder.

    Parameters
    ----------
    folder : Path
        A site's folder, a coordinator's folder, or a folder of studies and runs.
    access : Access

    Raises
    ------
    ConfigurationError
        The folder does not exist, or its settings cannot be used.
    """
    folder = folder.absolute()
    if not folder.is_dir():
        raise ConfigurationError("path must be a folder", where=str(folder), hint="Name a site's folder, or runs.")
    pages: StewardPages | AnalystPages
    if (folder / SETTINGS).is_file():
        pages = StewardPages(read_site(folder), access.area)
    else:
        pages = AnalystPages(folder, access.area)
    renderer = pages.renderer
    routes = [Route(path, page) for path, page in pages.pages.items()]
    routes += [Route(path, _form(handler), methods=["POST"]) for path, handler in pages.forms.items()]
    routes += [
        Route("/leave", _form(_leaving(access)), methods=["POST"]),
        Route(f"/{STYLE}", lambda _: Response(style_sheet(), media_type="text/css")),
    ]
    handlers = {MulticentreError: _refusal(renderer), HTTPException: _absence(renderer), 500: _fault(renderer)}
    return Door(Starlette(routes=routes, exception_handlers=handlers), access)


def _form(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that passes a form on once its token is checked."""

    async def endpoint(request: Request) -> Response:
        form = await read_form(request)
        return await run_in_threadpool(handler, request, form)

    return endpoint


def _leaving(access: Access) -> Handler:
    def leave(request: Request, form: Form) -> Response:
        access.sessions.pop(request.state.session_name, None)
        response = Response(
            "The session has ended. Open the printed address to begin another.\n", media_type="text/plain"
        )
        response.delete_cookie(access.cookie, path=f"/{access.area}/")
        return response

    return leave


def _refusal(renderer: Renderer) -> Callable[[Request, Exception], Response]:
    def show(request: Request, error: Exception) -> Response:
        assert isinstance(error, MulticentreError)
        status = _STATUS.get(error.exit_code, 500)
        return renderer.page(
            request, "error", status=status, title="This cannot be done", message=error.what, where=error.where,
            hint=error.hint,
        )  # fmt: skip

    return show


def _absence(renderer: Renderer) -> Callable[[Request, Exception], Response]:
    def show(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return renderer.page(
            request, "error", status=status, title="No such page", message="the page must exist", where="", hint=""
        )

    return show


def _fault(renderer: Renderer) -> Callable[[Request, Exception], Response]:
    def show(request: Request, error: Exception) -> Response:
        message = f"internal error in multicentre: {type(error).__name__}"
        hint = (
            "The terminal of multicentre serve shows the details. Nothing is approved that is not listed as approved."
        )
        return renderer.page(request, "error", status=500, title="A fault", message=message, where="", hint=hint)

    return show
