"""What `unpool run` was asked for, checked as far as that is possible without the model."""

from dataclasses import dataclass, field
from pathlib import Path

from unpool.cli.errors import UsageError
from unpool.cli.metadata import PixelRule
from unpool.cli.model import SessionOptions
from unpool.cli.outputs import PICTURE_FORMATS, WINDOW_FORMATS, Destination, refuse_terminal
from unpool.cli.tiles import TileOptions
from unpool.images.encode import FLAT_FORMATS
from unpool.images.overlay import Colour
from unpool.runtime.streams.output_transform import ScoreFormat


@dataclass(frozen=True)
class Request:
    """One command line.

    Attributes:
        wanted: the names of outputs; none for all.
        form: the format of the files in a folder, or of standard output.
        keep_going: leave out what cannot be read or does not fit, also where it is the only input.
        resume: go on with an unfinished run.
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
    tiles: TileOptions = field(default_factory=TileOptions)
    keep_going: bool = False
    as_json: bool = False
    resume: bool = False
    level: int = 0
    allow_empty: bool = False
    softmax: bool = False
    threshold: float | None = None

    @property
    def makes_classes(self) -> bool:
        """Whether scores become class numbers."""
        return self.argmax or self.overlay or self.threshold is not None

    @property
    def scores(self) -> ScoreFormat:
        """How scores are written, or drawn."""
        is_best = self.makes_classes and self.threshold is None
        return ScoreFormat(argmax=is_best, softmax=self.softmax, threshold=self.threshold)

    @property
    def format(self) -> str:
        """Format of the files: npy, npz, png, tif, zarr, nii or nii.gz."""
        return self.output.form or self.form or ("png" if self.makes_classes else "npy")

    @property
    def is_drawn(self) -> bool:
        """Whether classes become a picture with colours: an overlay, or a mask with a palette."""
        return self.overlay or (self.makes_classes and self.format in FLAT_FORMATS)

    @property
    def needs_windows(self) -> bool:
        """Whether the run goes through files window by window, whatever the size."""
        return self.resume or self.level > 0 or self.format == "zarr"

    @property
    def may_take_windows(self) -> bool:
        """Whether what is asked for can be written window by window."""
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
