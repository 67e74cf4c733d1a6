# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""Convolutions of PyTorch tensors on CPUs, with gradients.

conv3d() and conv_transpose3d() have the arguments and the semantics of torch.nn.functional. replace_conv3d() makes the
layers of a model use them. net() makes a module of a checkpoint of `convolume train`.

>>> import torch, convolume.torch
>>> model = torch.nn.Sequential(torch.nn.Conv3d(4, 8, 3, padding=1), torch.nn.ReLU())
>>> report = convolume.torch.replace_conv3d(model)
>>> model(torch.zeros(1, 4, 8, 8, 8)).shape
torch.Size([1, 8, 8, 8, 8])
"""
from . import _threads
from ._convolution import conv3d, conv_transpose3d
from ._net import Net, net, net_from_toml
from ._replace import Report, Row, freeze, replace_conv3d, restore_conv3d

_threads.use_team_of_pytorch()

__all__ = ["Net", "Report", "Row", "conv3d", "conv_transpose3d", "freeze", "net", "net_from_toml", "replace_conv3d",
           "restore_conv3d"]
