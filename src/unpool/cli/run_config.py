"""The options of `unpool run`, each declared once, and what follows from them without the model."""

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unpool.cli import options
from unpool.cli.class_texts import palette_of, split_names
from unpool.cli.errors import UsageError
from unpool.cli.options import Choice, Flag, Parser, number, numbers, positive_number, positive_numbers, text_option
from unpool.cli.outputs import SEPARATORS, STDOUT, refuse_terminal
from unpool.display import BYTE_UNITS
from unpool.images.formats import BY_NAME, FORMATS, WINDOW_NAMES, WRITTEN_SUFFIXES, FileFormat, format_of, suffix_of
from unpool.images.overlay import Colour

if TYPE_CHECKING:
    from unpool.runtime.streams.output_transform import ScoreFormat

AUTO = "auto"  # for --tile: tiles that fit into memory
OVERLAP = 0.25  # by default
_UNITS = {"": 1, "B": 1, **{unit.upper(): size for unit, size in BYTE_UNITS.items()}}

READ = ", ".join(each.suffixes[0] for each in FORMATS)
WRITTEN = ", ".join(each.suffixes[0] for each in FORMATS if each.is_written)
INPUT_HELP = f"{READ}, a folder of these, or - for standard input; NAME=PATH if the model has several inputs."
OUTPUT_HELP = f"{WRITTEN}; a folder (end a new one with /) for one file per input; or - for standard output."
NAME_HELP = "Output of the model to write; repeat it for .npz, or for a folder with one file per output."
WHITE_HELP = "Pixel value of white, which is rescaled to 255, e.g. 4095 for 12-bit data; 255 disables rescaling."
MEAN_HELP = "Subtract from the pixels after --scale; one value, or one per channel."
STD_HELP = "Divide the pixels after --mean; one value, or one per channel."
PAGES_HELP = "Treat the pages of a .tif as a batch; in turn if the batch size of the model is fixed."
PAGES_DEFAULT = "depth of a volume; channels, if the model has as many"
THRESHOLD_HELP = "For one channel of scores: class 1 above it, else class 0. Use 0.5 for probabilities, 0 for logits."
PALETTE_HELP = "Colours of the classes, #rrggbb, comma separated."
FORMAT_HELP = "Format of the files in an output folder, or of standard output."
FORMAT_DEFAULT = "png for classes and --overlay, else npy"
TILE_HELP = "Run in tiles, with the same results: 512 along every axis, 512x256 by axis, or auto to fit memory."
MEMORY_HELP = "Memory limit of the process, e.g. 2GiB; implies --tile auto."
MEMORY_DEFAULT = "with --tile auto, half of the free memory"
KEEP_GOING_HELP = "Skip inputs that cannot be read or do not fit the model; the exit code is then 1."
EMPTY_HELP = "Run images that are smaller than the smallest input of the model, so that inner values are empty."
BLEND_HELP = "Average overlapping tiles, for models that cannot be tiled exactly (global pooling, attention)."
OVERLAP_HELP = "Overlap of neighbouring tiles, 0 to 0.9 (only with --blend)."
SCHEDULER_HELP = "Run the tiles on the Dask cluster at this address; needs --tile N and a .zarr, .npy or .tif output."


def tile_size(option: str, text: str) -> tuple[int, ...] | int | str:
    """Elements by axis, or for all axes, or "auto".

    >>> tile_size("--tile", "512x384"), tile_size("--tile", "512")
    ((512, 384), 512)
    """
    parts = text.lower().split("x")
    if text == AUTO:
        return text
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"{option}: expected auto, or sizes such as 512, 512x384 or 64x128x128, got {text!r}.")
    sizes = tuple(map(int, parts))
    return sizes if len(sizes) > 1 else sizes[0]


def byte_size(option: str, text: str) -> int:
    """A number of bytes.

    >>> byte_size("--max-memory", "2GiB")
    2147483648
    """
    digits = text.strip().rstrip("bBiIkKmMgG ")
    unit = _UNITS.get(text.strip()[len(digits) :].strip().upper())
    with suppress(ValueError, ZeroDivisionError):
        if unit is not None and Fraction(digits) > 0:
            return int(Fraction(digits) * unit)
    raise UsageError(f"{option}: expected a size such as 2GiB or 500MB, got {text!r}.")


def class_names(_: str, text: str) -> tuple[str, ...]:
    """Names of classes."""
    return tuple(split_names(text))


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The options of one `unpool run`; None where an option is not given."""

    model: options.ModelPath
    inputs: Annotated[list[str], typer.Option("-i", "--input", metavar="[NAME=]PATH", help=INPUT_HELP)]
    target: Annotated[str, typer.Option("-o", "--output", metavar="PATH", help=OUTPUT_HELP)]
    output_name: Annotated[list[str] | None, text_option("NAME", NAME_HELP, "all")] = None
    white: Annotated[
        float | None, text_option("NUMBER", WHITE_HELP, "by the file or the model"), Parser(positive_number)
    ] = None
    scale: Annotated[
        float | None, text_option("NUMBER", "Multiply pixels, e.g. 1/255.", "by the model"), Parser(number)
    ] = None
    mean: Annotated[tuple[float, ...] | None, text_option("NUMBERS", MEAN_HELP, "by the model"), Parser(numbers)] = None
    std: Annotated[
        tuple[float, ...] | None, text_option("NUMBERS", STD_HELP, "by the model"), Parser(positive_numbers)
    ] = None
    layout: options.LayoutWord = options.Layout.NCHW
    argmax: Annotated[bool, Flag("--argmax", help="Write the class with the highest score.")] = False
    pages: Annotated[options.Pages | None, Choice(help=PAGES_HELP, show_default=PAGES_DEFAULT)] = None
    threshold: Annotated[float | None, text_option("NUMBER", THRESHOLD_HELP), Parser(number)] = None
    softmax: Annotated[bool, Flag("--softmax", help="Write probabilities: the softmax over the classes.")] = False
    overlay: Annotated[bool, Flag("--overlay", help="Draw the classes over the image, with a legend.")] = False
    classes: Annotated[
        tuple[str, ...] | None,
        text_option("NAMES", "Class names, comma separated.", "from the model"),
        Parser(class_names),
    ] = None
    palette: Annotated[
        tuple[Colour, ...] | None, text_option("COLOURS", PALETTE_HELP, "from the model"), Parser(palette_of)
    ] = None
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Strength of the colours of --overlay.")] = 0.5
    form: Annotated[options.Format | None, Choice("--format", help=FORMAT_HELP, show_default=FORMAT_DEFAULT)] = None
    tile: Annotated[
        tuple[int, ...] | int | str | None,
        text_option("auto|N|HxW", TILE_HELP, "the whole image at once"),
        Parser(tile_size),
    ] = None
    max_memory: Annotated[int | None, text_option("SIZE", MEMORY_HELP, MEMORY_DEFAULT), Parser(byte_size)] = None
    keep_going: Annotated[bool, Flag("--keep-going", help=KEEP_GOING_HELP)] = False
    allow_empty: Annotated[bool, Flag("--allow-empty", help=EMPTY_HELP)] = False
    blend: Annotated[options.Blend | None, Choice(help=BLEND_HELP, show_default="exact")] = None
    overlap: Annotated[float | None, text_option("SHARE", OVERLAP_HELP, str(OVERLAP))] = None
    resume: Annotated[bool, Flag("--resume", help="Resume an interrupted tiled run.")] = False
    level: Annotated[int, typer.Option(min=0, help="Resolution level of a .tif or .zarr pyramid; 0 is full size.")] = 0
    scheduler: Annotated[str | None, text_option("ADDRESS", SCHEDULER_HELP, "this machine")] = None
    threads: options.Threads = None
    compat: options.CompatWord = options.Compat.SPEC
    index_space: options.IndexWord = options.IndexSpace.AUTO
    exact: options.Exact = False
    provider: options.ProviderWord = options.Provider.ONNXRUNTIME
    as_json: options.Json = False
    quiet: options.Quiet = False
    verbose: options.Verbose = False

    @property
    def output(self) -> Path:
        """The file or the folder, unless `is_stdout`."""
        return Path(self.target)

    @property
    def is_stdout(self) -> bool:
        """True if the result goes to standard output."""
        return self.target == STDOUT

    @cached_property
    def named_format(self) -> str | None:
        """The format that the name of the output says; None for a folder, and for standard output."""
        return named_format(self.target)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs of the model that are written; empty for all."""
        return tuple(self.output_name or ())

    @property
    def tiles(self) -> tuple[int, ...] | int | str | None:
        """The size of tiles; None for no tiles. A limit of memory alone asks for tiles that fit."""
        return AUTO if self.tile is None and self.max_memory is not None else self.tile

    @property
    def tile_overlap(self) -> float:
        """The overlap of neighbouring tiles, as a share of the tile."""
        return OVERLAP if self.overlap is None else self.overlap

    @property
    def semantics(self) -> dict[str, Any]:
        """The keywords of a session for the meaning of operators."""
        return options.semantics(self.compat, self.index_space, exact=self.exact)

    @property
    def is_folder(self) -> bool:
        """True if each result gets a file of its own in the folder `output`."""
        return self.named_format is None and not self.is_stdout

    @property
    def makes_classes(self) -> bool:
        """True if scores become class numbers."""
        return self.argmax or self.overlay or self.threshold is not None

    @property
    def scores(self) -> "ScoreFormat":
        """The form in which scores are written or drawn."""
        from unpool.runtime.streams.output_transform import ScoreFormat

        return ScoreFormat(self.makes_classes and self.threshold is None, self.softmax, self.threshold)

    @property
    def format(self) -> str:
        """Format of the files: npy, npz, png, jpg, tif, zarr, nii or nii.gz."""
        return self.named_format or self.form or ("png" if self.makes_classes else "npy")

    @property
    def file_format(self) -> FileFormat:
        """The record of the format of the files."""
        return BY_NAME[self.format]

    @property
    def is_drawn(self) -> bool:
        """True if classes become a picture with colours: an overlay, or a mask with a palette."""
        return self.overlay or (self.makes_classes and bool(self.file_format.channels))

    @property
    def needs_windows(self) -> bool:
        """True if the run has to read and write files in windows."""
        return self.resume or self.level > 0 or self.format == "zarr"

    @property
    def may_take_windows(self) -> bool:
        """True if the outputs can be written in windows."""
        return self.file_format.windows is not None and not self.overlay and not self.is_stdout

    def check(self) -> None:
        """Raise UsageError when the options contradict each other."""
        if self.is_stdout and self.as_json:
            raise UsageError("--json writes to standard output, and so does -o -. Leave one of them out.")
        if self.is_stdout:
            refuse_terminal()
        if self.form is not None and self.form != self.format:
            raise UsageError(f"--format {self.form}: -o {self.output} is a file of another format. Leave --format out.")
        if self.overlay and not self.file_format.is_drawable:
            raise UsageError(f"--overlay draws a picture, the output is .{self.format}. Write .png, .jpg or .tif.")
        if self.softmax and self.makes_classes:
            raise UsageError("--softmax writes probabilities, --argmax, --overlay and --threshold classes. Drop one.")
        if self.makes_classes and not self.overlay and self.format == "jpg":
            fact = ".jpg changes numbers a little, which makes other classes of them"
            raise UsageError(f"-o {self.output}: {fact}. Write .png, or add --overlay.")
        if self.needs_windows and not self.may_take_windows:
            option = "--resume" if self.resume else "--level" if self.level else f".{self.format}"
            *names, last = (f".{name}" for name in WINDOW_NAMES)
            fact = f"works for {', '.join(names)} and {last}, without --overlay and -o -"
            raise UsageError(f"{option}: {fact}. Leave them out.")
        for option, value in (("--classes names", self.classes), ("--palette colours", self.palette)):
            if value is not None and not self.makes_classes:
                raise UsageError(f"{option} the classes of --argmax, --overlay or --threshold. Add one of them.")
        self._check_tiles()

    def _check_tiles(self) -> None:
        """Raise UsageError when the options of tiles contradict each other."""
        has_size = isinstance(self.tile, tuple | int)
        if has_size and self.max_memory is not None and self.blend is None:
            fact = "chooses the size of tiles, --tile says it"
            raise UsageError(f"--max-memory: {fact}. Leave one of them out.")
        if self.blend is None and self.overlap is not None:
            raise UsageError("--overlap needs --blend: exact tiles do not overlap.")
        if self.blend is not None and not has_size:
            raise UsageError(f"--blend {self.blend}: needs the size of the tiles. Add it, such as --tile 512.")
        if self.overlap is not None and not 0 <= self.overlap < 1:
            raise UsageError(f"--overlap: expected 0 or more and below 1, got {self.overlap}.")


def named_format(text: str) -> str | None:
    """The format that the name of an output says; None for `-`, and for a folder, which exists or ends in a separator.

    >>> named_format("masks/"), named_format("mask.png")
    (None, 'png')
    """
    path, suffix = Path(text), suffix_of(Path(text))
    known = format_of(path)
    if text == STDOUT or (not (known and known.is_folder) and (path.is_dir() or text.endswith(SEPARATORS))):
        return None
    if known is not None and known.is_written:
        return known.name
    folder = "" if suffix else f" For a new folder, write {path}{SEPARATORS[0]}"
    expected = f"a name that ends in {', '.join(WRITTEN_SUFFIXES)}, a folder, or - for standard output"
    raise UsageError(f"-o {text}: expected {expected}, got {suffix or 'no suffix'}.{folder}")
