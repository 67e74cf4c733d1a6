# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""Five families of 3-D segmentation nets in PyTorch, and nets of the zoo, whose convolutions Convolume computes.

    python python/examples/torch_models.py

All read (N, channels, Z, Y, X) and return logits (N, classes, Z, Y, X). Extents are multiples of 2 ** (levels - 1).
V-Net, HighRes3DNet and MedNeXt have the sizes of their papers as defaults. Smaller `width`, `levels` and so on make
small nets of the same kind.
"""
from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import convolume.torch

ZOO = pathlib.Path(__file__).resolve().parents[2] / "nets/zoo"


class UNet(nn.Module):
    """The 3-D U-Net (Çiçek et al., MICCAI 2016) with group norm. The width doubles from level to level."""

    def __init__(self, channels: int = 1, classes: int = 2, width: int = 32, levels: int = 4, groups: int = 8) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.down = nn.ModuleList(self.block(one, other, groups) for one, other in zip([channels, *widths], widths))
        self.pool = nn.MaxPool3d(2)
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.wider = nn.ModuleList(nn.ConvTranspose3d(deep, wide, 2, stride=2) for wide, deep in pairs)
        self.up = nn.ModuleList(self.block(2 * wide, wide, groups) for wide, _ in pairs)
        self.logits = nn.Conv3d(width, classes, 1)

    @staticmethod
    def block(channels: int, width: int, groups: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv3d(channels, width, 3, padding=1), nn.GroupNorm(groups, width), nn.ReLU(),
                             nn.Conv3d(width, width, 3, padding=1), nn.GroupNorm(groups, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            skips.append(x)
        for wider, block, skip in zip(self.wider, self.up, skips[-2::-1]):
            x = block(torch.cat([skip, wider(x)], 1))
        return self.logits(x)  # type: ignore[no-any-return]


class ResidualBlock(nn.Module):
    """nnU-Net's residual block: two convolutions with instance norm, leaky ReLU, and a shortcut that follows stride and
    channels."""

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv3d(channels, width, 3, stride, padding=1), self.norm(width), nn.LeakyReLU())
        self.second = nn.Sequential(nn.Conv3d(width, width, 3, padding=1), self.norm(width))
        shortcut: list[nn.Module] = [nn.AvgPool3d(stride)] if stride > 1 else []
        if channels != width:
            shortcut += [nn.Conv3d(channels, width, 1, bias=False), self.norm(width)]
        self.shortcut = nn.Sequential(*shortcut)
        self.activation = nn.LeakyReLU()

    @staticmethod
    def norm(width: int) -> nn.Module:
        return nn.InstanceNorm3d(width, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.second(self.first(x)) + self.shortcut(x))  # type: ignore[no-any-return]


class ResidualUNet(nn.Module):
    """nnU-Net's U-Net with a residual encoder (Isensee et al., MICCAI 2024). Strided convolutions replace pools."""

    def __init__(self, channels: int = 1, classes: int = 2, width: int = 32, blocks: Sequence[int] = (1, 3, 4, 6, 6),
                 widest: int = 320) -> None:
        super().__init__()
        widths = [min(widest, width << level) for level in range(len(blocks))]
        self.stem = nn.Sequential(nn.Conv3d(channels, width, 3, padding=1), ResidualBlock.norm(width), nn.LeakyReLU())
        self.stages = nn.ModuleList(
            nn.Sequential(ResidualBlock(before, here, 1 if level == 0 else 2),
                          *(ResidualBlock(here, here) for _ in range(number - 1)))
            for level, (before, here, number) in enumerate(zip([width, *widths], widths, blocks)))
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.wider = nn.ModuleList(nn.ConvTranspose3d(deep, wide, 2, stride=2) for wide, deep in pairs)
        self.up = nn.ModuleList(nn.Sequential(nn.Conv3d(2 * wide, wide, 3, padding=1), ResidualBlock.norm(wide),
                                              nn.LeakyReLU()) for wide, _ in pairs)
        self.logits = nn.Conv3d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            skips.append(x)
        for wider, block, skip in zip(self.wider, self.up, skips[-2::-1]):
            x = block(torch.cat([skip, wider(x)], 1))
        return self.logits(x)  # type: ignore[no-any-return]


class VStage(nn.Module):
    """A stage of the V-Net: convolutions of 5 x 5 x 5 voxels with PReLU, and the sum with `residual`."""

    def __init__(self, channels: int, width: int, convolutions: int) -> None:
        super().__init__()
        sizes = [channels] + [width] * convolutions
        self.convolutions = nn.ModuleList(nn.Conv3d(one, other, 5, padding=2) for one, other in zip(sizes, sizes[1:]))
        self.activations = nn.ModuleList(nn.PReLU(width) for _ in range(convolutions))

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        last = len(self.convolutions) - 1
        for i, (convolution, activation) in enumerate(zip(self.convolutions, self.activations)):
            x = convolution(x)
            x = activation(x + residual if i == last else x)
        return x


class VNet(nn.Module):
    """The V-Net (Milletari et al., 3DV 2016): kernels of 5, strided and transposed convolutions of 2, no norm."""

    def __init__(self, channels: int = 1, classes: int = 2, width: int = 16,
                 convolutions: Sequence[int] = (1, 2, 3, 3, 3)) -> None:
        super().__init__()
        widths = [width << level for level in range(len(convolutions))]
        self.down = nn.ModuleList(VStage(channels if level == 0 else here, here, number)
                                  for level, (here, number) in enumerate(zip(widths, convolutions)))
        self.deeper = nn.ModuleList(nn.Sequential(nn.Conv3d(wide, deep, 2, stride=2), nn.PReLU(deep))
                                    for wide, deep in zip(widths, widths[1:]))
        # The up-sampled half and the skipped half together are as wide as the stage.
        above = list(zip(widths, widths[1:], convolutions))[::-1]
        inputs = [widths[-1], *(deep for _, deep, _ in above)]
        self.wider = nn.ModuleList(nn.Sequential(nn.ConvTranspose3d(source, wide, 2, stride=2), nn.PReLU(wide))
                                   for source, (wide, _, _) in zip(inputs, above))
        self.up = nn.ModuleList(VStage(deep, deep, number) for _, deep, number in above)
        self.logits = nn.Conv3d(2 * width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level, stage in enumerate(self.down):
            if level > 0:
                x = self.deeper[level - 1](x)
            # A residual of one channel is added to all.
            x = stage(x, x if level > 0 or x.shape[1] == 1 else x.mean(1, keepdim=True))
            skips.append(x)
        for wider, stage, skip in zip(self.wider, self.up, skips[-2::-1]):
            x = torch.cat([wider(x), skip], 1)
            x = stage(x, x)
        return self.logits(x)  # type: ignore[no-any-return]


class DilatedBlock(nn.Module):
    """A block of HighRes3DNet: twice batch norm, ReLU and a dilated convolution, and a shortcut.

    Channels that the input of the shortcut lacks are 0.
    """

    def __init__(self, channels: int, width: int, dilation: int) -> None:
        super().__init__()
        self.more = width - channels
        self.body = nn.Sequential(*(
            layer for size in (channels, width) for layer in (
                nn.BatchNorm3d(size), nn.ReLU(), nn.Conv3d(size, width, 3, padding=dilation, dilation=dilation))))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + nn.functional.pad(x, [0] * 7 + [self.more])  # type: ignore[no-any-return]


class HighRes3DNet(nn.Module):
    """HighRes3DNet (Li et al., IPMI 2017): full resolution, and dilations of 1, 2 and 4."""

    def __init__(self, channels: int = 1, classes: int = 2, width: int = 16, blocks: int = 3, last: int = 80) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(channels, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU())
        sizes = [width] + [width << level for level in range(3) for _ in range(blocks)]
        self.blocks = nn.Sequential(*(DilatedBlock(one, other, 1 << i // blocks)
                                      for i, (one, other) in enumerate(zip(sizes, sizes[1:]))))
        self.logits = nn.Sequential(nn.Conv3d(sizes[-1], last, 1), nn.BatchNorm3d(last), nn.ReLU(),
                                    nn.Conv3d(last, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits(self.blocks(self.stem(x)))  # type: ignore[no-any-return]


class MedNeXtBlock(nn.Module):
    """A block of MedNeXt: a depthwise convolution, group norm of single channels, an expansion with GELU, a
    compression, and a shortcut. `way` is "same", "down" (stride 2) or "up" (transposed, stride 2)."""

    def __init__(self, channels: int, width: int, kernel: int, expansion: int, way: str = "same") -> None:
        super().__init__()

        def convolution(wide: int, size: int, groups: int) -> nn.Module:
            if way == "up":
                return nn.ConvTranspose3d(channels, wide, size, 2, size // 2, 1, groups)
            return nn.Conv3d(channels, wide, size, 2 if way == "down" else 1, size // 2, groups=groups)

        self.body = nn.Sequential(convolution(channels, kernel, channels), nn.GroupNorm(channels, channels),
                                  nn.Conv3d(channels, expansion * channels, 1), nn.GELU(),
                                  nn.Conv3d(expansion * channels, width, 1))
        self.shortcut = nn.Identity() if way == "same" else convolution(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.shortcut(x)  # type: ignore[no-any-return]


class MedNeXt(nn.Module):
    """MedNeXt (Roy et al., MICCAI 2023). The defaults are MedNeXt-S with kernels of 5."""

    def __init__(self, channels: int = 1, classes: int = 2, width: int = 32, kernel: int = 5, expansion: int = 2,
                 blocks: int = 2, levels: int = 5) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]

        def stage(size: int) -> nn.Sequential:
            return nn.Sequential(*(MedNeXtBlock(size, size, kernel, expansion) for _ in range(blocks)))

        pairs = list(zip(widths, widths[1:]))
        self.stem = nn.Conv3d(channels, width, 1)
        self.down = nn.ModuleList(stage(size) for size in widths)
        self.deeper = nn.ModuleList(MedNeXtBlock(wide, deep, kernel, expansion, "down") for wide, deep in pairs)
        self.wider = nn.ModuleList(MedNeXtBlock(deep, wide, kernel, expansion, "up") for wide, deep in pairs[::-1])
        self.up = nn.ModuleList(stage(wide) for wide, _ in pairs[::-1])
        self.logits = nn.Conv3d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.stem(x), []
        for level, stage in enumerate(self.down):
            x = stage(x if level == 0 else self.deeper[level - 1](x))
            skips.append(x)
        for wider, stage, skip in zip(self.wider, self.up, skips[-2::-1]):
            x = stage(skip + wider(x))
        return self.logits(x)  # type: ignore[no-any-return]


def unet_isotropic(overrides: Sequence[str] = ()) -> nn.Module:
    """Returns the net nets/zoo/unet_isotropic.toml as a module, with PyTorch's initial parameters."""
    return convolume.torch.net_from_toml(ZOO / "unet_isotropic.toml", overrides)


def unet_anisotropic(overrides: Sequence[str] = ()) -> nn.Module:
    """Returns the net nets/zoo/unet_anisotropic.toml as a module, with PyTorch's initial parameters."""
    return convolume.torch.net_from_toml(ZOO / "unet_anisotropic.toml", overrides)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "unet": UNet, "residual_unet": ResidualUNet, "vnet": VNet, "highres3dnet": HighRes3DNet, "mednext": MedNeXt,
    "unet_isotropic": unet_isotropic, "unet_anisotropic": unet_anisotropic}


def convolutions(model: nn.Module) -> int:
    """Returns the number of convolutions of a model, transposed ones included."""
    return sum(isinstance(layer, (nn.Conv3d, nn.ConvTranspose3d)) for layer in model.modules())


if __name__ == "__main__":
    print(f"{'model':18}{'parameters':>12}{'convolutions':>14}")
    for name, make in MODELS.items():
        with torch.device("meta"):  # parameters without numbers
            made = make()
        print(f"{name:18}{sum(one.numel() for one in made.parameters()):12}{convolutions(made):14}")

    torch.manual_seed(1)
    model, x = UNet(width=8, levels=2), torch.randn(1, 1, 16, 16, 16)
    before = model(x)
    print(convolume.torch.replace_conv3d(model))
    print("the same result:", torch.allclose(model(x), before, atol=1e-5))
