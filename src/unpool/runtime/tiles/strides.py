"""How far apart the elements of values are, along one axis: every value's stride relative to every other's."""

from fractions import Fraction


class Strides:
    """Strides that are known relative to each other, and become one system where a node joins two of them.

    >>> strides = Strides()
    >>> strides.tie("pooled", "image", Fraction(2)), strides.tie("pooled", "mask", Fraction(1))
    (True, True)
    >>> strides.between("mask", "image"), strides.between("image", "other")
    (Fraction(2, 1), None)
    """

    def __init__(self) -> None:
        self._above: dict[str, tuple[str, Fraction]] = {}

    def tie(self, made: str, source: str, rate: Fraction) -> bool:
        """Note that one element of `made` is as long as `rate` elements of `source`; False if it is known otherwise."""
        (top, stride), (other, base) = self._top(made), self._top(source)
        if top == other:
            return stride == rate * base
        self._above[top] = other, rate * base / stride
        return True

    def between(self, name: str, unit: str) -> Fraction | None:
        """How many elements of `unit` one element of `name` is long; None where no node joins them."""
        (top, stride), (other, base) = self._top(name), self._top(unit)
        return stride / base if top == other else None

    def _top(self, name: str) -> tuple[str, Fraction]:
        """The value that a system is measured in, and the stride of `name` in its elements."""
        stride = Fraction(1)
        while name in self._above:
            name, rate = self._above[name]
            stride *= rate
        return name, stride
