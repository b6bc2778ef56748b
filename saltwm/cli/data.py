"""Verbs about data."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from saltwm.cli.printing import show
from saltwm.config import RenderQuality, Variant


@dataclass(frozen=True)
class Collect:
    """Collect episodes of an environment into a dataset; an interrupted collection goes on."""

    environment: tyro.conf.Positional[str]
    """two-room, push-t, reacher, cube or cube-double."""
    out: Path
    """Dataset directory."""
    episodes: int = 2000
    """Episodes to collect."""
    policy: str | None = None
    """Collecting policy; each environment has its own default."""
    seed: int = 0
    """Episode i is a function of (seed, i)."""
    variant: Variant = "clean"
    """Physics: clean, or paper for the public benchmark's."""
    image_size: int = 64
    """Height and width of a frame in pixels."""
    render: RenderQuality = "fast"
    """full looks like the benchmark; fast leaves out shadows, reflections and multisampling."""
    frame_every: int = 1
    """Keep every n-th frame; 5 keeps just those that windows at the frameskip use."""
    workers: int = 2
    """Processes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Collect and print."""
        from saltwm.data.collect import collect

        dataset = collect(
            self.environment,
            self.out,
            self.episodes,
            seed=self.seed,
            policy=self.policy,
            variant=self.variant,
            image_size=self.image_size,
            render=self.render,
            frame_every=self.frame_every,
            workers=self.workers,
        )
        summary = {
            "dataset": str(self.out),
            "episodes": len(dataset.lengths),
            "actions": int(dataset.lengths.sum()),
            "sha256": dataset.sha256,
        }
        show(self.json, summary, f"saltwm train {self.out} --preset quick --out runs/{self.environment}-salt")
