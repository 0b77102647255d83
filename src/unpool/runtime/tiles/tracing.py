"""One walk over a whole graph, and whether two walks for images of different sizes found the same."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shapes import Types
from unpool.runtime.tiles.rules.table import apply
from unpool.runtime.tiles.walk import Axes, Shape, Trace, Walk, refusal


def trace(
    graph: Graph, types: Types, semantics: Semantics, inputs: Mapping[str, Shape], tiled: Mapping[str, Axes]
) -> Trace:
    """How every value depends on the tiled inputs.

    Args:
        graph: with constants lifted.
        types: what is known of its values.
        semantics: of the operators of ours.
        inputs: the shape of every input that is fed.
        tiled: for the inputs that are cut, which spatial axis of the image each of their axes is.

    Raises:
        UnsupportedError: a node does not treat every position of the image alike; the message names it.
    """
    walk = Walk(graph, types, semantics, inputs, tiled)
    for node in graph.nodes:
        try:
            apply(walk, node)
        except UnpoolError:
            raise
        except (ArithmeticError, LookupError, ValueError) as error:  # sizes for which no runtime has a result
            raise refusal(node, f"cannot run on this size ({short_message(error)})") from error
    return walk.done()


def require_alike(whole: Trace, part: Trace, removed: Sequence[Mapping[str, Fraction]]) -> None:
    """Refuse a graph that treats an image of another size in another way.

    Args:
        whole: of the image.
        part: of a tile.
        removed: by spatial axis and value, how many elements the tile has less.

    Raises:
        UnsupportedError: a size does not follow that of the image, or a padding or a factor changes with it.
    """
    for name, field in whole.fields.items():
        less = [Fraction(0) if axis is None else removed[axis][name] for axis in field.axes]
        expected = tuple(size - gone for size, gone in zip(field.shape, less, strict=True))
        if part.fields[name].axes != field.axes:
            raise _changing(whole.nodes.get(name, name), "puts the axes of the image in another order for a tile")
        if part.fields[name].shape != expected:
            raise _changing(
                whole.nodes.get(name, name),
                f"makes {_text(part.fields[name].shape)} for a tile and "
                f"{_text(field.shape)} for the image: the size does not follow the image's",
            )
    for own, other in zip(whole.edges, part.edges, strict=True):
        for edge, same in zip(own, other, strict=True):
            if edge.link != same.link:
                raise _changing(edge.node, "pads or scales by the size of the image")
    for (node, name), values in whole.numbers.items():
        if part.numbers.get((node, name)) != values:
            raise _changing(f"node {node!r}", "computes with the size of the image")


def _changing(node: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"tiles: {node}: expected a node that treats images of every size alike, got one that {why}. "
        "Run the image whole."
    )


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))
