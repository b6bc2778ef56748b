"""The page and its socket, for this machine alone.

Nobody gets in without the token of the address, under another Host (DNS rebinding) or from another Origin (another
site's script). Files come from a table that is read once, so no request names a path.
"""

import asyncio
import contextlib
import hmac
import importlib.resources
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from socket import gethostname
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from saltwm.explore.folders import EVERYWHERE, LOOPBACK, Place
from saltwm.explore.link import Link
from saltwm.explore.messages import Answer, Message, Refused, addressed, pack, read_message
from saltwm.ground.errors import UsageError

MOST_SESSIONS = 6
"""Pages that are open at a time."""
MOST_OPEN_PER_SESSION = 32
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HOST = re.compile(r"([\w.-]+|\[[0-9a-f:.]+\]):\d{1,5}", re.ASCII | re.IGNORECASE)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def page_files() -> dict[str, bytes]:
    """The page, file by file."""
    folder = importlib.resources.files("saltwm.explore") / "pages"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith(tuple(TYPES))}


@dataclass
class Explorer:
    """The application: its places, its token, its worker and the pages that are open."""

    places: list[Place]
    port: int
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    """Further names that a browser may call this machine by, each with a port where it is not ours."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """What an address must hold: 192 random bits."""
    link: Link = field(init=False)
    hosts: set[str] = field(init=False)
    """Host headers that are ours."""
    _sockets: set[WebSocket] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.link = Link(self.places, on_restart=self._tell_restart)
        self._files = page_files()
        # A closed list, whatever the address: a name that another site points at this machine is not in it.
        self.hosts = {host_header(name, self.port) for name in (*self._own_names(), *self.names)}

    @property
    def address(self) -> str:
        """What to open in a browser."""
        usual = "localhost" if self.host in EVERYWHERE else self.host
        return f"http://{host_header((*self.names, usual)[0], self.port)}/{self.token}/"

    def _own_names(self) -> set[str]:
        """What this machine is called where it listens."""
        if self.host in EVERYWHERE:
            return {*LOOPBACK, gethostname()}
        return {*LOOPBACK} if self.host in LOOPBACK else {self.host}

    def app(self) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """The ASGI application, guarded."""
        routes = [
            Route("/{token}/", self._file),
            Route("/{token}/{name}", self._file),
            WebSocketRoute("/{token}/live", self._live),
        ]
        return Guard(Starlette(routes=routes, lifespan=self._lifespan), self)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self.link.start()
        try:
            yield
        finally:
            await self.link.close()

    def knows(self, token: str) -> bool:
        """Whether this is the token, in a time that does not tell how much of it is right."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self._files:
            return PlainTextResponse("not found\n", 404)
        suffix = name[name.rindex(".") :]
        return Response(self._files[name], headers={"content-type": TYPES[suffix], "cache-control": "no-store"})

    # --- the socket --------------------------------------------------------------------------------------------------

    async def _live(self, socket: WebSocket) -> None:
        await socket.accept()
        if len(self._sockets) >= MOST_SESSIONS:
            await socket.close(1013, f"{MOST_SESSIONS} pages are open already; close one")
            return
        self._sockets.add(socket)
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                received = await socket.receive()
                if received["type"] == "websocket.disconnect":
                    return
                text = received.get("text")
                if len(tasks) >= MOST_OPEN_PER_SESSION:
                    await socket.send_bytes(_error(0, "too many questions at a time"))
                    continue
                task = asyncio.create_task(self._answer(socket, text if text is not None else b""))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            self._sockets.discard(socket)
            for task in list(tasks):
                task.cancel()

    async def _answer(self, socket: WebSocket, text: str | bytes) -> None:
        try:
            message = read_message(text)
        except Refused as error:
            packed = _error(error.id, str(error))
        else:
            packed = addressed(message.id, await self._answered(message))
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the page has gone
            await socket.send_bytes(packed)

    async def _answered(self, message: Message) -> bytes:
        if message.request is None:
            self.link.kill()
            return pack(message.id, Answer({"restarted": True}))
        return await self.link.ask(message)

    def _tell_restart(self) -> None:
        """Every page hears that another worker has taken over."""
        for socket in self._sockets:
            task = asyncio.create_task(_send_event(socket, {"event": "worker", "restarts": self.link.restarts}))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _send_event(socket: WebSocket, event: dict[str, Any]) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.send_text(json.dumps(event))


def _error(number: int, why: str) -> bytes:
    return pack(number, Answer({"error": why}))


def host_header(name: str, port: int) -> str:
    """What a browser sends as Host to a machine of this name; `port` unless the name brings its own."""
    whole = f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name
    if not re.search(r":\d+$", whole):
        whole = f"{whole}:{port}"
    if not HOST.fullmatch(whole):
        raise UsageError(f"`name`: expected a host, or host:port, found {name!r:.80}")
    return whole.lower().removesuffix(":80")  # which browsers leave out


@dataclass
class Guard:
    """Lets through what comes from the page itself, and puts the rules for browsers on every answer."""

    app: Callable[[Scope, Receive, Send], Awaitable[None]]
    explorer: Explorer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        why = self._refusal(scope)
        if scope["type"] == "websocket":
            if why is None:
                await self.app(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": why})
            return
        guarded = self._with_rules(send)
        if why is None:
            await self.app(scope, receive, guarded)
        else:
            await PlainTextResponse(f"refused: {why}\n", 403)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> str | None:
        """Why a request is not ours; None if it is."""
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value.decode("latin-1"))
        ours = self.explorer.hosts
        if [host.lower() for host in headers.get(b"host", [])] not in [[host] for host in ours]:
            return "another Host"
        origins = headers.get(b"origin", [])
        if any(origin.lower() not in {f"http://{host}" for host in ours} for origin in origins):
            return "another Origin"
        if scope["type"] == "websocket":
            if not origins:
                return "no Origin"
        elif scope["method"] not in ("GET", "HEAD"):
            return "only GET"
        elif _from_another_site(headers):
            return "another site"
        if not self.explorer.knows(scope["path"].split("/", 2)[1]):
            return "not the token of this explorer; open the address that it printed"
        return None

    def _with_rules(self, send: Send) -> Send:
        # A policy knows no bracketed addresses; there 'self' must do.
        sockets = " ".join(f"ws://{host}" for host in sorted(self.explorer.hosts) if not host.startswith("["))
        rules = {
            "content-security-policy": (
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
                f"connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                "require-trusted-types-for 'script'; trusted-types 'none'"
            ),
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cross-origin-opener-policy": "same-origin",
        }

        async def with_rules(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in rules.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        return with_rules


def _from_another_site(headers: dict[bytes, list[str]]) -> bool:
    """Whether a browser says that another site asks; a person who follows a link to the address may."""
    site, mode = headers.get(b"sec-fetch-site", ["none"])[0], headers.get(b"sec-fetch-mode", [""])[0]
    target = headers.get(b"sec-fetch-dest", [""])[0]
    return site in ("cross-site", "same-site") and (mode, target) != ("navigate", "document")
