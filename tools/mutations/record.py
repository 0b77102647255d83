"""One deliberate fault in the source, on one line."""

from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path("src/unpool")
PASSES = "passes"


@dataclass(frozen=True)
class Mutation:
    """A patch that has to make the tests fail.

    Attributes:
        rule: number of the rule in docs/semantics.md that it breaks, "3.2"; PASSES for what passes of a session keep.
        file: below src/unpool.
        old: what is replaced, part of one line; occurs exactly once in the file.
        new: what stands there instead.
        breaks: what goes wrong then.
        suite: the file of the tests that have to notice; "" for the examples of the rule, and the contract's tests.
    """

    rule: str
    file: str
    old: str
    new: str
    breaks: str
    suite: str = ""

    @property
    def path(self) -> Path:
        """The file, from the root of the checkout."""
        return PACKAGE / self.file

    def line(self, root: Path) -> int:
        """Number of the line that changes, counted from 1; 0 where the old text does not occur exactly once."""
        text = self.source(root)
        return text[: text.index(self.old)].count("\n") + 1 if text.count(self.old) == 1 else 0

    def source(self, root: Path) -> str:
        """The file as it is."""
        return (root / self.path).read_text(encoding="utf-8")

    def patched(self, root: Path) -> str:
        """The file with the fault."""
        return self.source(root).replace(self.old, self.new)
