"""The grid of tiles, on one axis, against dependencies that are written out element by element."""

from dataclasses import dataclass
from fractions import Fraction

import hypothesis.strategies as st
from hypothesis import assume, given

from unpool.geometry import Span, Window, pooled_size, span_reaching, span_read, upsampled_size
from unpool.runtime.tiles.links import Edge, Link, Strides
from unpool.runtime.tiles.tiling import AxisGeometry, axis_cells, extent

WINDOWS = st.builds(Window, st.integers(1, 4), st.integers(1, 3), st.integers(1, 2))


@dataclass(frozen=True)
class Layer:
    """A walk over the value before, and the padding at its end; with `skips`, a second walk over a single tap joins."""

    link: Link
    end: int
    skips: bool

    def size(self, source):
        """Elements that it makes of `source` elements."""
        window, padding = self.link.window, self.link.begin + self.end
        if self.link.is_upsampling:
            return upsampled_size(source, window, padding=padding)
        return pooled_size(source, window, self.link.begin, self.end, ceil=False)


@st.composite
def layers(draw):
    """Walks whose padding is less than their window."""
    window, grows = draw(WINDOWS), draw(st.booleans())
    begin, end = (draw(st.integers(0, window.reach - 1)) for _ in range(2))
    return Layer(Link(window, begin, grows), end, draw(st.booleans()))


def sizes_of(network, size):
    """The size of the image and of what every layer makes."""
    found = [size]
    for layer in network:
        found.append(layer.size(found[-1]))
    return found


def geometry_of(network, size):
    """The same network as edges; a skip is a second edge that reads the element at the same place."""
    names = [f"v{number}" for number in range(len(network) + 1)]
    strides, edges = Strides(), []
    for layer, source, made in zip(network, names, names[1:], strict=False):
        edges.append(Edge(made, source, layer.link, made))
        if layer.skips:
            edges.append(Edge(made, source, skip_of(layer), made))
        assert strides.tie(made, source, layer.link.rate)
    sizes = dict(zip(names, sizes_of(network, size), strict=True))
    steps = {name: strides.between(name, "v0") for name in names}
    return AxisGeometry(size, sizes, steps, tuple(edges), ("v0",), (names[-1], names[len(names) // 2]))


def skip_of(layer):
    """A walk of the same stride over a single tap."""
    return Link(Window(1, layer.link.window.stride), 0, layer.link.is_upsampling)


def read_by(link, position, size):
    """The elements of an axis that an element depends on: the line of arithmetic, tap by tap."""
    window, taps = link.window, range(link.window.size)
    if not link.is_upsampling:
        found = {position * window.stride + tap * window.dilation - link.begin for tap in taps}
    else:
        back = {position + link.begin - tap * window.dilation for tap in taps}
        found = {large // window.stride for large in back if large % window.stride == 0}
    return {one for one in found if 0 <= one < size}


def dependencies(axis, output, position):
    """By value, every element that one element of an output depends on."""
    found = {output: {position}}
    for edge in reversed(axis.edges):
        for one in found.get(edge.value, ()):
            found.setdefault(edge.source, set()).update(read_by(edge.link, one, axis.sizes[edge.source]))
    return found


@given(st.lists(layers(), min_size=1, max_size=4), st.integers(5, 40), st.integers(1, 3))
def test_tiles_hold_all_that_their_results_depend_on(network, size, strides):
    """Kept elements cover every output once, and whatever they depend on lies in their tile, at every layer."""
    assume(min(sizes_of(network, size)) > 0)
    axis = geometry_of(network, size)
    assume(axis.stride * strides < size and max(axis.sizes.values()) < 300)
    found = list(axis_cells(axis, axis.stride * strides))
    for output in axis.outputs:
        kept = [place for part in found for place in range(*part.output_spans.get(output, Span(0, 0)))]
        assert kept == list(range(axis.sizes[output]))
    for part in found:
        assert part.begin % axis.stride == part.end % axis.stride == 0
        assert sizes_of(network, size - part.begin - part.end) == [
            span.stop - span.first for span in (part.span(axis, name) for name in axis.sizes)
        ]
        for output, span in part.output_spans.items():
            for position in range(*span):
                for name, read in dependencies(axis, output, position).items():
                    low, high = part.span(axis, name)
                    assert all(low <= one < high for one in read)


@given(st.lists(layers(), min_size=1, max_size=4))
def test_extents_hold_every_dependency(network):
    """Far from the ends, an element sees nothing outside of its halo, and no more than the receptive field."""
    size = 400
    axis = geometry_of(network, size)
    assume(min(axis.sizes.values()) > 0 and axis.stride < 40 and max(axis.sizes.values()) < 20_000)
    output = axis.outputs[0]
    sees = extent(axis, output)
    middle = int(size // 2 // axis.stride * axis.stride / sees.step)
    for position in range(middle, middle + int(axis.stride / sees.step)):
        seen = dependencies(axis, output, position).get("v0", ())
        for one in seen:
            assert position * sees.step - sees.before <= one < (position + 1) * sees.step + sees.after
        assert not seen or max(seen) - min(seen) + 1 <= sees.field


@given(WINDOWS, st.integers(-3, 4), st.integers(-5, 5), st.integers(1, 4))
def test_spans_are_those_of_the_line(window, begin, first, length):
    """Both walks give the span from the first to the last element that the line of arithmetic ties to a span."""
    span, taps = Span(first, first + length), range(window.size)
    covered = [place * window.stride + tap * window.dilation - begin for place in range(*span) for tap in taps]
    assert span_read(span, window, begin) == (min(covered), max(covered) + 1)
    reaching = [
        place
        for place in range(-40, 40)
        if place * window.stride - begin < span.stop and place * window.stride - begin + window.reach > span.first
    ]
    assert list(range(*span_reaching(span, window, begin))) == reaching


def test_known_receptive_fields():
    """The first pooling levels of VGG-16 see 6, 16 and 44 elements, as the literature has it."""
    conv, pool = Layer(Link(Window(3), 1), 1, False), Layer(Link(Window(2, 2)), 0, False)
    seen = []
    for levels in (1, 2, 3):
        network = [one for depth in (2, 2, 3)[:levels] for one in (*[conv] * depth, pool)]
        axis = geometry_of(network, 64)
        found = extent(axis, axis.outputs[0])
        seen.append((found.step, found.field))
    assert seen == [(Fraction(2), 6), (Fraction(4), 16), (Fraction(8), 44)]
