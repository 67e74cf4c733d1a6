"""Nets: training, inference, evaluation and description, on files and on arrays.

Where a function reads a volume, it accepts a path, as the commands do, or an array (Z, Y, X) or (C, Z, Y, X). Arrays are
not copied. They give the same bits as files with the same voxels, type and spacing.
"""
from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core

Path = str | os.PathLike[str]
Volume = Path | npt.ArrayLike
Triple = Sequence[int] | int | None
Spacing = Sequence[float] | None
OnNote = Callable[[str], object] | None
OnShare = Callable[[float], object] | None

_BLENDS = ("ramp", "gaussian", "uniform")
_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64")


def _is_path(volume: object) -> bool:
    return isinstance(volume, (str, os.PathLike))


def _voxels(name: str, array: Any) -> npt.NDArray[Any]:
    """Returns an array as the library reads it: three or four axes, and one of its types."""
    a: npt.NDArray[Any] = np.asarray(array)
    if a.ndim not in (3, 4):
        raise _core.InvalidArgument(f"{name} has {a.ndim} axes; it must have (Z, Y, X) or (C, Z, Y, X)")
    if a.size == 0:
        raise _core.InvalidArgument(f"{name} has the shape {a.shape}; every axis needs at least one voxel")
    if a.dtype == np.bool_:
        a = a.view(np.uint8)
    elif a.dtype == np.float16:
        a = a.astype(np.float32)
    elif not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    if a.dtype.name not in _TYPES:
        raise TypeError(f"{name} has dtype {a.dtype}; use one of {', '.join(_TYPES)}")
    return a


def _triple(name: str, value: Triple) -> tuple[int, int, int] | None:
    if value is None:
        return None
    three = (value,) * 3 if isinstance(value, int) else tuple(value)
    if len(three) != 3:
        raise _core.InvalidArgument(f"{name} has {len(three)} numbers; it must have three, along Z, Y, X")
    return three[0], three[1], three[2]


def _spacing(value: Spacing) -> tuple[float, float, float] | None:
    if value is None:
        return None
    three = tuple(float(one) for one in value)
    if len(three) != 3 or not all(one > 0 and math.isfinite(one) for one in three):
        raise _core.InvalidArgument(f"spacing is {value!r}; it must be three positive lengths, along Z, Y, X")
    return three[0], three[1], three[2]


class _Volumes:
    """The paths of volumes. Those of arrays are valid while this object lives."""

    def __init__(self) -> None:
        self._named: list[_core.NamedVolume] = []

    def path(self, name: str, volume: Volume, spacing: Spacing = None) -> str:
        if _is_path(volume):
            return os.fspath(volume)  # type: ignore[arg-type]
        a = _voxels(name, volume)
        self._named.append(_core.NamedVolume(a, a.dtype.name, _spacing(spacing)))
        return self._named[-1].path


def _set(options: Any, **values: Any) -> Any:
    for name, value in values.items():
        try:
            setattr(options, name, value)
        except TypeError:
            raise TypeError(f"{name} cannot be {value!r}") from None
    return options


# The description of a data set as TOML.


def _toml(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, os.PathLike):
        return json.dumps(os.fspath(value), ensure_ascii=False)
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, Iterable):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    raise TypeError(f"data: {value!r} has no place in the description of a data set")


def _is_case(entry: Any) -> bool:
    return isinstance(entry, (tuple, list)) and len(entry) in (2, 3)


def _case(split: str, entry: Any, spacing: Spacing, volumes: _Volumes) -> str:
    """Returns the table of a case: (image, label), (image, label, mask), or a mapping with the keys of a data file."""
    if _is_case(entry):
        entry = dict(zip(("image", "label", "mask"), entry))
    if not isinstance(entry, Mapping):
        raise TypeError(f"data: a case of '{split}' is {type(entry).__name__}; use (image, label), (image, label, mask), "
                        "or a dict with these keys")
    table = dict(entry)
    own = table.get("spacing", spacing)
    arrays = False
    for key in ("image", "label", "mask"):
        if key not in table or _is_path(table[key]):
            continue
        several = key == "image" and isinstance(table[key], (list, tuple)) and all(_is_path(one) for one in table[key])
        if not several:
            table[key] = volumes.path(f"data: {key}", table[key], own)
            arrays = True
    if own is not None and not arrays:
        table["spacing"] = _spacing(own)
    elif arrays:
        table.pop("spacing", None)  # the arrays have it
    return f"[[{split}]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())


def _spacing_of(spacing: Any, split: str, case: int) -> Spacing:
    """Returns the spacing of a case: `spacing` holds one for all, or one per case of each split."""
    if isinstance(spacing, Mapping):
        return spacing[split][case]  # type: ignore[no-any-return]
    return spacing  # type: ignore[no-any-return]


def _description(data: Mapping[str, Any], spacing: Any, volumes: _Volumes) -> str:
    text = f"name = {_toml(data.get('name', 'arrays'))}\n"
    tables = {key: value for key, value in data.items() if key not in ("name", "train", "validation")}
    for key, value in tables.items():
        if not isinstance(value, Mapping):
            text += f"{key} = {_toml(value)}\n"
    for key, value in tables.items():
        if isinstance(value, Mapping):
            text += f"[{key}]\n" + "".join(f"{name} = {_toml(one)}\n" for name, one in value.items())
    for split in ("train", "validation"):
        for number, entry in enumerate(data.get(split, ())):
            text += _case(split, entry, _spacing_of(spacing, split, number), volumes)
    return text


def train(net: Path, data: Path | Mapping[str, Any], out: Path, *, spacing: Any = None, overrides: Sequence[str] = (),
          iterations: int | None = None, max_minutes: float = 0, seed: int | None = None, threads: int = 0,
          resume: bool = False, verify_data: bool = False, take_over: bool = False, memory: int = 0,
          engine: str = "automatic", low_error: bool = False, memory_budget: int | None = None, scratch_budget: int = 0,
          cache_spectra: bool = True, tune: bool = False, trace: Path = "", tensorboard: bool = False,
          on_progress: Callable[[_core.TrainProgress], object] | None = None,
          on_tune: Callable[[str, float], object] | None = None, on_note: OnNote = None) -> _core.TrainResult:
    """Trains a net, as `convolume train` does, and writes to the folder `out`.

    `data` is a data file, or a mapping with the same contents: "train" and "validation" are lists of cases, and a case
    is (image, label), (image, label, mask), or a mapping. Volumes are arrays or paths. Other keys are the tables of a
    data file, for example {"intensity": {"normalise": "volume"}, "augment": {"flip": ["y", "x"]}}. `spacing` is
    (Z, Y, X) for all cases, or {"train": [...], "validation": [...]} with one per case.

    Ctrl-C, and an exception of a callback, end the run with a checkpoint, from which `resume` continues.
    """
    volumes = _Volumes()
    options = _core.TrainOptions()
    if isinstance(data, Mapping):
        _set(options, data="data", data_text=_description(data, spacing, volumes))
    elif spacing is not None:
        raise _core.InvalidArgument("spacing is for arrays; write it into the data file, [[train]] spacing")
    else:
        _set(options, data=data)
    _set(options, net=net, out=out, overrides=list(overrides), iterations=iterations, max_minutes=max_minutes, seed=seed,
         threads=threads, resume=resume, verify_data=verify_data, take_over=take_over, memory=memory, engine=engine,
         low_error=low_error, memory_budget=memory_budget, scratch_budget=scratch_budget, cache_spectra=cache_spectra,
         tune=tune, trace=trace, tensorboard=tensorboard)
    return _core.train(options, on_progress, on_tune, on_note)


def _infer_options(checkpoint: Path, patch: Triple | str, overlap: Triple, begin: Triple, end: Triple, blend: str,
                   flip: str, **values: Any) -> _core.InferOptions:
    if blend not in _BLENDS:
        raise _core.InvalidArgument(f"blend is {blend!r}; use one of {', '.join(_BLENDS)}")
    if set(flip) - set("zyx"):
        raise _core.InvalidArgument(f"flip is {flip!r}; name axes, for example 'yx'")
    cheapest = patch == "auto"
    if isinstance(patch, str) and not cheapest:
        raise _core.InvalidArgument(f"patch is {patch!r}; use three numbers, along Z, Y, X, or 'auto'")
    return _set(_core.InferOptions(), checkpoint=checkpoint, cheapest_patch=cheapest,  # type: ignore[no-any-return]
                patch=None if isinstance(patch, str) else _triple("patch", patch), overlap=_triple("overlap", overlap),
                begin=_triple("begin", begin), end=_triple("end", end), blend=_BLENDS.index(blend),
                flip=["z" in flip, "y" in flip, "x" in flip], **values)


def infer(checkpoint: Path, volume: Volume, output: Path, *, channels: Sequence[Volume] = (),
          cases: Sequence[Volume] = (), as_uint8: bool = False, labels: bool = False, patch: Triple | str = None,
          overlap: Triple = None, begin: Triple = None, end: Triple = None, spacing: Spacing = None, orientation: str = "", blend: str = "ramp", flip: str = "",
          batch: int = 1, engine: str = "automatic", low_error: bool = False, memory: int = 0, threads: int = 0,
          resume: bool = False, take_over: bool = False, trace: Path = "", on_progress: OnShare = None,
          on_note: OnNote = None) -> None:
    """Predicts a volume of any size into a file, as `convolume infer` does.

    A classifier writes a table, "NAME.csv", instead: one row for `volume`, and one for each of `cases`.

    Ctrl-C, and an exception of a callback, keep the folder OUTPUT.part, from which `resume` continues.
    """
    volumes = _Volumes()
    options = _infer_options(checkpoint, patch, overlap, begin, end, blend, flip, as_uint8=as_uint8, labels=labels,
                             spacing=_spacing(spacing), orientation=orientation, batch=batch, engine=engine,
                             low_error=low_error, memory=memory, threads=threads, resume=resume, take_over=take_over,
                             trace=trace)
    _set(options, volume=volumes.path("volume", volume), output=output,
         channels=[volumes.path("channels", one) for one in channels],
         cases=[volumes.path("cases", one) for one in cases])
    _core.infer(options, on_progress, on_note)


class Predictor:
    """A net of a checkpoint that predicts arrays, with the bits of `convolume infer`.

    Plans, weights and memory are kept from call to call. The options are those of infer(). One thread at a time may use
    a predictor.
    """

    def __init__(self, checkpoint: Path, *, as_uint8: bool = False, labels: bool = False, patch: Triple | str = None,
                 overlap: Triple = None, begin: Triple = None, end: Triple = None, orientation: str = "",
                 blend: str = "ramp", flip: str = "", batch: int = 1, engine: str = "automatic", low_error: bool = False,
                 memory: int = 0, threads: int = 0) -> None:
        options = _infer_options(checkpoint, patch, overlap, begin, end, blend, flip, as_uint8=as_uint8, labels=labels,
                                 orientation=orientation, batch=batch, engine=engine, low_error=low_error,
                                 memory=memory, threads=threads)
        self._predictor = _core.Predictor(options)

    def __call__(self, volume: npt.ArrayLike, *, spacing: Spacing = None,
                 out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Returns probabilities (C, Z, Y, X), or what `labels` and `as_uint8` ask for.

        The volume is (Z, Y, X) or (C, Z, Y, X), in the units of the training data. `spacing` is that of its voxels; only
        nets that were trained with a target spacing need it.
        """
        a = _voxels("volume", volume)
        lengths = _spacing(spacing)
        dtype, shape = self._predictor.output_for(a, a.dtype.name, lengths)
        if out is None:
            out = np.empty(shape, dtype)
        elif out.shape != tuple(shape) or out.dtype.name != dtype or not out.flags.c_contiguous:
            raise _core.InvalidArgument(f"out has shape {out.shape} and dtype {out.dtype}; it must have {tuple(shape)} and "
                                        f"{dtype}, without gaps")
        elif not out.flags.writeable:
            raise _core.InvalidArgument("out cannot be written; pass an array that can")
        elif np.shares_memory(out, a):
            raise _core.InvalidArgument("out overlaps volume; pass another array")
        self._predictor.predict(a, a.dtype.name, lengths, out)
        return out


def evaluate(prediction: Volume, label: Volume, *, positive: Sequence[float] = (), classes: int = 0,
             ignore: Sequence[float] = (), threshold: float | None = None, begin: Triple = None, end: Triple = None,
             regions: Sequence[Sequence[float]] = (), on_note: OnNote = None) -> _core.Scores:
    """Compares a prediction with labels, as `convolume evaluate` does. scores["dice"] is one of the scores."""
    volumes = _Volumes()
    options = _set(_core.EvaluateOptions(), prediction=volumes.path("prediction", prediction),
                   label=volumes.path("label", label), positive=list(positive), classes=classes, ignore=list(ignore),
                   threshold=threshold, begin=_triple("begin", begin), end=_triple("end", end),
                   regions=[list(one) for one in regions])
    return _core.evaluate(options, on_note)


def convert(input: Volume, output: Path, *, begin: Triple = None, end: Triple = None, channel: int | None = None,
            orientation: str = "", nan: float | None = None, type: str = "", chunk: Triple = None, codec: str = "",
            spacing: Spacing = None, take_over: bool = False, on_progress: OnShare = None, on_note: OnNote = None) -> None:
    """Copies a volume, or a part of it, to a file, as `convolume convert` does. `spacing` is that of an array."""
    volumes = _Volumes()
    if spacing is not None and _is_path(input):
        raise _core.InvalidArgument("spacing is for arrays; a file has its own")
    options = _set(_core.ConvertOptions(), input=volumes.path("input", input, spacing), output=os.fspath(output),
                   begin=_triple("begin", begin), end=_triple("end", end), channel=channel, orientation=orientation,
                   nan=nan, type=type, chunk=_triple("chunk", chunk), codec=codec, take_over=take_over)
    _core.convert(options, on_progress, on_note)


def describe(file: Path, *, overrides: Sequence[str] = (), patch: Triple = None, threads: int = 0) -> str:
    """Returns what `convolume info` prints for a net, a checkpoint or a volume."""
    return _core.describe(os.fspath(file), list(overrides), _triple("patch", patch), threads)
