"""A SegNet trains on our operators as it does on torch's."""

import copy

import pytest
import torch
from torch import nn

from unpool.torch import accelerate

STEPS = 40


class SegNet(nn.Module):
    """Two poolings with indices, two unpoolings, a transposed convolution head at twice the size."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2 = block(1, 8), block(8, 12)
        self.up2, self.up1 = block(12, 8), block(8, 8)
        self.pool, self.unpool = nn.MaxPool2d(3, 2, 1, return_indices=True), nn.MaxUnpool2d(3, 2, 1)
        self.shrink, self.grow = nn.MaxPool2d(2), nn.ConvTranspose2d(8, 2, 3, stride=2)

    def forward(self, x):
        first = self.down1(x)
        small, indices1 = self.pool(first)
        second = self.down2(small)
        smaller, indices2 = self.pool(second)
        z = self.up2(self.unpool(smaller, indices2, output_size=second.shape[-2:]))
        z = self.up1(self.unpool(z, indices1, output_size=first.shape[-2:]))
        return self.grow(self.shrink(z))


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


def batches():
    """Noisy images of one bright rectangle each, and the pixels inside it."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        masks = torch.zeros(4, 21, 23)
        for mask in masks:
            top, left = torch.randint(0, 10, (2,), generator=generator).tolist()
            mask[top : top + 9, left : left + 11] = 1
        noise = torch.randn(4, 1, 21, 23, generator=generator)
        yield masks[:, None] + 0.5 * noise, masks.long()


def losses(net):
    """The loss of every step of training."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    found = []
    for images, masks in batches():
        loss = nn.functional.cross_entropy(net(images), masks)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return found


def test_training_has_the_same_loss_curve():
    """From one seed the losses of all steps agree to 1e-4, and they fall."""
    torch.manual_seed(1)
    theirs = SegNet()
    ours = copy.deepcopy(theirs)
    assert all(swap.reason is None for swap in accelerate(ours))
    expected, found = losses(theirs), losses(ours)
    assert found == pytest.approx(expected, abs=1e-4)
    assert expected[-1] < expected[0] / 2
