"""Removing text for good: `erase` takes whole records, `redact` takes spans out of them (DESIGN §10)."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from typing import Any

from middleout_mcp.errors import Conflict, InvalidInput, StoreClosed, StoreUnavailable
from middleout_mcp.jobs.upkeep import backfill
from middleout_mcp.memory.contract import ForgetOut
from middleout_mcp.memory.intake import key_name
from middleout_mcp.memory.parts import Parts
from middleout_mcp.records import Caller, Change, Episode, Filter, Grant, Memory, Operation, Status, Turn, new_id
from middleout_mcp.safety.hygiene import visible
from middleout_mcp.safety.nested import screen_json
from middleout_mcp.safety.screening import screen, screen_field
from middleout_mcp.words import episode_line, is_substantive, terms

logger = logging.getLogger(__name__)

_PAGE = 1000
_REMOVED = "[redacted]"
_MARK = re.compile(r"\[redacted(?::\w+)?\]")
_WITHHELD = "(not kept: it repeated words of what was erased)"
_GONE = "Erased: the text is in no file of the store any more, and neither this nor a restore brings it back."
_PENDING = (
    "Erased: no answer holds it any more. Its last bytes are overwritten as soon as no other process reads the file "
    "and the disk has room."
)


async def erase(
    parts: Parts, caller: Caller, memories: Sequence[Memory], episodes: Sequence[Episode], operation: Operation
) -> ForgetOut:
    """Erase the memories and episodes that `operation` names, and all that was derived from them."""
    said = [memory.text for memory in memories]
    said += [turn.text for turn in await _turns_of(parts, caller, memories, episodes)]
    operation = replace(operation, undoable=False, reason=_clean_reason(operation.reason, said))
    erasure = await parts.store.memories.erase(
        caller.grant, operation.memory_ids, operation.episode_ids, operation, agent=caller.confined_to
    )
    touched = {memory.episode_id for memory in memories if memory.episode_id} - set(operation.episode_ids)
    await _rewrite_lines(parts, caller, sorted(touched), operation)
    return ForgetOut(
        action="erase",
        affected=[*erasure.memory_ids, *operation.episode_ids],
        derived=list(erasure.dropped_summaries) or None,
        erasure="complete" if erasure.complete else "pending",
        operation_id=erasure.operation.id,
        notice=(_GONE if erasure.complete else _PENDING)
        + _went_along(erasure.operation)
        + _surfaced(memories, set(erasure.memory_ids)),
    )


def _went_along(operation: Operation) -> str:
    """What to say of the messages that the memories were filed from."""
    turns = operation.counts.get("turns", 0)
    if not turns:
        return ""
    return f" With it went {'the message' if turns == 1 else f'{turns} messages'} it was filed from."


def _surfaced(memories: Sequence[Memory], gone: set[str]) -> str:
    """What to say where a summary was erased by itself: what it was made from is found again."""
    sources = [parent for memory in memories for parent in memory.parents if parent not in gone]
    return (
        f" What it was made from is found again; erase that too if it must go: {', '.join(sources)}." if sources else ""
    )


def _clean_reason(reason: str | None, said: Sequence[str]) -> str | None:
    """The reason stays in the log, so it must not repeat what is erased."""
    if reason is None or set(terms(reason)).isdisjoint(term for text in said for term in terms(text)):
        return reason
    return _WITHHELD


async def _rewrite_lines(parts: Parts, caller: Caller, episode_ids: Sequence[str], operation: Operation) -> None:
    """Write the lines of episodes that lost a turn anew, from the turns that are left."""
    rewritten = []
    for episode in await parts.store.threads.episode(caller.grant, episode_ids):
        if episode.line or episode.last_seq < episode.first_seq:
            continue
        turns = await parts.store.threads.turns(
            caller.grant, episode.thread, first=episode.first_seq, last=episode.last_seq
        )
        left = [(turn.name or turn.role, turn.text) for turn in turns if not turn.erased]
        if left:
            rewritten.append(replace(episode, line=episode_line(left)))
    if rewritten:
        again = Operation(
            id=new_id("op"),
            namespace=operation.namespace,
            kind="reline",
            at=operation.at,
            agent=operation.agent,
            session=operation.session,
            episode_ids=tuple(episode.id for episode in rewritten),
            undoable=False,
        )
        try:
            await parts.store.memories.commit(caller.grant, Change(operation=again, episodes=tuple(rewritten)))
        except (Conflict, StoreUnavailable) as error:  # the erasure stands; the episodes stay without a line
            level = logging.INFO if isinstance(error, StoreClosed) else logging.WARNING
            logger.log(level, "The lines of %d episodes could not be written anew (%s)", len(rewritten), error.code)


@dataclass(slots=True)
class _Removal:
    """Takes spans, or every secret, out of texts, and counts what it found. A span is looked for as it was given and as
    it was stored: texts lose what is invisible, labels their compatibility characters, keys their case.
    """

    parts: Parts
    spans: Sequence[str] | None
    found: int = 0
    kinds: list[str] = field(default_factory=list)
    patterns: dict[Callable[[str], str], re.Pattern[str]] = field(default_factory=dict)

    def clean(self, text: str, stored: Callable[[str], str] = visible) -> str:
        """`text` without the spans, of which `stored` makes what is stored in such a field; marks of what was removed
        earlier stay as they are.
        """
        if self.spans is None:
            screened = screen(text, self.parts.find_secrets)
            self.kinds += screened.kinds
            self.found += len(screened.kinds)
            return screened.text
        if stored not in self.patterns:
            forms = [form for span in self.spans for form in (span, visible(span), stored(span)) if form.strip()]
            self.patterns[stored] = _pattern(list(dict.fromkeys(forms)))
        return self.patterns[stored].sub(self._remove, text)

    def label(self, text: str) -> str:
        """A name, tag or scope without the spans."""
        return self.clean(text, _as_label)

    def _remove(self, match: re.Match[str]) -> str:
        if _MARK.fullmatch(match[0]):
            return match[0]
        self.found += 1
        return _REMOVED

    def clean_data(self, value: Any) -> Any:
        """A JSON value whose strings are without the spans; of secrets, also what only its name gives away."""
        if self.spans is None:
            screened, kinds = screen_json(value, self.parts.find_secrets)
            self.kinds += kinds
            self.found += len(kinds)
            return screened
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, list):
            return [self.clean_data(entry) for entry in value]
        if isinstance(value, dict):
            return {self.clean(key): self.clean_data(entry) for key, entry in value.items()}
        return value

    def clean_memory(self, memory: Memory) -> Memory:
        """A memory without the spans, in text, key, value, scope, tags and holders.

        A reference that holds one is let go: a mark in its place would no longer be the caller's reference.
        """
        text = self.clean(memory.text)
        return replace(
            memory,
            text=text,
            tags=tuple(map(self.label, memory.tags)),
            known_by=None if memory.known_by is None else tuple(map(self.label, memory.known_by)),
            status=memory.status if _says_something(text) else Status.REDACTED,
            redacted=True,
            summary_id=None,  # the summary goes, and is made anew from what is left
            embedded=False,
            version=memory.version + 1,
            ref=memory.ref if memory.ref is None or self.clean(memory.ref) == memory.ref else None,
            key=None if memory.key is None else self.clean(memory.key, _as_key),
            value=self._clean_value(memory.key, memory.value),
            scope=None if memory.scope is None else self.label(memory.scope),
        )

    def clean_turn(self, turn: Turn) -> Turn:
        """A turn without the spans, in text, role, name, listeners and data."""
        return replace(
            turn,
            text=self.clean(turn.text),
            role=self.label(turn.role),
            name=None if turn.name is None else self.label(turn.name),
            present=None if turn.present is None else tuple(map(self.label, turn.present)),
            data=self.clean_data(turn.data),
        )

    def _clean_value(self, key: str | None, value: str | None) -> str | None:
        """The value of a key, which may say that it is a secret."""
        if value is None or self.spans is not None:
            return None if value is None else self.clean(value, _as_line)
        screened = screen_field(key or "", value, self.parts.find_secrets)
        self.kinds += screened.kinds
        self.found += len(screened.kinds)
        return screened.text


def _as_line(span: str) -> str:
    return " ".join(visible(span).split())


def _as_label(span: str) -> str:
    return " ".join(visible(span, "NFKC").split())


def _as_key(span: str) -> str:
    return key_name(_as_label(span))


def _pattern(spans: Sequence[str]) -> re.Pattern[str]:
    """The spans, longest first, and among them the marks of earlier removals, which shorter spans must not eat."""
    marked = [span for span in spans if _MARK.search(span)]
    plain = [span for span in spans if not _MARK.search(span)]
    ordered = [*map(re.escape, sorted(marked, key=len, reverse=True)), _MARK.pattern]
    return re.compile("|".join([*ordered, *map(re.escape, sorted(plain, key=len, reverse=True))]))


def _says_something(text: str) -> bool:
    return is_substantive(text.replace(_REMOVED, " "))


async def redact(
    parts: Parts,
    caller: Caller,
    memories: Sequence[Memory],
    episodes: Sequence[Episode],
    spans: Sequence[str] | None,
    operation: Operation,
) -> ForgetOut:
    """Remove the spans, or all detected secrets, wherever they occur in what the ids stand for.

    That is a memory with its earlier versions, the copies merged into it and the turns they were filed from, an episode
    with its turns and line; the caller adds the memories filed from an episode. Raises InvalidInput where nothing of it
    was found: nothing is changed then.
    """
    removal = _Removal(parts, spans)
    memories = [*memories, *await _merged_into(parts, caller, memories, operation.at)]
    turns = await _turns_of(parts, caller, memories, episodes)
    filed = await _episodes_of(parts, caller, memories, episodes)
    new_memories = await _cleaned(parts, caller, removal, memories, operation.at)
    new_turns = [removal.clean_turn(turn) for turn in turns]
    new_episodes = [replace(episode, line=removal.label(episode.line)) for episode in filed]
    if not removal.found:
        sought = "no secret" if spans is None else "none of the spans"
        raise InvalidInput(f"{sought} was found in what these ids stand for; nothing was changed")
    operation = replace(
        operation,
        memory_ids=tuple(memory.id for memory in new_memories),
        undoable=False,
        reason=_clean_reason(operation.reason, [*(spans or ()), *(memory.text for memory in memories)]),
        counts={"memories": len(new_memories), "turns": len(new_turns), "spans": removal.found},
    )
    done = await parts.store.memories.rewrite(caller.grant, new_memories, new_turns, new_episodes, operation)
    if new_memories:
        parts.later.put(lambda: backfill(parts))
    return ForgetOut(
        action="redact",
        affected=[*(memory.id for memory in new_memories), *(episode.id for episode in episodes)],
        operation_id=done.id,
        notice=f"Removed for good in {removal.found} {'place' if removal.found == 1 else 'places'}; what stood there "
        f"cannot be restored.{_named(removal, turns)}",
    )


async def _cleaned(
    parts: Parts, caller: Caller, removal: _Removal, memories: Sequence[Memory], now: datetime
) -> list[Memory]:
    """Those that hold a span, now or in an earlier version, without it; others keep their versions and their vector."""
    new = []
    for memory in memories:
        before = removal.found
        cleaned = replace(removal.clean_memory(memory), updated_at=now)
        for earlier in (await parts.store.memories.versions(caller.grant, memory.id))[:-1]:
            removal.clean_memory(earlier)
        if removal.found > before:
            new.append(cleaned)
    return new


async def _merged_into(parts: Parts, caller: Caller, winners: Sequence[Memory], now: datetime) -> list[Memory]:
    """The copies merged into these memories, to any depth: they say the same."""
    condition = Filter(
        now=now,
        agent=caller.confined_to,
        statuses=(Status.SUPERSEDED,),
        sensitive=True,
        compressed=True,
        hidden=True,
        ended_sessions=False,
    )
    grant = Grant.only(caller.grant.write)
    merged: dict[str, list[Memory]] = {}
    for start in count(0, _PAGE):
        page = await parts.store.memories.find(grant, condition, limit=_PAGE, offset=start)
        for memory in page:
            merged.setdefault(memory.merged_into or "", []).append(memory)
        if len(page) < _PAGE:
            break
    found = {memory.id: memory for memory in winners}
    waiting = list(winners)
    while waiting:
        fresh = [copy for copy in merged.get(waiting.pop().id, ()) if copy.id not in found]
        found |= {copy.id: copy for copy in fresh}
        waiting += fresh
    return list(found.values())[len(winners) :]


def _named(removal: _Removal, turns: Sequence[Turn]) -> str:
    """What to say where a span is also the caller's name for a conversation, which redacting leaves."""
    threads = {turn.thread for turn in turns}
    if all(removal.label(thread) == thread for thread in threads):
        return ""
    return " The name of the thread holds it too and stays, for a name is how a thread is found: erase its episodes."


async def _turns_of(
    parts: Parts, caller: Caller, memories: Sequence[Memory], episodes: Sequence[Episode]
) -> list[Turn]:
    found: dict[tuple[str, int], Turn] = {}
    for memory in memories:
        if memory.thread is None or not memory.turns:
            continue
        linked = set(memory.turns)
        turns = await parts.store.threads.turns(caller.grant, memory.thread, first=min(linked), last=max(linked))
        found |= {(turn.thread, turn.seq): turn for turn in turns if turn.seq in linked}
    for episode in episodes:
        turns = await parts.store.threads.turns(
            caller.grant, episode.thread, first=episode.first_seq, last=episode.last_seq
        )
        found |= {(turn.thread, turn.seq): turn for turn in turns}
    return list(found.values())


async def _episodes_of(
    parts: Parts, caller: Caller, memories: Sequence[Memory], episodes: Sequence[Episode]
) -> list[Episode]:
    ids = list(dict.fromkeys(memory.episode_id for memory in memories if memory.episode_id))
    filed = await parts.store.threads.episode(caller.grant, ids) if ids else []
    return list({episode.id: episode for episode in (*filed, *episodes)}.values())
