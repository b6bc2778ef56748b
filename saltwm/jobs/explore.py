"""The explorer as a job: which folders, which address, until Ctrl-C."""

import contextlib
import socket
import threading
import webbrowser
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from saltwm.disk.shipped import shelf_folder
from saltwm.explore.folders import LOOPBACK, find_places
from saltwm.ground.errors import Stopped, UsageError
from saltwm.ground.extras import EXTRAS, require
from saltwm.jobs.job import Job, Positional, Some

if TYPE_CHECKING:
    import uvicorn

    from saltwm.explore.server import Explorer


@dataclass(frozen=True)
class Explore(Job):
    """See what a world model thinks, live in a browser: act, imagine, browse episodes, map latents, look at data."""

    folders: Positional[Some[str]] = ()
    """Checkpoints, results or datasets, or folders of them, or the name of an environment; the shipped ones if none."""
    host: str = "127.0.0.1"
    """Address to listen at; any but this machine's own needs --i-know."""
    name: Some[str] = ()
    """Further names, or NAME:PORT, that a browser may call this machine by, beside --host; all others are refused."""
    port: int = 0
    """Port; a free one by default."""
    browser: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = True
    """Open no browser; the address is printed."""
    i_know: bool = False
    """Listen beyond this machine all the same."""

    def do(self) -> None:
        """Serve the page until Ctrl-C; nothing stays behind."""
        _require_loopback(self)
        for module in EXTRAS["explore"]:
            require("explore", "saltwm explore", module)
        import uvicorn

        from saltwm.explore.server import Explorer

        say = partial(print, flush=True)  # who reads the address through a pipe needs it now
        places = find_places(folders_of(self.folders))
        with bound(self) as listening:
            explorer = Explorer(places, port=listening.getsockname()[1], host=self.host, names=self.name)
            say(f"exploring {len(places)} folders at {explorer.address}")
            say("the address holds a secret of this session; Ctrl-C ends it")
            if self.browser:
                threading.Timer(0.5, webbrowser.open, [explorer.address]).start()
            # uvicorn ends in order on the first signal and passes it on when it has
            with contextlib.suppress(KeyboardInterrupt, Stopped):
                uvicorn.Server(configured(explorer)).run(sockets=[listening])
        say("the explorer has ended")


def configured(explorer: "Explorer") -> "uvicorn.Config":
    """How the explorer is served: bounded in every direction, and without a log, because addresses hold the token."""
    import uvicorn

    from saltwm.explore.messages import MOST_BYTES
    from saltwm.explore.server import MOST_SESSIONS

    return uvicorn.Config(
        explorer.app(),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="websockets-sansio",
        ws_max_size=MOST_BYTES,
        ws_per_message_deflate=False,  # nothing is gained between two processes of one machine
        limit_concurrency=16 * MOST_SESSIONS,
        h11_max_incomplete_event_size=16 * 1024,
        timeout_graceful_shutdown=2,
    )


def folders_of(given: tuple[str, ...]) -> list[Path]:
    """The folders that words stand for: paths, environments of the shelf, or all that is shipped."""
    from saltwm.envs import ENVIRONMENTS, spelled

    if not given:
        return _shipped(ENVIRONMENTS)
    folders: list[Path] = []
    for word in given:
        if spelled(word) in ENVIRONMENTS and not Path(word).exists():
            folders += _shipped((spelled(word),))
        else:
            folders.append(Path(word))
    return folders


def _shipped(environments: tuple[str, ...]) -> list[Path]:
    """Checkpoints and held-out data of the environments, and the records of their evaluations."""
    from saltwm.jobs.shelf import shelf

    directory = shelf_folder()
    shipped = [item for item in shelf(directory) if item.environment in environments]
    folders = [*(item.checkpoint for item in shipped), *dict.fromkeys(item.data for item in shipped)]
    if not folders:
        raise UsageError(
            f"nothing is shipped for {', '.join(environments)} under {directory}; give folders, such as those of: "
            "saltwm reproduce two-room --preset quick --out work/demo"
        )
    results = directory.parent / "results"
    return [*folders, *([results] if results.is_dir() else [])]


def _require_loopback(job: Explore) -> None:
    if job.host not in LOOPBACK and not job.i_know:
        raise UsageError(
            f"--host {job.host}: whoever reaches that address and learns its token can run plans on this machine and "
            "see its folders, unencrypted; stay with 127.0.0.1 and forward the port (ssh -L), or add --i-know"
        )
    if not 0 <= job.port < 65536:
        raise UsageError(f"--port must be 0 to 65535, found {job.port}")


def bound(job: Explore) -> socket.socket:
    """A listening socket, bound before the address is printed, so that its port is known."""
    family = socket.AF_INET6 if ":" in job.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((job.host, job.port))
        listening.listen()  # a browser may connect before the server answers
    except OSError as error:
        listening.close()
        raise UsageError(
            f"{job.host}:{job.port}: cannot listen there ({error.strerror}); choose another --port"
        ) from error
    return listening
