"""Several clients, each with a server process of its own on one file, that call at random, are killed and come back."""

import json
import random
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.server.connect import Child, child

WORDS = "amber birch cedar delta ember flint grove heron inlet juniper kelp larch maple nectar ochre pearl".split()


@dataclass
class Shared:
    """What all clients know: every acknowledged memory by id, what is (being) taken away, and what went wrong."""

    until: float
    least: int
    """So many calls, and a kill, there are in any case."""
    stored: dict[str, str] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    erased: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    calls: int = 0
    kills: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def over(self) -> bool:
        """Whether clients may leave."""
        return time.monotonic() >= self.until and self.calls >= self.least and self.kills > 0

    def pick(self, dice: random.Random) -> tuple[str, str] | None:
        """Some acknowledged memory that nobody takes away."""
        with self.lock:
            left = [pair for pair in self.stored.items() if pair[0] not in self.touched]
        return dice.choice(left) if left else None

    def take(self, dice: random.Random) -> str | None:
        """One that from now on only the caller takes away."""
        with self.lock:
            left = [memory_id for memory_id in self.stored if memory_id not in self.touched]
            if len(left) < 5:
                return None
            chosen = dice.choice(left)
            self.touched.add(chosen)
            return chosen


class Client:
    """One client: one server after another, each until it is killed."""

    def __init__(self, number: int, home: Path, shared: Shared, **environment: str) -> None:
        self.number = number
        self.home = home
        self.shared = shared
        self.environment = environment
        self.dice = random.Random(number)
        self.written = 0

    def run(self) -> None:
        """Call until the time is over."""
        while not self.shared.over():
            with child(self.home, **self.environment) as server:
                try:
                    server.shake_hands()
                    ended = self._live(server)
                except ValueError:  # no answer: it has ended by itself
                    raise AssertionError(server.leave()[2].decode()[-3000:]) from None
                if ended:
                    code, _, err = server.leave()
                    if code or b"Traceback" in err or b"ERROR" in err:
                        self.shared.errors.append(err.decode()[-500:])

    def _live(self, server: Child) -> bool:
        """Calls until the time is over, or until it is killed in the middle of one."""
        often, rarely = (
            (self._remember, self._find, self._open),
            (self._erase, self._archive, self._converse, self._expire),
        )
        kinds: list[Callable[[Child], None]] = [*often * 6, *rarely * 2, self._compress]
        for _ in range(self.dice.randint(15, 45)):
            if self.shared.over():
                return True
            self.dice.choice(kinds)(server)
        self._begin_something(server)
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(self.dice.random() * 0.05)
        server.process.kill()
        with self.shared.lock:
            self.shared.kills += 1
        return False

    def _call(self, server: Child, tool: str, **arguments: Any) -> dict[str, Any]:
        result = server.call(tool, **arguments)
        with self.shared.lock:
            self.shared.calls += 1
            if result.get("isError"):
                self.shared.errors.append(f"{tool}: {result['content'][0]['text']}")
        return {} if result.get("isError") else result["structuredContent"]

    def _text(self) -> str:
        self.written += 1
        words = " ".join(self.dice.sample(WORDS, 4))
        return f"Client{self.number}item{self.written} keeps {words} on shelf {self.written} since {self.written}:15."

    def _remember(self, server: Child) -> None:
        texts = [self._text() for _ in range(self.dice.choice([1, 1, 1, 3, 12]))]
        answer = self._call(server, "remember", memories=texts)
        with self.shared.lock:
            for text, result in zip(texts, answer.get("results", ()), strict=False):
                self.shared.stored[result["id"]] = text

    def _converse(self, server: Child) -> None:
        text = self._text()
        turns = [{"role": "user", "text": text}, {"role": "assistant", "text": "Noted."}]
        answer = self._call(server, "remember", memories=[text], messages=turns, thread=f"thread of {self.number}")
        with self.shared.lock:
            self.shared.stored[answer["results"][0]["id"]] = text

    def _expire(self, server: Child) -> None:
        self._call(server, "remember", memories=[{"text": f"It ends: {self._text()}", "expires": "PT1S"}])

    def _open(self, server: Child) -> None:
        """What anyone was told is stored is there for everyone, word for word."""
        chosen = self.shared.pick(self.dice)
        if chosen is None:
            return
        result = server.call("open_episode", id=chosen[0])
        found = result.get("structuredContent", {}).get("text")
        with self.shared.lock:
            self.shared.calls += 1
            if found != chosen[1] and chosen[0] not in self.shared.touched:
                self.shared.errors.append(f"{chosen} opened as {json.dumps(result)[:300]}")

    def _find(self, server: Child) -> None:
        """The newest that anyone was told is stored is recalled by its own word, or a summary stands for it."""
        with self.shared.lock:
            gone = set(self.shared.erased)
            newest = next(
                ((i, t) for i, t in reversed(self.shared.stored.items()) if i not in self.shared.touched), None
            )
        if newest is None:
            return
        answer = self._call(server, "recall", query=newest[1].split()[0], limit=5)
        items = answer.get("items", [])
        found = newest[0] in [item["id"] for item in items] or any(item["kind"] == "summary" for item in items)
        with self.shared.lock:
            if not found and newest[0] not in self.shared.touched:
                self.shared.errors.append(f"{newest} is not recalled: {[item['text'] for item in items]}")
            for item in items:
                if item["id"] in gone:
                    self.shared.errors.append(f"erased {item['id']} came back")

    def _erase(self, server: Child) -> None:
        chosen = self.shared.take(self.dice)
        if chosen is not None and self._call(server, "forget", ids=[chosen], action="erase").get("erasure"):
            with self.shared.lock:
                self.shared.erased[chosen] = self.shared.stored.pop(chosen)

    def _archive(self, server: Child) -> None:
        chosen = self.shared.take(self.dice)
        if chosen is not None:
            self._call(server, "forget", ids=[chosen], action="archive")

    def _compress(self, server: Child) -> None:
        self._call(server, "compress", dry_run=self.dice.random() < 0.3)

    def _begin_something(self, server: Child) -> None:
        """A call that is never answered: it is done whole, or not at all."""
        if self.dice.random() < 0.5:
            texts = [f"Unheard: {self._text()}" for _ in range(20)]
            server.begin("tools/call", name="remember", arguments={"memories": texts})
        else:
            server.begin("tools/call", name="compress", arguments={"dry_run": False})


def run_all(home: Path, count: int, seconds: float, least: int) -> Shared:
    """So many clients for so many seconds, every other one without an embedder; what they were told."""
    shared = Shared(time.monotonic() + seconds, least)
    failures: list[BaseException] = []

    def live(client: Client) -> None:
        try:
            client.run()
        except BaseException as error:
            failures.append(error)
            raise

    embedders = {number: {"MIDDLEOUT_EMBEDDER": "none"} if number % 2 else {} for number in range(count)}
    clients = [Client(number, home, shared, **environment) for number, environment in embedders.items()]
    threads = [threading.Thread(target=live, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return shared
