"""The torch module that `module:callable` names, as web servers name what they serve."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.exits import UsageError, one_line
from unpool.errors import MissingFileError, UnpoolError

if TYPE_CHECKING:
    import torch

LONGEST = 300  # characters of a foreign message


def torch_module(text: str, weights: Path | None) -> "torch.nn.Module":
    """The module, in evaluation mode.

    Args:
        text: `package.module:callable` or `file.py:callable`; the callable takes no arguments and gives a module, or
            it is a module already. Modules are also looked for in the current folder.
        weights: a file of `torch.save(module.state_dict())` to load into it.

    Raises:
        UsageError: the text names nothing of the kind.
        UnpoolError: it fails, gives no module, or the weights do not fit.
    """
    import torch

    place, colon, path = text.rpartition(":")
    if not (place and colon and path):
        raise UsageError(
            f"{text}: expected module:callable, such as nets:segnet or nets.py:SegNet. Put a colon between both."
        )
    found: Any = _imported(place, text)
    for name in path.split("."):
        if not hasattr(found, name):
            known = ", ".join(one for one in dir(found) if callable(getattr(found, one)) and not one.startswith("_"))
            raise UsageError(f"{text}: {place} has no {path}; it has {known[:LONGEST] or 'nothing to call'}. Name one.")
        found = getattr(found, name)
    if not isinstance(found, torch.nn.Module) and callable(found):
        found = _called(found, text)
    if not isinstance(found, torch.nn.Module):
        raise UnpoolError(f"{text}: expected a torch.nn.Module, got {type(found).__name__}. Name what makes a module.")
    if weights is not None:
        _load(found, weights)
    return found.eval()


def _imported(place: str, text: str) -> Any:
    """A module by its name, or by its file."""
    if place.endswith(".py"):
        return _from_file(Path(place), text)
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(
                f"{text}: expected a module of Python, there is no {error.name} here or in {Path.cwd()}. "
                "Change to its folder, install it, or name a file such as nets.py:make."
            ) from error
        raise _failed(text, error) from error
    except Exception as error:
        raise _failed(text, error) from error
    finally:
        sys.path.remove(str(Path.cwd()))


def _from_file(path: Path, text: str) -> Any:
    if not path.is_file():
        raise MissingFileError(f"{path}: expected a file of Python, got no such file. Check the path.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(text, error) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _called(maker: Any, text: str) -> Any:
    try:
        return maker()
    except Exception as error:
        raise _failed(text, error) from error


def _load(module: "torch.nn.Module", weights: Path) -> None:
    import torch

    try:
        module.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    except FileNotFoundError as error:
        raise MissingFileError(f"{weights}: expected a file of weights, got no such file. Check the path.") from error
    except Exception as error:
        raise UnpoolError(
            f"--weights {weights}: expected a state_dict of the module, got: {_brief(error)}. "
            "Save it with torch.save(module.state_dict(), path)."
        ) from error


def _failed(text: str, error: Exception) -> UnpoolError:
    kind = type(error).__name__
    return UnpoolError(
        f"{text}: expected it to give a module when called without arguments, got {kind}: {_brief(error)}. "
        "Name a callable without required arguments."
    )


def _brief(error: Exception) -> str:
    return one_line(error)[:LONGEST].rstrip(".")
