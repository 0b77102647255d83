"""The options of `unpool run`, checked as far as that is possible without the model."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from unpool.cli.class_texts import palette_of, split_names
from unpool.cli.errors import UsageError
from unpool.cli.options import Provider, number, numbers, optional, positive_numbers, semantics
from unpool.cli.outputs import SEPARATORS, STDOUT, refuse_terminal
from unpool.display import BYTE_UNITS
from unpool.images.formats import BY_NAME, WINDOW_NAMES, WRITTEN_SUFFIXES, FileFormat, format_of, suffix_of
from unpool.images.overlay import Colour
from unpool.runtime.streams.jobs import AUTO
from unpool.runtime.streams.output_transform import ScoreFormat

OVERLAP = 0.25  # share of a tile that neighbours have in common with --blend, by default
_UNITS = {"": 1, "B": 1, **{unit.upper(): size for unit, size in BYTE_UNITS.items()}}


@dataclass(frozen=True)
class RunConfig:
    """The options of one `unpool run`, as they are typed; None where an option is not given."""

    model: Path
    inputs: tuple[str, ...]
    output: Path  # a file or a folder, unless `is_stdout`
    named_format: str | None  # the format that the name of a file says; None for a folder, and for standard output
    is_stdout: bool = False
    output_names: tuple[str, ...] = ()
    white: float | None = None
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    layout: str = "nchw"
    pages: str | None = None
    argmax: bool = False
    threshold: float | None = None
    softmax: bool = False
    overlay: bool = False
    classes: tuple[str, ...] | None = None
    palette: tuple[Colour, ...] | None = None
    alpha: float = 0.5
    form: str | None = None
    tile: tuple[int, ...] | int | str | None = None  # "auto", or elements by axis, or for all; None: no tiles
    max_memory: int | None = None  # of the process, in bytes
    blend: str | None = None  # how overlapping tiles are averaged; None for exact tiles
    overlap: float = OVERLAP  # of neighbouring tiles, as a share of the tile
    resume: bool = False
    level: int = 0
    keep_going: bool = False
    allow_empty: bool = False
    compat: str = "spec"
    index_space: str = "auto"
    exact: bool = False
    threads: int | None = None
    provider: str = Provider.ONNXRUNTIME
    as_json: bool = False

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> "RunConfig":
        """The config of the options of the command, by the names of its parameters."""
        texts = {
            "white": positive_numbers, "scale": number, "mean": numbers, "std": positive_numbers, "threshold": number,
            "classes": lambda _, text: tuple(split_names(text)), "palette": palette_of,
        }  # fmt: skip
        values: dict[str, Any] = {name: optional(parse, f"--{name}", options[name]) for name, parse in texts.items()}
        if values["white"] is not None:
            values["white"] = values["white"][0]
        return cls(
            **{field.name: options[field.name] for field in fields(cls) if field.name in options}
            | values
            | {
                "inputs": tuple(options["inputs"]),
                "output": Path(options["output"]),
                "named_format": named_format(options["output"]),
                "is_stdout": options["output"] == STDOUT,
                "output_names": tuple(options["output_name"] or ()),
                **tile_options(options["tile"], options["max_memory"], options["blend"], options["overlap"]),
            }
        )

    @property
    def semantics(self) -> dict[str, Any]:
        """The keywords of a session for the meaning of operators."""
        return semantics(self.compat, self.index_space, exact=self.exact)

    @property
    def is_folder(self) -> bool:
        """True if each result gets a file of its own in the folder `output`."""
        return self.named_format is None and not self.is_stdout

    @property
    def makes_classes(self) -> bool:
        """True if scores become class numbers."""
        return self.argmax or self.overlay or self.threshold is not None

    @property
    def scores(self) -> ScoreFormat:
        """The form in which scores are written or drawn."""
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


def tile_options(tile: str | None, memory: str | None, blend: str | None, overlap: float | None) -> dict[str, Any]:
    """The fields of a RunConfig for `--tile`, `--max-memory`, which by itself turns on tiles, `--blend`, `--overlap`.

    >>> [tile_options(tile, None, None, None)["tile"] for tile in ("512x384", "512")]
    [(512, 384), 512]
    >>> tile_options(None, "2GiB", None, None)["max_memory"]
    2147483648
    """
    limit = None if memory is None else _bytes(memory)
    size: tuple[int, ...] | int | str | None = AUTO if tile == AUTO or (tile is None and memory) else None
    if tile is not None and tile != AUTO:
        if memory is not None and blend is None:
            raise UsageError(f"--max-memory: chooses the size of tiles, --tile {tile} says it. Leave one of them out.")
        parts = tile.lower().split("x")
        if not all(part.isdecimal() and int(part) for part in parts):
            raise UsageError(f"--tile: expected auto, or sizes such as 512, 512x384 or 64x128x128, got {tile!r}.")
        sizes = tuple(map(int, parts))
        size = sizes if len(sizes) > 1 else sizes[0]
    if blend is None and overlap is not None:
        raise UsageError("--overlap needs --blend: exact tiles do not overlap.")
    if blend is not None and not isinstance(size, tuple | int):
        raise UsageError(f"--blend {blend}: needs the size of the tiles. Add it, such as --tile 512.")
    if overlap is not None and not 0 <= overlap < 1:
        raise UsageError(f"--overlap: expected 0 or more and below 1, got {overlap}.")
    return {"tile": size, "max_memory": limit, "blend": blend, "overlap": OVERLAP if overlap is None else overlap}


def _bytes(text: str) -> int:
    number = text.strip().rstrip("bBiIkKmMgG ")
    unit = _UNITS.get(text.strip()[len(number) :].strip().upper())
    with suppress(ValueError, ZeroDivisionError):
        if unit is not None and Fraction(number) > 0:
            return int(Fraction(number) * unit)
    raise UsageError(f"--max-memory: expected a size such as 2GiB or 500MB, got {text!r}.")


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
