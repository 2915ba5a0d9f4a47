"""`ports.Clusterer` on HDBSCAN, in a process of its own.

HDBSCAN and what it imports take a hundred megabytes and seconds of processor time; a child gives both back when it
ends, and the server answers meanwhile. The child is this module: it reads the vectors from its standard input and
writes one label for each to its standard output. It takes one processor at most, yields that to whatever else wants
it, and ends with the process that started it, also where that was killed.
"""

import os
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import anyio

from middleout_mcp.errors import ClusteringFailed
from middleout_mcp.records import Vector

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats: TypeAlias = npt.NDArray[np.floating]
    Labels: TypeAlias = npt.NDArray[np.int64]

LEAST = 12
"""Fewer vectors than this are not clustered: nothing can recur often enough among them."""

SECONDS = 600.0
"""After so long the child is given up; 50,000 vectors took 19 s of processor time where this was measured."""

_DIMENSIONS = 20  # HDBSCAN on 384 dimensions takes ten times as long and finds no more (DESIGN §7)
_SMALLEST_CLUSTER = 3
_SAME_THEME = 0.85  # cosine of two centroids from which two clusters are one theme that the leaves split
_COHESIVE = 0.5  # mean cosine of the members to their centroid below which a cluster is none
_SAMPLE = 15_000  # of more vectors, a sample is clustered and the rest go to the nearest centroid


_ORPHANED_SECONDS = 0.5
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def _command() -> list[str]:
    """The child, which finds what this process finds: `-m` would look into the folder that it was started in as well,
    where a file of any name may lie.
    """
    start = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    return [sys.executable, "-I", "-c", start]


class Hdbscan:
    """Themes among vectors, found by a child process."""

    def __init__(self, command: Sequence[str] | None = None, *, seconds: float = SECONDS) -> None:
        self._given = command
        self._seconds = seconds

    async def cluster(self, vectors: Sequence[Vector]) -> list[int]:
        """See the port."""
        if len(vectors) < LEAST:
            return [-1] * len(vectors)
        head = array("q", [len(vectors), len(vectors[0]) // 4]).tobytes()
        try:
            with anyio.fail_after(self._seconds):
                answer = await self._answer(head + b"".join(vectors))
        except TimeoutError:
            raise ClusteringFailed(f"Looking for themes took longer than {self._seconds:g} s.") from None
        except OSError as error:
            raise ClusteringFailed(f"The process that looks for themes did not start ({error.strerror}).") from None
        labels = array("q")
        if len(answer) != 8 * len(vectors):
            raise ClusteringFailed("The process that looks for themes failed.")
        labels.frombytes(answer)
        return labels.tolist()

    async def _answer(self, question: bytes) -> bytes:
        """What the child wrote; nothing where it failed."""
        answer = b""
        try:
            done = await anyio.run_process(
                self._given or _command(),
                input=question,
                stderr=subprocess.DEVNULL,
                check=False,
                env={**os.environ, **_ONE_THREAD},
            )
            if done.returncode == 0:
                answer = done.stdout
        except* anyio.BrokenResourceError:
            pass  # it ended before it had read everything
        return answer


def main() -> None:
    """The child: vectors in, labels out."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    with suppress(AttributeError, OSError):  # there is no such thing on Windows
        os.nice(10)
    import numpy as np

    count, dimension = array("q", sys.stdin.buffer.read(16))
    points = np.frombuffer(sys.stdin.buffer.read(), dtype=np.float32).reshape(count, dimension)
    sys.stdout.buffer.write(np.asarray(_labels(points), dtype=np.int64).tobytes())


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone; where the system does not tell, at its own end."""
    while os.getppid() == parent:
        time.sleep(_ORPHANED_SECONDS)
    os._exit(1)


def _labels(points: "Floats") -> "Labels":
    """One label a row of `points` (n × d, float32), −1 for noise."""
    import numpy as np
    from hdbscan import HDBSCAN
    from sklearn.decomposition import PCA

    chosen = np.arange(len(points))
    if len(points) > _SAMPLE:
        chosen = np.sort(np.random.default_rng(0).choice(len(points), _SAMPLE, replace=False))
    unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    sample = unit[chosen]
    components = min(_DIMENSIONS, *sample.shape)
    flat = PCA(components, svd_solver="full" if len(sample) < 500 else "covariance_eigh").fit_transform(sample)
    found = HDBSCAN(
        min_cluster_size=_SMALLEST_CLUSTER, min_samples=1, cluster_selection_method="leaf", core_dist_n_jobs=1
    ).fit_predict(flat.astype(np.float64))
    labels = np.full(len(points), -1)
    labels[chosen] = found
    centroids = {label: _centroid(unit[labels == label]) for label in range(found.max() + 1)}
    merged = _merged(centroids)
    labels = np.array([merged.get(label, -1) for label in labels])
    return _cohesive(unit, labels)


def _centroid(members: "Floats") -> "Floats":
    import numpy as np

    mean: Floats = members.mean(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-12)


def _merged(centroids: "dict[int, Floats]") -> dict[int, int]:
    """Label to the label of its theme: a leaf split of one theme has centroids that are close."""
    theme: dict[int, int] = {}
    for label, centroid in centroids.items():
        near = [other for other in theme.values() if float(centroid @ centroids[other]) >= _SAME_THEME]
        theme[label] = near[0] if near else label
    return theme


def _cohesive(unit: "Floats", labels: "Labels") -> "Labels":
    """The labels without loose clusters; what has none joins the nearest centroid that is near enough."""
    import numpy as np

    kept = {}
    for label in sorted(set(labels.tolist()) - {-1}):
        members = unit[labels == label]
        centroid = _centroid(members)
        if float((members @ centroid).mean()) >= _COHESIVE:
            kept[label] = centroid
    labels = np.array([label if label in kept else -1 for label in labels.tolist()])
    if kept:
        names = np.array(list(kept))
        nearness = unit @ np.stack(list(kept.values())).T
        best = nearness.argmax(axis=1)
        near = nearness[np.arange(len(unit)), best] >= _SAME_THEME
        labels = np.where((labels == -1) & near, names[best], labels)
    return labels
