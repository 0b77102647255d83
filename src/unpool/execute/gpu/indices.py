"""Indices of tensors on a GPU, from counting inside their own plane to counting in the whole tensor, and back.

As `unpool.indices`. The device is not waited for: an index outside its plane becomes -1, and is reported later.
"""

import math
from functools import partial

import numpy as np
import torch

from unpool.errors import IndicesError
from unpool.execute.gpu.tensors import numpy_type, tensor_of
from unpool.execute.gpu.verdicts import judge, raise_known
from unpool.indices import outside_its_plane

__all__ = ["numpy_type", "renumbered", "tensor_of"]


def renumbered(where: str, i: torch.Tensor, spatial: tuple[int, ...]) -> torch.Tensor:
    """Indices (N, C, d1..dk) into planes of these sizes, counted as `where`, "to_onnx_indices" or its reverse, says.

    Raises:
        IndicesError: an earlier call had an index that was wrong.
    """
    raise_known()
    plane = math.prod(spatial)
    bases = torch.arange(i.shape[0] * i.shape[1], device=i.device).mul_(plane).view(*i.shape[:2], *[1] * len(spatial))
    is_whole = where == "to_torch_indices"
    inside = torch.where(i == -1, i, i - bases) if is_whole else i
    is_wrong = (inside < -1) | (inside >= plane)
    if i.numel():
        first = is_wrong.flatten().to(torch.uint8).argmax()
        verdict = torch.stack((is_wrong.any().to(torch.int64), first, inside.take(first)))
        judge(verdict, "later", partial(_error, where, tuple(i.shape), plane))
    return torch.where(is_wrong | (inside == -1), -1, inside if is_whole else inside + bases)


def _error(where: str, shape: tuple[int, ...], plane: int, verdict: list[int]) -> IndicesError | None:
    is_wrong, first, value = verdict
    place = map(int, np.unravel_index(first, shape))
    return outside_its_plane(where, plane, value, place) if is_wrong else None
