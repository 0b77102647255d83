"""The work of `unpool compare`: runtimes on one model, or two models, as data and as lines."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.exits import FINDINGS, OK, UNSUPPORTED, UsageError
from unpool.cli.feeds import one_feed
from unpool.cli.model import SessionOptions, open_session, slots
from unpool.cli.upgrade import sizes_of
from unpool.errors import suggest_name

if TYPE_CHECKING:
    from unpool.runtime.compare.compared import Comparison
    from unpool.runtime.compare.difference import Tolerance


def compare_files(
    paths: Sequence[Path],
    against: str | None,
    inputs: Sequence[str],
    sizes: Sequence[str],
    tolerance: "Tolerance",
    options: SessionOptions,
) -> "Comparison":
    """The record of the library's `compare`.

    Args:
        paths: one model or two.
        against: runtimes with commas between.
        inputs: `-i` arguments for one run; none for random numbers.
        sizes: `--size` arguments, for inputs made of random numbers.
        tolerance: what two values may differ by.
        options: of our session.
    """
    from unpool.runtime.compare.compare import compare

    words = None if against is None else words_of(against)
    feed = one_feed(inputs, slots(open_session(paths[0], options))) if inputs else None
    semantics: dict[str, Any] = {
        "compat": str(options.compat),
        "index_space": str(options.index_space),
        "exact": options.exact,
    }
    return compare(*paths, against=words, feed=feed, sizes=sizes_of(sizes), tolerance=tolerance, **semantics)


def words_of(text: str) -> list[str]:
    """The runtimes of `--against`.

    >>> words_of("onnxruntime, torch")
    ['onnxruntime', 'torch']
    """
    from unpool.runtime.compare.running import WORDS

    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in WORDS]
    if unknown or not words:
        raise UsageError(
            f"--against: expected some of {', '.join(WORDS)}, got {text!r}. "
            f"{suggest_name(unknown[0] if unknown else '', WORDS)}"
        )
    return words


def exit_code_of(done: "Comparison") -> int:
    """1 where anything differs, of two models an output, else 4 where a runtime refuses anything, else 0."""
    if done.departs:
        return FINDINGS
    return UNSUPPORTED if done.refuses else OK


def to_json(done: "Comparison") -> dict[str, Any]:
    """The same as JSON types."""
    peers = [{**asdict(peer), "departs": peer.departs} for peer in done.peers]
    return {**asdict(done), "peers": peers, "departs": done.departs}
