"""A device that is none: tensors that say that they are on `away`, and compute on the CPU.

No machine of ours has an accelerator, so nothing would tell that a tensor was left on the CPU, or that a number was
drawn on another device. Here an operation on tensors of two devices fails as it does on a GPU, and what a model
computes is what it computes on the CPU, to the last bit.
"""

import contextlib
import unittest.mock
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _DummyPrivateUse1Hook
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as register

aten = torch.ops.aten
TAKES_BOTH = {aten._to_copy, aten.copy_, aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
"""Operations that move numbers, or whose index may be on the CPU."""


class _Module(_DummyBackendModule):
    is_here = False

    def is_available(self) -> bool:
        return _Module.is_here

    def device_count(self) -> int:
        return int(_Module.is_here)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


class _Hook(_DummyPrivateUse1Hook):
    def is_available(self) -> bool:
        return _Module.is_here


class Away(torch.Tensor):
    """A tensor of the device `away`; `inner` holds its numbers."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Away":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device("away", 0),
            requires_grad=inner.requires_grad,
        )
        made.inner = inner.detach()
        return made

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), options=None):
        return _compute(operation, args, options or {})

    def tolist(self) -> Any:
        """A subclass of Tensor refuses; a device does not."""
        return self.inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """As of any device but the CPU."""
        raise TypeError("can't convert away:0 device type tensor to numpy. Use Tensor.cpu() first")

    def __array__(self, *_: Any) -> Any:
        return self.numpy()

    def __repr__(self) -> str:
        return f"Away({self.inner})"


class _Everything(TorchDispatchMode):
    """Sees what makes tensors as well, which no argument of another device announces."""

    def __torch_dispatch__(self, operation, types, args=(), options=None):
        return _compute(operation, args, options or {})


def _compute(operation: Any, args: Any, options: dict[str, Any]) -> Any:
    leaves = tree_leaves((args, options))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    away = [tensor for tensor in tensors if isinstance(tensor, Away)]
    at_home = [tensor for tensor in tensors if not isinstance(tensor, Away) and tensor.ndim]
    if away and at_home and operation.overloadpacket not in TAKES_BOTH:
        raise RuntimeError(f"Expected all tensors to be on the same device, found away:0 and cpu in {operation}")
    wanted = next((leaf for leaf in leaves if isinstance(leaf, torch.device)), None)
    goes_away = wanted.type == "away" if wanted is not None else bool(away)
    if goes_away and options.get("generator") is not None:
        raise RuntimeError(f"Expected a 'away' device type for generator but found 'cpu' in {operation}")
    found = operation(*tree_map(_inner, args), **tree_map(_inner, options))
    if operation is aten.copy_.default:
        return args[0]
    known = {id(tensor.inner): tensor for tensor in away}

    def outer(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not goes_away:
            return value
        return known[id(value)] if id(value) in known else Away(value)

    return tree_map(outer, found)


def _inner(value: Any) -> Any:
    if isinstance(value, Away):
        return value.inner
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _grad_on_this_thread(*args: Any, _grad: Any = torch.autograd.grad, **options: Any) -> Any:
    """Torch counts devices when a process first asks for a gradient; inference_mode(False) asks for threads again."""
    with torch.autograd.set_multithreading_enabled(False):
        return _grad(*args, **options)


@contextlib.contextmanager
def second_device() -> Iterator[torch.device]:
    """Inside, `away` is the accelerator of this machine."""
    if not hasattr(torch, "away"):
        register("away", backend_module=_Module(), hook=_Hook())
    _Module.is_here = True
    torch.__future__.set_swap_module_params_on_conversion(True)
    one_thread = unittest.mock.patch.object(torch.autograd, "grad", _grad_on_this_thread)
    try:
        with _Everything(), one_thread, torch.autograd.set_multithreading_enabled(False):
            yield torch.device("away", 0)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
        _Module.is_here = False
