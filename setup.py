"""Puts the shipped models and a few held-out episodes into the wheel; everything else stands in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MODELS = ("two-room-salt", "push-t-salt", "reacher-salt", "cube-salt")


class WithModels(build_py):
    """checkpoints/NAME-salt and checkpoints/small/NAME-data become saltwm/shipped/..."""

    def run(self) -> None:
        """Build, and copy them."""
        super().run()
        if self.editable_mode:
            return  # a checkout has them in checkpoints/
        for source in [
            *(ROOT / "checkpoints" / name for name in MODELS),
            *sorted((ROOT / "checkpoints/small").glob("*-data")),
        ]:
            target = Path(self.build_lib) / "saltwm" / "shipped" / source.name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(".lock", "prior.work"))


setup(cmdclass={"build_py": WithModels})
