"""The archive of the library for onnxruntime, for programs without Python: its files, and what ends its making."""

import importlib.util
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.build.test_operator_library import compiled as compiled
from tests.onnxruntime.test_compile import array, session_of, volumes
from tests.support.c_program import host as host
from unpool import onnxruntime
from unpool.build.targets import TARGETS
from unpool.execute.plans import library_file
from unpool.kernels.cpu.machine import libraries
from unpool.onnxruntime import get_library_path, library

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("library_archive", ROOT / "packaging" / "library_archive.py")
library_archive = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(library_archive)

KERNELS = "#ifdef _WIN32\n__declspec(dllexport)\n#endif\nint NAME(void) { return 0; }\n"


def make_wheel(folder, target, operators, kernels, name=None):
    """A wheel for a target with two libraries, as far as an archive has its files."""
    path = folder / f"unpool-1.0.0-py3-none-{target.tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.write(operators, f"unpool/onnxruntime/lib/{name or operators.name}")
        wheel.write(kernels, f"unpool/libraries/{kernels.name}")
        wheel.writestr("unpool/libraries/manifest.json", "{}")
        wheel.write(library.SOURCES / "unpool.h", "unpool/onnxruntime/unpool.h")
        wheel.writestr("unpool/onnxruntime/register.py", "")
        wheel.write(ROOT / "LICENSE", "unpool-1.0.0.dist-info/licenses/LICENSE")
    return path


def make_kernels(folder, target, name):
    source, path = folder / "kernels.c", folder / target.file("level")
    source.write_text(KERNELS.replace("NAME", name))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target.name, "-shared", "-s", *target.link_options]
    subprocess.run([*command, "-o", str(path), str(source)], check=True)
    return path


def test_an_archive_has_what_a_program_needs(compiled, tmp_path):
    """For every platform: the libraries side by side, the header, the licence, and a page; the same when made again."""
    target = next(each for name, each in TARGETS.items() if compiled.parent.name.startswith(name))
    wheel = make_wheel(tmp_path, target, compiled, make_kernels(tmp_path, target, "unpool_kernel"))
    archive = library_archive.write_archive(wheel, tmp_path / "archives")
    name = f"libunpool-1.0.0-{target.tag}"
    assert archive.name == name + (".zip" if target.system == "Windows" else ".tar.gz")
    content = archive.read_bytes()
    with zipfile.ZipFile(archive) if target.system == "Windows" else tarfile.open(archive) as opened:
        names = opened.namelist() if target.system == "Windows" else opened.getnames()
    pair = sorted([compiled.name, target.file("level")])
    files = ["LICENSE", "README.md", "include/unpool.h", *(f"lib/{each}" for each in pair)]
    assert names == [f"{name}/{file}" for file in files]
    library_archive.write_archive(wheel, tmp_path / "archives")
    assert archive.read_bytes() == content


@pytest.mark.parametrize(
    ("glibc", "machine", "function", "words"),
    [
        ("2.17", "x86_64", "helper", "exports helper"),
        ("2.17", "x86_64", "RegisterCustomOps", "a library of operators and its kernels are wanted"),
        ("2.17", "aarch64", "unpool_kernel", r"several platforms: lib/libunpool\.so, lib/unpool_level\.so"),
        ("2.38", "x86_64", "unpool_kernel", r"libunpool\.so needs glibc 2\.3\d"),
    ],
)
def test_other_libraries_are_refused(glibc, machine, function, words, tmp_path):
    """Names that could take a program's place, kernels of another platform, and a newer glibc than the wheel's."""
    target, operators = TARGETS["x86_64-linux-gnu.2.17"], tmp_path / "libunpool.so"
    library.compile_library(f"x86_64-linux-gnu.{glibc}", target.system, operators)
    kernels = make_kernels(tmp_path, TARGETS[f"{machine}-linux-gnu.2.17"], function)
    wheel = make_wheel(tmp_path, target, operators, kernels)
    with pytest.raises(SystemExit, match=words):
        library_archive.write_archive(wheel, tmp_path)


@pytest.mark.parametrize(("command", "suffix"), [(["cc", "-std=c11"], ".c"), (["c++", "-std=c++17"], ".cpp")])
def test_the_header_is_c_and_cpp(command, suffix, tmp_path):
    """Alone in a file, without a warning; its names are the entries that the library reads."""
    source = tmp_path / f"program{suffix}"
    source.write_text('#include "unpool.h"\nconst char *name = UNPOOL_TRUST_PLANS;\n')
    words = [sys.executable, "-m", "ziglang", *command, "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*words, f"-I{library.SOURCES}", "-c", str(source), "-o", str(tmp_path / "out")], check=True)


@pytest.mark.skipif(library_file() is None, reason="the kernels of this installation are not shipped")
@pytest.mark.skipif(sys.platform != "linux", reason="the example is built for Linux")
def test_a_program_runs_with_an_unpacked_archive(host, tmp_path):
    """With the two files of one folder, and nothing else of unpool."""
    kernels = libraries.FOLDER / library_file()
    target = next(each for each in TARGETS.values() if each.file(libraries.level()) == kernels.name)
    wheel = make_wheel(tmp_path, target, Path(get_library_path()), kernels)
    archive = library_archive.write_archive(wheel, tmp_path)
    with tarfile.open(archive) as content:
        content.extractall(tmp_path, filter="data")
    made, path, x = volumes(), tmp_path / "model.onnx", array(1, 8, 4, 8, 8)
    (expected,) = session_of(made).run(None, {"x": x})
    onnx.save(onnxruntime.compile(made), path)
    x.tofile(tmp_path / "x")
    (program,), environment = host
    operators = tmp_path / archive.name.removesuffix(".tar.gz") / "lib" / "libunpool.so"
    words = [program, operators, path, ",".join(map(str, x.shape)), tmp_path / "x", tmp_path / "y"]
    done = subprocess.run(list(map(str, words)), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.fromfile(tmp_path / "y", np.float32).reshape(expected.shape), expected)
