"""The verb that opens the explorer."""

from dataclasses import dataclass

import tyro

from saltwm.cli.printing import Switch, say


@dataclass(frozen=True)
class Explore:
    """See what a world model thinks, live in a browser: act, imagine, browse episodes, map latents, look at data."""

    VERB = "explore"

    given: tyro.conf.Positional[tuple[str, ...]] = ()
    """Checkpoints, results or datasets, or folders of them, or the name of an environment; the shipped ones if none."""
    host: str = "127.0.0.1"
    """Address to listen at; any but this machine's own needs --i-know."""
    port: int = 0
    """Port; a free one by default."""
    browser: Switch = True
    """Open no browser; the address is printed."""
    i_know: bool = False
    """Listen beyond this machine all the same."""

    def do(self) -> None:
        """Serve until Ctrl-C."""
        from saltwm.jobs.explore import Explore as Job
        from saltwm.jobs.explore import explore

        explore(Job(self.given, self.host, self.port, self.browser, self.i_know), say)
