"""A name -> a network whose `forward` gives logits: it never includes the softmax.

Three shapes of the literature, each at about ten million multiply-adds per image, so that one thread trains it in less
than half an hour. All halve the image in their first convolution: at this cost, channels help more than pixels.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

N_CLASSES = 10


def residual(n_colours: int) -> nn.Sequential:
    """Three residual blocks (He et al. 2016) of 24, 64 and 128 channels."""
    return nn.Sequential(
        convolution(n_colours, 24, stride=2),
        Residual(24, 24, stride=1),
        Residual(24, 64, stride=2),
        Residual(64, 128, stride=2),
        *logits_from(128),
    )


def dense(n_colours: int) -> nn.Sequential:
    """Three dense blocks (Huang et al. 2017) of three layers, growing by 16, 24 and 32 channels per layer.

    Between blocks a 1 x 1 convolution removes at least half of the channels, and average pooling halves the image.
    """
    return nn.Sequential(
        convolution(n_colours, 24, stride=2),
        *dense_block(24, 16),
        convolution(72, 32, size=1),
        nn.AvgPool2d(2),
        *dense_block(32, 24),
        convolution(104, 48, size=1),
        nn.AvgPool2d(2),
        *dense_block(48, 32),
        *logits_from(144),
    )


def wide(n_colours: int) -> nn.Sequential:
    """Few layers of many channels (after Zagoruyko and Komodakis 2016): 48, 128 and 256."""
    return nn.Sequential(
        convolution(n_colours, 24, stride=2),
        convolution(24, 48),
        nn.MaxPool2d(2),
        convolution(48, 128),
        nn.MaxPool2d(2),
        convolution(128, 256),
        *logits_from(256),
    )


SHAPES: dict[str, Callable[[int], nn.Sequential]] = {"residual": residual, "dense": dense, "wide": wide}


def new_network(shape: str, n_colours: int, generator: torch.Generator) -> nn.Sequential:
    """Build a network with He's weights drawn from the generator, channels last: a third faster on one thread."""
    network = SHAPES[shape](n_colours)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    # torch's type stubs lack this argument of `to`.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's types leave this form out
    return network


def multiply_adds(network: nn.Module, shape: tuple[int, int, int]) -> int:
    """Multiplications in convolutions and dense layers for one image of shape (colours, height, width)."""
    counts = []

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            counts.append(output.numel() * layer.weight[0].numel())

    hooks = [layer.register_forward_hook(count) for layer in network.modules()]
    network.eval()
    with torch.no_grad():
        network(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return sum(counts)


class Residual(nn.Module):
    """x -> relu(shortcut(x) + F(x)), where F is two convolutions."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(n_in, n_out, stride=stride)
        self.second = convolution(n_out, n_out)[:2]  # its ReLU comes after the sum
        same = n_in == n_out and stride == 1
        self.shortcut = nn.Identity() if same else convolution(n_in, n_out, size=1, stride=stride)[:2]

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, n_in, height, width) -> (n, n_out, height / stride, width / stride)."""
        return torch.relu(self.shortcut(x) + self.second(self.first(x)))


class Dense(nn.Module):
    """x -> (x, F(x)) side by side: every later layer sees everything computed so far."""

    def __init__(self, n_in: int, growth: int) -> None:
        super().__init__()
        self.new = convolution(n_in, growth)

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, n_in, height, width) -> (n, n_in + growth, height, width)."""
        return torch.cat([x, self.new(x)], dim=1)


def dense_block(n_in: int, growth: int) -> list[Dense]:
    return [Dense(n_in + layer * growth, growth) for layer in range(3)]


def convolution(n_in: int, n_out: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, size, stride=stride, padding=size // 2, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()
    )


def logits_from(n_channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_channels, N_CLASSES)]
