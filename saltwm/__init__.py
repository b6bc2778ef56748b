"""saltwm: learn state-affine latent dynamics from pixels and plan with them reliably.

The public names stand in `__init__.pyi`, once: type checkers read it, and so does `__getattr__` below.
A name is imported when it is first used, so that `import saltwm` costs nothing.
"""

import ast
import functools
import importlib
from importlib.resources import files
from typing import Any

__version__ = "0.1.0"


@functools.cache
def _public() -> dict[str, tuple[str, str]]:
    """Public name -> (module, name there)."""
    stub = ast.parse((files("saltwm") / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {name.asname or name.name: (str(node.module), name.name) for node in imports for name in node.names}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "__all__":
        return sorted(_public())
    if name.startswith("__") or name not in _public():
        raise AttributeError(f"module 'saltwm' has no attribute {name!r}")
    module, attribute = _public()[name]
    found = importlib.import_module(module)
    return getattr(found, attribute) if hasattr(found, attribute) else importlib.import_module(f"{module}.{attribute}")


def __dir__() -> list[str]:
    return ["__version__", *sorted(_public())]
