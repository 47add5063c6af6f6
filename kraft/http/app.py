"""The one aiohttp application of a node: health, metrics, and what the node knows of its cluster.

Read-only. `/` is for people: the console (`kraft.http.console`), or a plain page for who does not ask for that.
`/health/live` answers as long as the event loop turns. `/health/ready`, or `/health`, says whether the node serves, if
not why, and what it has lost for good although it serves. `/metrics` is for Prometheus; `/api/cluster` is one JSON
object. The application knows the node only through `NodeView`; `kraft.http.server` serves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kraft.http.console.routes import Console
from kraft.http.console.static import INDEX, answer, console_files
from kraft.http.front_page import front_page
from kraft.http.hosts import AllowedHosts
from kraft.http.login import Login, demanding
from kraft.http.metrics import NodeMetrics

PAGES = {
    "/health": "whether this node serves, and why not; the same as /health/ready",
    "/health/live": "answers as long as the node's process does",
    "/health/ready": "200 if this node serves, else 503 with the reasons",
    "/metrics": "numbers for Prometheus",
    "/api/cluster": "the cluster as this node knows it, as JSON",
}
"""What each page is for; the front page links to them."""
OVERVIEW = {
    "/api/overview": "what is wrong with it, and what there is; docs/console-api.md has the other paths"
}
"""The same, of a node with a console."""


PROTECTION = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of each answer."""
PLAIN_PAGE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
}
"""Of the page for who takes no console: it has its style in it, and no script."""

ONLY_ADDRESSES = AllowedHosts()
"""Of a node that is known by no name but localhost."""


class NodeView(Protocol):
    """What the pages show of a node."""

    def unready_reasons(self) -> Sequence[str]:
        """Why the node does not serve now, as words for people; empty when it does."""

    def warnings(self) -> Sequence[str]:
        """What is lost although the node serves, in words for people; empty when nothing is."""

    def describe(self) -> Mapping[str, Any]:
        """The document of `/api/cluster`: JSON values only."""


def make_app(
    view: NodeView,
    metrics: NodeMetrics,
    hosts: AllowedHosts = ONLY_ADDRESSES,
    console: Console | None = None,
    login: Login | None = None,
) -> web.Application:
    """The application of one node, for requests that name one of its `hosts`; with its console, if it has one.

    `login` None: anybody may ask.
    """

    async def live(request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(request: web.Request) -> web.Response:
        reasons, warnings = list(view.unready_reasons()), list(view.warnings())
        document: dict[str, Any] = {"ready": not reasons, "reasons": reasons}
        if warnings:
            document["warnings"] = warnings
        return web.json_response(document, status=503 if reasons else 200)

    async def cluster(request: web.Request) -> web.Response:
        return web.json_response(dict(view.describe()))

    async def scrape(request: web.Request) -> web.Response:
        return web.Response(body=await metrics.exposition(), headers={"Content-Type": metrics.content_type})

    async def front(request: web.Request) -> web.Response:
        pages = PAGES if console is None else PAGES | OVERVIEW
        page = console_files().get(INDEX) if console is not None else None
        if page is not None and "text/html" in request.headers.get("Accept", ""):
            return answer(request, page)
        text = front_page(view.describe(), view.unready_reasons(), view.warnings(), pages)
        return web.Response(text=text, content_type="text/html", headers=PLAIN_PAGE)

    handlers = {
        "/": front,
        "/health": ready,
        "/health/live": live,
        "/health/ready": ready,
        "/metrics": scrape,
        "/api/cluster": cluster,
    }
    doors: list[Middleware] = [
        _never_cached,
        _only_for(hosts),
        *(() if login is None else (demanding(login),)),
    ]
    app = web.Application(middlewares=doors)
    app.on_response_prepare.append(protect)
    for path, handler in handlers.items():
        app.router.add_get(path, handler)
    if console is not None:
        console.add_routes(app)
    return app


@web.middleware
async def _never_cached(request: web.Request, handler: Any) -> web.StreamResponse:
    """Health and state are about now; a wrong path gets a list of the right ones."""
    try:
        response: web.StreamResponse = await handler(request)
    except web.HTTPNotFound:
        paths = sorted(resource.canonical for resource in request.app.router.resources())
        response = web.json_response({"error": f"no such page; there are {', '.join(paths)}"}, status=404)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


async def protect(request: web.Request, response: web.StreamResponse) -> None:
    """Called before the head of each answer leaves: browsers run, show and send nothing but the node's own."""
    for name, value in PROTECTION.items():
        response.headers.setdefault(name, value)


def _only_for(hosts: AllowedHosts) -> Middleware:
    """Refuses what a foreign page makes a browser ask (`kraft.http.hosts`)."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        named = request.headers.getall("Host", [])
        refusal = hosts.refusal(
            request.path, ",".join(named) if named else None, request.headers.get("Origin")
        )
        if refusal is not None:
            return web.json_response({"error": refusal}, status=403)
        return await handler(request)

    return check
