"""The options of `unpool run`, checked as far as that is possible without the model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from unpool.cli.errors import UsageError
from unpool.cli.metadata import PixelRule
from unpool.cli.model import SessionOptions
from unpool.cli.outputs import PICTURE_FORMATS, SEPARATORS, STDOUT, SUFFIXES, WINDOW_FORMATS, refuse_terminal
from unpool.images.encode import FLAT_FORMATS
from unpool.images.formats import suffix_of
from unpool.images.overlay import Colour
from unpool.runtime.streams.output_transform import ScoreFormat

AUTO = "auto"
OVERLAP = 0.25
"""Of neighbouring tiles that are blended, where the options do not say."""

_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class Destination:
    """A place for results; `form` is the format that its name says, None where it says none."""

    path: Path
    form: str | None = None
    is_stdout: bool = False

    @property
    def is_folder(self) -> bool:
        """True if each result gets a file of its own in this folder."""
        return self.form is None and not self.is_stdout

    def targets(self, stems: Sequence[str], form: str) -> dict[str, Path]:
        """Result name -> file.

        Raises:
            UsageError: several results for one file.

        >>> {stem: path.name for stem, path in Destination(Path("masks")).targets(["a", "b"], "png").items()}
        {'a': 'a.png', 'b': 'b.png'}
        """
        if self.is_folder:
            return {stem: self.path / f"{stem}.{form}" for stem in stems}
        if len(stems) > 1:
            raise UsageError(
                f"-o {self.path}: expected a folder for {len(stems)} results, got a place for one. "
                "Give a folder, with / at its end if it is new, and --format."
            )
        return {stems[0]: self.path}


@dataclass(frozen=True)
class RunConfig:
    """The options of one `unpool run`.

    Attributes:
        wanted: the names of outputs; none for all.
        form: the format of the files in a folder, or of standard output.
        tile: "auto", or elements by spatial axis; None runs the model on the whole image.
        max_memory: of the process, in bytes.
        blend: how overlapping tiles are averaged; None for exact tiles.
        overlap: of neighbouring tiles, as a share of the tile.
        keep_going: leave out what cannot be read or does not fit, also where it is the only input.
        resume: an interrupted run.
        level: of a pyramid.
        allow_empty: run images that are smaller than the model can use.
        softmax: write probabilities.
        threshold: from which on one channel of scores is class 1.
    """

    model: Path
    inputs: tuple[str, ...]
    output: Destination
    rule: PixelRule = field(default_factory=PixelRule)
    session: SessionOptions = field(default_factory=SessionOptions)
    wanted: tuple[str, ...] = ()
    argmax: bool = False
    overlay: bool = False
    classes: tuple[str, ...] | None = None
    palette: tuple[Colour, ...] | None = None
    alpha: float = 0.5
    form: str | None = None
    tile: tuple[int, ...] | str | None = None
    max_memory: int | None = None
    blend: str | None = None
    overlap: float = OVERLAP
    keep_going: bool = False
    as_json: bool = False
    resume: bool = False
    level: int = 0
    allow_empty: bool = False
    softmax: bool = False
    threshold: float | None = None

    @property
    def makes_classes(self) -> bool:
        """True if scores become class numbers."""
        return self.argmax or self.overlay or self.threshold is not None

    @property
    def scores(self) -> ScoreFormat:
        """The form in which scores are written or drawn."""
        is_best = self.makes_classes and self.threshold is None
        return ScoreFormat(argmax=is_best, softmax=self.softmax, threshold=self.threshold)

    @property
    def format(self) -> str:
        """Format of the files: npy, npz, png, tif, zarr, nii or nii.gz."""
        return self.output.form or self.form or ("png" if self.makes_classes else "npy")

    @property
    def is_drawn(self) -> bool:
        """True if classes become a picture with colours: an overlay, or a mask with a palette."""
        return self.overlay or (self.makes_classes and self.format in FLAT_FORMATS)

    @property
    def needs_windows(self) -> bool:
        """True if the run has to read and write files in windows."""
        return self.resume or self.level > 0 or self.format == "zarr"

    @property
    def may_take_windows(self) -> bool:
        """True if the outputs can be written in windows."""
        is_plain = not self.overlay and not self.output.is_stdout
        return self.format in WINDOW_FORMATS and is_plain

    def check(self) -> None:
        """Raise UsageError when the options contradict each other."""
        if self.output.is_stdout and self.as_json:
            raise UsageError("--json writes to standard output, and so does -o -. Leave one of them out.")
        if self.output.is_stdout:
            refuse_terminal()
        if self.form is not None and self.form != self.format:
            raise UsageError(
                f"--format {self.form}: -o {self.output.path} is a file of another format. Leave --format out."
            )
        if self.overlay and self.format not in PICTURE_FORMATS:
            raise UsageError(f"--overlay draws a picture, the output is .{self.format}. Write .png, .jpg or .tif.")
        if self.softmax and self.makes_classes:
            raise UsageError("--softmax writes probabilities, --argmax, --overlay and --threshold classes. Drop one.")
        if self.makes_classes and not self.overlay and self.format == "jpg":
            raise UsageError(
                f"-o {self.output.path}: .jpg changes numbers a little, which makes other classes of them. Write .png, "
                "or add --overlay."
            )
        if self.needs_windows and not self.may_take_windows:
            what = "--resume" if self.resume else "--level" if self.level else f".{self.format}"
            raise UsageError(
                f"{what}: works for .npy, .tif, .zarr and .nii, without --overlay and -o -. Leave them out."
            )
        if self.classes is not None and not self.makes_classes:
            raise UsageError("--classes names the classes of --argmax, --overlay or --threshold. Add one of them.")
        if self.palette is not None and not self.makes_classes:
            raise UsageError("--palette colours the classes of --argmax, --overlay or --threshold. Add one of them.")


def tile_options(
    tile: str | None, memory: str | None, blend: str | None = None, overlap: float | None = None
) -> dict[str, Any]:
    """The fields of a RunConfig for `--tile`, `--max-memory`, `--blend` and `--overlap`.

    A limit of memory by itself turns on tiles that keep it.

    >>> tile_options("512x384", None)["tile"], tile_options(None, "2GiB")["max_memory"]
    ((512, 384), 2147483648)
    """
    limit = None if memory is None else _bytes(memory)
    size: tuple[int, ...] | str | None = AUTO if tile == AUTO or (tile is None and memory) else None
    if tile is not None and tile != AUTO:
        if memory is not None and blend is None:
            raise UsageError(f"--max-memory: chooses the size of tiles, --tile {tile} says it. Leave one of them out.")
        parts = tile.lower().split("x")
        if not all(part.isdecimal() and int(part) for part in parts):
            raise UsageError(f"--tile: expected auto or sizes such as 512x512 or 64x128x128, got {tile!r}.")
        size = tuple(map(int, parts))
    if blend is None and overlap is not None:
        raise UsageError("--overlap needs --blend: exact tiles do not overlap.")
    if blend is not None and not isinstance(size, tuple):
        raise UsageError(f"--blend {blend}: needs the size of the tiles. Add it, such as --tile 512x512.")
    if overlap is not None and not 0 <= overlap < 1:
        raise UsageError(f"--overlap: expected 0 or more and below 1, got {overlap}.")
    return {"tile": size, "max_memory": limit, "blend": blend, "overlap": OVERLAP if overlap is None else overlap}


def _bytes(text: str) -> int:
    number = text.strip().rstrip("bBiIkKmMgG ")
    unit = _UNITS.get(text.strip()[len(number) :].strip().upper())
    try:
        if unit is not None and Fraction(number) > 0:
            return int(Fraction(number) * unit)
    except (ValueError, ZeroDivisionError):
        pass
    raise UsageError(f"--max-memory: expected a size such as 2GiB or 500MB, got {text!r}.")


def destination(text: str) -> Destination:
    """The destination of `-o`: `-` is standard output; a folder exists, or its name ends in a separator.

    Raises:
        UsageError: a name without a suffix that says what to write.

    >>> destination("masks/").is_folder, destination("mask.png").form
    (True, 'png')
    """
    path = Path(text)
    if text == STDOUT:
        return Destination(path, is_stdout=True)
    suffix = suffix_of(path)
    is_zarr = SUFFIXES.get(suffix) == "zarr"
    if not is_zarr and (path.is_dir() or text.endswith(SEPARATORS)):
        return Destination(path)
    if suffix in SUFFIXES:
        return Destination(path, SUFFIXES[suffix])
    folder = "" if suffix else f" For a new folder, write {path}{SEPARATORS[0]}"
    raise UsageError(
        f"-o {text}: expected a name that ends in {', '.join(SUFFIXES)}, a folder, or - for standard output, "
        f"got {suffix or 'no suffix'}.{folder}"
    )
