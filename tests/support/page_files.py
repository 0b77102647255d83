"""What the pages of the documentation take for granted: models, pictures and volumes of the reader's, all small."""

import textwrap
from importlib.resources import files
from pathlib import Path

import nibabel
import numpy as np
import onnx
import tifffile
import torch
from PIL import Image

from tests.support import models

NETS = """
    import torch
    from torch import nn


    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [1, 2, 2, 2, 2]
            self.down = nn.ModuleList(nn.Conv2d(*pair, 3, padding=1) for pair in zip(widths, widths[1:]))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2, 2, 2, stride=2) for _ in range(4))
            self.last = nn.Conv2d(2, 3, 1)

        def forward(self, image):
            skips, y = [], image
            for layer in self.down:
                skips.append(layer(y))
                y = nn.functional.max_pool2d(skips[-1], 2)
            for layer in self.up:
                y = skips.pop() + layer(y)
            return self.last(y)


    class SegNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1)

        def forward(self, image):
            fine = self.first(image)
            y, indices = nn.functional.max_pool2d(fine, 2, return_indices=True)
            return self.last(nn.functional.max_unpool2d(y, indices, 2, output_size=fine.shape[2:]))


    def segnet():
        return SegNet().eval()
"""
"""A file of torch modules: a U-Net that takes multiples of 16, and what makes a SegNet."""


def put_files() -> None:
    random = np.random.default_rng(0)
    segnet = models.segnet(size="height, width", classes=3)
    for name in ("segnet.onnx", "exported.onnx", "fixed.onnx", "unet.onnx"):
        onnx.save(segnet, name)
    Path("coins.onnx").write_bytes((files("unpool") / "data" / "coins.onnx").read_bytes())
    onnx.save(models.unet3d(), "unet3d.onnx")
    onnx.save(_lesions(), "lesions.onnx")
    onnx.save(_many(), "many.onnx")
    for name, sizes in (("slide.npy", (40, 36)), ("marks.npy", (20, 18))):
        np.save(name, random.random((1, 1, *sizes), np.float32))
    Path("nets.py").write_text(textwrap.dedent(NETS))
    nets: dict = {}
    exec(textwrap.dedent(NETS), nets)
    torch.save(nets["UNet"]().state_dict(), "unet.pt")
    Path("photos").mkdir()
    picture = Image.fromarray(random.integers(0, 256, (12, 10, 3), np.uint8))
    for name in ("photo.png", "photo.jpg", "photos/one.png", "photos/two.jpg"):
        picture.save(name)
    pages = random.integers(0, 256, (4, 12, 10, 3), np.uint8)
    tifffile.imwrite("pages.tif", pages, photometric="rgb")
    tifffile.imwrite("photo.tif", random.integers(0, 256, (40, 48, 3), np.uint8))
    _save_pyramid("slide.tif", random.integers(0, 256, (256, 192), np.uint8))
    for name, size in (("slide.npy", (96, 64)), ("marks.npy", (48, 32))):
        np.save(name, random.random((1, 1, *size), np.float32))
    scan = nibabel.Nifti1Image(random.integers(-1000, 1000, (20, 18, 16), np.int16), np.diag([0.7, 0.7, 1.5, 1]))
    for name in ("scan.nii", "ct.nii.gz"):
        nibabel.save(scan, name)


def _lesions() -> onnx.ModelProto:
    """A probability for each position, in one channel."""
    return models.model(
        """lesions (float[1, 3, height, width] image) => (float[1, 1, height, width] probability) {
            logits = Conv <pads = [1, 1, 1, 1]> (image, w1)
            probability = Sigmoid (logits)
        }""",
        w1=models.random(1, 3, 3, 3),
    )


def _many() -> onnx.ModelProto:
    """Two inputs, one half the size of the other, and an output of each size."""
    return models.model(
        f"""many (float[1, 1, height, width] x, float[1, 1, rows, columns] mask)
            => (float[1, 1, r, c] half, float[1, 1, h, w] full) {{
            y, i = MaxPool <{models.POOL}> (x)
            half = Mul (y, mask)
            full = MaxUnpool <{models.POOL}> (half, i)
        }}"""
    )


def _save_pyramid(name: str, pixels: np.ndarray) -> None:
    """A tiled TIFF of three levels."""
    with tifffile.TiffWriter(name) as file:
        file.write(pixels, tile=(64, 64), subifds=2)
        for step in (2, 4):
            file.write(pixels[::step, ::step], tile=(64, 64), subfiletype=1)
