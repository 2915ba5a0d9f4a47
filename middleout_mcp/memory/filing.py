"""Placing messages in their thread, and the episode that a stretch of them becomes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from middleout_mcp.budget import count_tokens, cut_line
from middleout_mcp.conversation.capture import TurnDraft, align, stretch_key
from middleout_mcp.memory.intake import Intake
from middleout_mcp.memory.paging import TURN_OVERHEAD
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.sittings import Sitting
from middleout_mcp.records import Caller, Episode, Turn, new_id
from middleout_mcp.words import episode_line

_TAIL = 64  # how many stored turns beyond the given ones are searched for resent messages


@dataclass(frozen=True, slots=True)
class Stretch:
    """The messages of one call in their places: `seqs` has the sequence number of each, `fresh` the new turns."""

    thread: str | None
    drafts: tuple[TurnDraft, ...] = ()
    seqs: tuple[int, ...] = ()
    fresh: tuple[Turn, ...] = ()
    next_seq: int = 1

    def at(self, index: int, now: datetime) -> datetime:
        """When the message with this index was said."""
        return self.drafts[index].at or now


async def place(parts: Parts, caller: Caller, sitting: Sitting, intake: Intake, now: datetime) -> Stretch:
    """Find which messages are stored already and number the new ones. Without `thread`, the session is the thread."""
    needs_thread = bool(intake.turns) or intake.line is not None
    thread = intake.thread or (sitting.session.id if needs_thread else None)
    if thread is None:
        return Stretch(None)
    stored = await parts.store.threads.thread(caller.grant, thread)
    count = stored.turns if stored and stored.namespace == caller.grant.write else 0
    if not intake.turns:
        return Stretch(thread, next_seq=count + 1)
    tail = await parts.store.threads.tail(caller.grant, thread, len(intake.turns) + _TAIL) if count else []
    known = align(tail, intake.turns)
    seqs: list[int] = []
    fresh: list[Turn] = []
    for draft, stored_as in zip(intake.turns, known, strict=True):
        if stored_as is None:
            fresh.append(_turn(thread, count + 1 + len(fresh), draft, now))
        seqs.append(fresh[-1].seq if stored_as is None else stored_as)
    return Stretch(thread, intake.turns, tuple(seqs), tuple(fresh), count + len(fresh) + 1)


def _turn(thread: str, seq: int, draft: TurnDraft, now: datetime) -> Turn:
    return Turn(
        thread=thread,
        seq=seq,
        role=draft.role,
        text=draft.text,
        at=draft.at or now,
        at_given=draft.at is not None,
        name=draft.name,
        present=draft.present,
        data=draft.data,
    )


async def file_episode(
    parts: Parts, caller: Caller, sitting: Sitting, intake: Intake, stretch: Stretch, now: datetime
) -> Episode | None:
    """The episode of this call, without its memories.

    It covers the turns that are new. Where all were sent before, it is the stored one that holds them; that one changes
    only where a line is given for exactly the same turns.
    """
    if stretch.thread is None or not (stretch.drafts or intake.line):
        return None
    if stretch.drafts and not stretch.fresh:
        stored = await _holding(parts, caller, stretch)
        if stored is not None:
            same = (stored.first_seq, stored.last_seq) == (stretch.seqs[0], stretch.seqs[-1])
            return replace(stored, line=_line(intake, ())) if same and intake.line is not None else stored
    fresh = {turn.seq for turn in stretch.fresh} or set(stretch.seqs)
    drafts = [draft for draft, seq in zip(stretch.drafts, stretch.seqs, strict=True) if seq in fresh]
    key = stretch_key(drafts) if drafts else f"line:{int(now.timestamp() * 1000)}"
    times = [draft.at or now for draft in drafts] or [now]
    episode = Episode(
        id=new_id("e"),
        namespace=caller.grant.write,
        thread=stretch.thread,
        key=key,
        start=min(times),
        end=max(times),
        line=_line(intake, drafts),
        first_seq=min(fresh, default=stretch.next_seq),
        last_seq=max(fresh, default=stretch.next_seq - 1),
        tokens=sum(TURN_OVERHEAD + count_tokens(draft.text) for draft in drafts),
        agent=caller.agent,
        session=sitting.session.id,
        created_at=now,
    )
    taken = await parts.store.threads.episode_by_key(caller.grant, stretch.thread, key)
    return episode if taken is None else replace(episode, key=f"{key}:{episode.first_seq}")


async def _holding(parts: Parts, caller: Caller, stretch: Stretch) -> Episode | None:
    """The newest stored episode that holds all these turns."""
    first, last = min(stretch.seqs), max(stretch.seqs)
    episodes = await parts.store.threads.episodes(caller.grant, stretch.thread or "")
    holding = [one for one in episodes if one.first_seq <= first and last <= one.last_seq]
    return holding[-1] if holding and holding[-1].namespace == caller.grant.write else None


def _line(intake: Intake, drafts: Sequence[TurnDraft]) -> str:
    if intake.line is not None:
        return cut_line(intake.line)
    return episode_line([(draft.name or draft.role, draft.text) for draft in drafts])
