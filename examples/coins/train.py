"""Train a small SegNet on one part of the coin photograph, and write it as a standard ONNX file.

Run from the root of the repository, with the extras `demo` and `torch`:

    python -m examples.coins.train
"""

import argparse
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import unpool.torch
from examples.coins.labels import HELD_OUT_FROM, coin_mask, intersection_over_union, photograph
from examples.coins.segnet import CLASSES, SegNet
from unpool.files import write

SEED = 7
STEPS, BATCH, PATCH = 260, 8, 112
LEARNING_RATE = 6e-3
WANTED_IOU = 0.85
SHIPPED = Path(__file__).parents[2] / "src" / "unpool" / "data" / "coins.onnx"

DESCRIPTION = {
    "input": "image: float32 (N, 1, H, W), grey, 0 to 255, not scaled; any H and W from 8 up, odd ones too",
    "output": "logits: float32 (N, 2, H, W); the argmax over axis 1 is the class",
    "classes": ",".join(CLASSES),
    "source": f"examples/coins/train.py, seed {SEED}, columns 0..{HELD_OUT_FROM - 1} of skimage.data.coins()",
}


def patches(image: Tensor, mask: Tensor, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """A batch of square patches, turned, mirrored, and changed in brightness and contrast.

    Args:
        image: float32 (H, W), 0..255.
        mask: int64 (H, W), class numbers.
        random: where the choices come from.

    Returns:
        images (BATCH, 1, PATCH, PATCH) and class numbers (BATCH, PATCH, PATCH).
    """
    images, masks = [], []
    for _ in range(BATCH):
        top, left = (int(random.integers(0, size - PATCH + 1)) for size in image.shape)
        window = (slice(top, top + PATCH), slice(left, left + PATCH))
        turns, mirrored = int(random.integers(4)), bool(random.integers(2))
        pair = [torch.rot90(plane[window], turns) for plane in (image, mask)]
        x, y = [plane.flip(1) for plane in pair] if mirrored else pair
        images.append(x * float(random.uniform(0.8, 1.2)) + float(random.uniform(-25, 25)))
        masks.append(y)
    return torch.stack(images)[:, None], torch.stack(masks)


def train(image: NDArray[np.uint8], mask: NDArray[np.bool_]) -> SegNet:
    """A SegNet trained on patches of `image` and `mask`, in evaluation mode."""
    torch.manual_seed(SEED)
    random = np.random.default_rng(SEED)
    pixels, classes = torch.from_numpy(image).float(), torch.from_numpy(mask).long()
    network = SegNet().train()
    optimizer = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, STEPS)
    for step in range(STEPS):
        x, y = patches(pixels, classes, random)
        loss = nn.functional.cross_entropy(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 19:
            print(f"step {step + 1:4d} of {STEPS}  loss {loss.item():.4f}", flush=True)
    return network.eval()


def export(network: SegNet) -> onnx.ModelProto:
    """The network as ONNX with any batch, height and width, described in its metadata."""
    program = unpool.torch.export(
        network,
        (torch.zeros(2, 1, 75, 91),),
        dynamo=True,
        verbose=False,
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"},),
    )
    assert program is not None
    return described(program.model_proto)


def described(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with DESCRIPTION as its only metadata: the exporter's holds stack traces with local paths."""
    graph = model.graph
    for part in (*graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output, graph):
        del part.metadata_props[:]
        part.doc_string = ""
    del model.metadata_props[:]
    model.doc_string = "A SegNet that finds the coins in scikit-image's photograph `coins`."
    onnx.helper.set_model_props(model, DESCRIPTION)
    onnx.checker.check_model(model, full_check=True)
    return model


def masks(network: SegNet, path: Path, image: NDArray[np.uint8]) -> dict[str, NDArray[np.bool_]]:
    """The coins found by torch, onnxruntime and unpool: name -> mask of the shape of `image`."""
    x = image[None, None].astype(np.float32)
    with torch.no_grad():
        logits = {"torch": network(torch.from_numpy(x)).numpy()}
    for name, runner in (("onnxruntime", onnxruntime.InferenceSession), ("unpool", unpool.InferenceSession)):
        logits[name] = runner(str(path)).run(["logits"], {"image": x})[0]
    return {name: values[0].argmax(axis=0) == CLASSES.index("coin") for name, values in logits.items()}


def report(found: dict[str, NDArray[np.bool_]], expected: NDArray[np.bool_]) -> float:
    """Print what each runner found, and return the lowest held-out IoU."""
    seen, held_out = slice(None, HELD_OUT_FROM), slice(HELD_OUT_FROM, None)
    lowest = 1.0
    print(f"\n{'runner':12}  {'IoU seen':>9}  {'IoU held out':>12}  {'pixels unlike torch':>19}")
    for name, mask in found.items():
        parts = [intersection_over_union(mask[:, part], expected[:, part]) for part in (seen, held_out)]
        lowest = min(lowest, parts[1])
        print(f"{name:12}  {parts[0]:9.4f}  {parts[1]:12.4f}  {int((mask != found['torch']).sum()):19d}")
    return lowest


def main() -> None:
    """Train, export, compare; fail when the network is not good enough or the runners differ."""
    parser = argparse.ArgumentParser(description="Train the coin SegNet and write it as ONNX.")
    parser.add_argument("-o", "--output", type=Path, default=SHIPPED, help="the file to write")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    image = photograph()
    expected = coin_mask(image)
    started = time.perf_counter()
    network = train(image[:, :HELD_OUT_FROM], expected[:, :HELD_OUT_FROM])
    print(f"trained in {time.perf_counter() - started:.0f} s")
    write(arguments.output, export(network).SerializeToString())
    print(f"wrote {arguments.output} ({arguments.output.stat().st_size / 1000:.0f} kB)")
    found = masks(network, arguments.output, image)
    if report(found, expected) < WANTED_IOU:
        raise SystemExit(f"the held-out IoU is below {WANTED_IOU}")
    if any((mask != found["torch"]).any() for mask in found.values()):
        raise SystemExit("the runners do not find the same mask")


if __name__ == "__main__":
    main()
