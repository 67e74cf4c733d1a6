"""Convolutions of PyTorch tensors on CPUs, with gradients.

conv3d() and conv_transpose3d() have the arguments and the semantics of torch.nn.functional. replace_conv3d() makes the
layers of a model use them. accelerated() makes all convolutions of the process use them. `python -m convolume.torch`
does the same for programs that cannot be edited.

>>> import torch, convolume.torch
>>> model = torch.nn.Sequential(torch.nn.Conv3d(4, 8, 3, padding=1), torch.nn.ReLU())
>>> report = convolume.torch.replace_conv3d(model)
>>> model(torch.zeros(1, 4, 8, 8, 8)).shape
torch.Size([1, 8, 8, 8, 8])
"""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._accelerated import accelerated
    from ._calls import Calls
    from ._convolution import conv3d, conv_transpose3d
    from ._net import Net, net, net_from_toml
    from ._replace import Report, Row, freeze, replace_conv3d, restore_conv3d

_PUBLIC = {"_accelerated": ("accelerated",), "_calls": ("Calls",), "_convolution": ("conv3d", "conv_transpose3d"),
           "_net": ("Net", "net", "net_from_toml"),
           "_replace": ("Report", "Row", "freeze", "replace_conv3d", "restore_conv3d")}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = ["Calls", "Net", "Report", "Row", "accelerated", "conv3d", "conv_transpose3d", "freeze", "net",
           "net_from_toml", "replace_conv3d", "restore_conv3d"]


def __getattr__(name: str) -> Any:
    """Imports what is used. `python -m convolume.torch` imports this package, and has to start without PyTorch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
