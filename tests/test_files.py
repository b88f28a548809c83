"""Hostile files are refused in one line; what is written is whole or not there."""

from __future__ import annotations

import io
import os
import pickle
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tl_topk.files import FileError, load_arrays, load_integers, open_scores, save_npz
from tl_topk.placement import bits_of

SCORES = np.random.default_rng(0).standard_normal((20, 50)).astype(np.float32)
Write = Callable[[Path], None]


def numpy_bytes(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def declared(shape: tuple[int, ...]) -> bytes:
    """An .npy that declares ``shape`` and holds next to nothing."""
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + bytes(100)


def archive(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return stream.getvalue()


def tensors(**arrays: Any) -> bytes:
    from safetensors.torch import save

    return save({name: torch.tensor(array) for name, array in arrays.items()})


NPY, NPZ, TENSORS = numpy_bytes(SCORES), archive(scores=numpy_bytes(SCORES)), tensors(scores=SCORES)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


class Mine:
    """Unpickling it would be noticed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.abort, ()


OBJECTS = numpy_bytes(np.array([Mine(), 1], object), allow_pickle=True)

HOSTILE = {
    "empty.npy": b"",
    "cut header.npy": NPY[:50],
    "cut data.npy": NPY[:-1],
    "junk.npy": b"no array at all " * 20,
    "pickle.npy": pickle.dumps(SCORES),
    "objects.npy": OBJECTS,
    "huge.npy": declared((10**12, 10**5)),
    "negative.npy": declared((-1, 5)),
    "version.npy": NPY[:6] + b"\x09" + NPY[7:],
    "header.npy": NPY[:10] + b"__import__('os').abort()".ljust(118) + NPY[128:],
    "double.npy": numpy_bytes(SCORES.astype(np.float64)),
    "integers.npy": numpy_bytes(SCORES.astype(np.int32)),
    "structure.npy": numpy_bytes(np.zeros(3, [("a", "f4")])),
    "void.npy": numpy_bytes(np.zeros((2, 3), "V2")),
    "text.npy": numpy_bytes(np.array(["a", "b"])),
    "scalar.npy": numpy_bytes(np.float32(3)),
    "cube.npy": numpy_bytes(SCORES.reshape(2, 10, 50)),
    "empty.npz": b"",
    "junk.npz": b"hello",
    "no arrays.npz": archive(),
    "two.npz": archive(p=NPY, q=NPY),
    "cut.npz": NPZ[: len(NPZ) // 2],
    "checksum.npz": flipped(NPZ, 3000),
    "objects.npz": archive(scores=OBJECTS),
    "huge.npz": archive(scores=declared((10**12, 10**5))),
    "inner cut.npz": archive(scores=NPY[:-1]),
    "empty.safetensors": b"",
    "junk.safetensors": b"no tensors at all " * 20,
    "cut.safetensors": TENSORS[:-1],
    "header.safetensors": (2**60).to_bytes(8, "little") + TENSORS[8:],
    "double.safetensors": tensors(scores=SCORES.astype(np.float64)),
    "two.safetensors": tensors(p=SCORES, q=SCORES),
    "scores.txt": NPY,
    "scores": NPY,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scores(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    with pytest.raises(FileError) as caught:
        open_scores(path).read(0, 1)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


def test_no_ordinary_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.npy")
    (tmp_path / "directory.npy").mkdir()
    (tmp_path / "broken.npy").symlink_to("nowhere")
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    for name in ("fifo", "directory", "broken", "loop", "absent"):
        with pytest.raises(FileError, match=f"{name}.npy: "):
            open_scores(tmp_path / f"{name}.npy")


@contextmanager
def not_root() -> Iterator[None]:
    """Root may read everything: meanwhile this process is nobody."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("name", ["scores.npy", "scores.npz", "scores.safetensors"])
def test_unreadable(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(NPY)
    path.chmod(0)
    with not_root(), pytest.raises(FileError, match="Permission denied"):
        open_scores(path)


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
def test_through_a_symbolic_link(suffix: str, tmp_path: Path) -> None:
    """Of a link the name counts, not that of what it leads to."""
    (tmp_path / "target").write_bytes({"npy": NPY, "npz": NPZ, "safetensors": TENSORS}[suffix])
    link = tmp_path / f"link.{suffix}"
    link.symlink_to("target")
    assert (open_scores(link).read(0, 20) == SCORES).all()
    (tmp_path / f"pipe.{suffix}").symlink_to("fifo")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileError, match="pipe"):
        open_scores(tmp_path / f"pipe.{suffix}")


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("plain.npy", NPY),
        ("swapped.npy", numpy_bytes(SCORES.astype(">f4"))),
        ("fortran.npy", numpy_bytes(np.asfortranarray(SCORES))),
        ("plain.npz", NPZ),
        ("only.npz", archive(anything=NPY)),
        ("picked.npz", archive(scores=NPY, other=numpy_bytes(SCORES[:3]))),
        ("plain.safetensors", TENSORS),
    ],
)
def test_sound_scores(name: str, data: bytes, tmp_path: Path) -> None:
    file = open_scores(written(tmp_path / name, data))
    assert (file.rows, file.width, file.dtype) == (20, 50, "float32")
    assert (file.read(0, 20) == SCORES).all()
    block = file.read(7, 9)
    assert (block == SCORES[7:9]).all()
    assert block.flags.c_contiguous
    assert block.dtype.isnative


def test_one_dimension(tmp_path: Path) -> None:
    for name, data in (("a.npy", numpy_bytes(SCORES[0])), ("b.safetensors", tensors(s=SCORES[0]))):
        file = open_scores(written(tmp_path / name, data))
        assert file.shape == (50,)
        assert (file.read(0, 1) == SCORES[:1]).all()


def test_bfloat16(tmp_path: Path) -> None:
    scores = torch.from_numpy(SCORES).bfloat16()
    save_file({"scores": scores}, tmp_path / "b.safetensors")
    file = open_scores(tmp_path / "b.safetensors")
    assert file.dtype == "bfloat16"
    assert (bits_of(file.read(3, 5)) == bits_of(scores[3:5])).all()


def test_a_name(tmp_path: Path) -> None:
    path = written(tmp_path / "two.npz", archive(p=NPY, q=numpy_bytes(SCORES[:3])))
    assert open_scores(path, "q").rows == 3
    with pytest.raises(FileError, match=r"no array 'r', only 'p' or 'q'"):
        open_scores(path, "r")
    with pytest.raises(FileError, match="one array without a name"):
        open_scores(written(tmp_path / "a.npy", NPY), "q")


def test_the_file_is_not_changed(tmp_path: Path) -> None:
    path = written(tmp_path / "a.npy", NPY)
    block = open_scores(path).read(0, 20)
    block[:] = 7
    assert path.read_bytes() == NPY


def test_integers(tmp_path: Path) -> None:
    path = tmp_path / "lengths.npy"
    for dtype in (np.int32, np.int64, ">i8", np.uint8, np.int16):
        np.save(path, np.arange(20).astype(dtype))
        found = load_integers(path, "lengths", 20)
        assert found.dtype == np.int64
        assert (found == np.arange(20)).all()
    for bad in (np.arange(20.0), np.arange(19), np.zeros((20, 1), int), np.zeros(20, np.uint64)):
        np.save(path, bad)
        with pytest.raises(FileError, match="lengths: expected"):
            load_integers(path, "lengths", 20)
    path.write_bytes(OBJECTS)
    with pytest.raises(FileError, match="never unpickled"):
        load_integers(path, "lengths", 20)


class TestSaving:
    def test_round_trip(self, tmp_path: Path) -> None:
        save_npz(tmp_path / "out.npz", {"a": SCORES, "b": np.asarray(3)})
        found = load_arrays(tmp_path / "out.npz")
        assert (found["a"] == SCORES).all()
        assert found["b"] == 3
        assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]

    def test_mode_is_that_of_any_new_file(self, tmp_path: Path) -> None:
        (tmp_path / "plain").touch()
        save_npz(tmp_path / "out.npz", {"a": SCORES})
        assert (tmp_path / "out.npz").stat().st_mode == (tmp_path / "plain").stat().st_mode
        (tmp_path / "out.npz").chmod(0o640)
        save_npz(tmp_path / "out.npz", {"a": SCORES})
        assert (tmp_path / "out.npz").stat().st_mode & 0o777 == 0o640

    def test_through_a_symbolic_link(self, tmp_path: Path) -> None:
        (tmp_path / "link.npz").symlink_to("target.npz")
        save_npz(tmp_path / "link.npz", {"a": SCORES})
        assert (tmp_path / "link.npz").is_symlink()
        assert load_arrays(tmp_path / "target.npz")

    def test_no_ordinary_file(self, tmp_path: Path) -> None:
        (tmp_path / "directory.npz").mkdir()
        for path in (
            tmp_path / "directory.npz",
            tmp_path / "absent" / "out.npz",
            Path("/dev/full"),
        ):
            with pytest.raises(FileError, match=str(path)):
                save_npz(path, {"a": SCORES})
        assert len(list(tmp_path.iterdir())) == 1

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError(28, "disk full")])
    def test_interrupted(self, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The old file stays as it was, and nothing stands beside it."""
        path = written(tmp_path / "out.npz", b"old")

        def savez(stream: Any, **arrays: Any) -> None:
            stream.write(b"half")
            raise error

        monkeypatch.setattr(np, "savez", savez)
        with pytest.raises((FileError, KeyboardInterrupt, SystemExit)):
            save_npz(path, {"a": SCORES})
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]

    def test_disk_full(self, tmp_path: Path) -> None:
        """A real failure of write(2): files of this process may hold no more than 4096 bytes."""
        path = tmp_path / "out.npz"
        result = subprocess.run(
            [
                sys.executable,
                "-c",
                "import numpy, sys; from tl_topk.files import *\n"
                "try: save_npz(sys.argv[1], {'a': numpy.zeros(10**6)})\n"
                "except FileError as error: sys.exit(str(error))",
                str(path),
            ],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert result.stderr == f"{path}: File too large\n"
        assert list(tmp_path.iterdir()) == []


def test_only_archives_of_arrays(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"must be an \.npz"):
        load_arrays(written(tmp_path / "a.npy", NPY))
    with pytest.raises(FileError, match="never unpickled"):
        load_arrays(written(tmp_path / "a.npz", archive(x=OBJECTS)))


def test_damaged_compression(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("scores.npy", numpy_bytes(SCORES))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 200] = bytes(200)
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"scores\.npz"):
        open_scores(path)
