"""What one `remember` call will write: new memories, changes to stored ones, turns, an episode, uses.

Planning reads the store and draws ids, but writes nothing, so that it can be done again after a conflict.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from middleout_mcp.conversation.capture import EventDraft, events, is_by_rule, link_turns, rule_ref, shown_ref
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.memory.applying import release
from middleout_mcp.memory.changes import Changes, differing
from middleout_mcp.memory.contract import RememberedOut, RememberIn
from middleout_mcp.memory.filing import Stretch, file_episode, place
from middleout_mcp.memory.intake import Intake, MemoryDraft
from middleout_mcp.memory.items import anothers_private
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.sittings import Sitting
from middleout_mcp.policy import DEFAULTS, USED
from middleout_mcp.records import (
    Action,
    Caller,
    Episode,
    Grant,
    Kind,
    Memory,
    Source,
    Status,
    TaskState,
    Trust,
    Use,
    new_id,
)
from middleout_mcp.retention.duplicates import merged_fields, same_claim
from middleout_mcp.words import fold

_GIVEN_AS = {"expires_at": "expires"}


@dataclass(slots=True)
class Plan:
    """Everything the call will write, and the results it will answer with."""

    now: datetime
    changes: Changes
    stretch: Stretch
    episode: Episode | None
    results: list[RememberedOut] = field(default_factory=list)
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store holds already of the memories given: by id, by the caller's reference, by text."""

    by_id: dict[str, Memory]
    by_ref: dict[str, Memory]
    by_text: dict[str, list[Memory]]


async def make_plan(
    parts: Parts, caller: Caller, sitting: Sitting, intake: Intake, request: RememberIn, now: datetime
) -> Plan:
    """Plan the call. Raises NotFound for an id that is not in the write namespace."""
    stretch = await place(parts, caller, sitting, intake, now)
    plan = Plan(now, Changes(now), stretch, await file_episode(parts, caller, sitting, intake, stretch, now))
    filer = _Filer(parts, caller, sitting, intake, plan)
    if intake.memories:
        await filer.given(intake.memories)
    else:
        await filer.by_rule(events(stretch.drafts))
    await _feedback(parts, caller, sitting, request, plan)
    await release(parts, caller, plan.changes)
    if plan.episode is not None:
        ids = (result.id for result in plan.results if result.id and Action.REJECTED not in result.actions)
        plan.episode = replace(plan.episode, memory_ids=tuple(dict.fromkeys((*plan.episode.memory_ids, *ids))))
    return plan


async def writable(parts: Parts, caller: Caller, ids: Sequence[str], what: str) -> dict[str, Memory]:
    """Memories of the write namespace by id. Raises NotFound for any id that is not visible, in the same words."""
    every = await parts.store.memories.get(caller.grant, ids)
    found = {memory.id: memory for memory in every if not anothers_private(memory, caller)}
    refuse_read_only(found.values(), caller.grant, what)
    for memory_id in ids:
        if memory_id not in found:
            raise NotFound(f"{what}: there is no memory {memory_id[:40]!r}; recall returns the ids that exist")
    return found


def refuse_read_only(memories: Iterable[Memory], grant: Grant, what: str) -> None:
    """Raise InvalidInput where one of the memories lies in a namespace that the grant only reads."""
    for memory in memories:
        if memory.namespace != grant.write:
            raise InvalidInput(f"{what}: {memory.id} lies in a namespace that may only be read here; leave it out")


async def _feedback(parts: Parts, caller: Caller, sitting: Sitting, request: RememberIn, plan: Plan) -> None:
    """Note `used` as uses of weight 1 and mark `wrong` ones for confirmation."""
    used = list(dict.fromkeys(request.used or ()))
    wrong = list(dict.fromkeys(request.wrong or ()))
    for memory in (await writable(parts, caller, used, "used")).values():
        if memory.demoted:
            plan.changes.change(memory, demoted=False)
    for memory in (await writable(parts, caller, wrong, "wrong")).values():
        plan.changes.change(memory, disputed=True)
    plan.uses = tuple(
        Use(memory_id=memory_id, session=sitting.session.id, at=plan.now, weight=USED) for memory_id in used
    )


_PUT_ASIDE = (Status.ARCHIVED, Status.EXPIRED, Status.SUPERSEDED)


class _Filer:
    """Turns drafts into new memories or into changes of stored ones, in the order given."""

    def __init__(self, parts: Parts, caller: Caller, sitting: Sitting, intake: Intake, plan: Plan) -> None:
        self._parts, self._caller, self._sitting = parts, caller, sitting
        self._intake, self._plan = intake, plan
        self._spoken = [draft.text for draft in intake.turns]

    async def given(self, drafts: Sequence[MemoryDraft]) -> None:
        """File the memories that the caller formulated."""
        known = await self._known(drafts)
        told: dict[str, dict[str, tuple[int, Any]]] = {}
        for index, draft in enumerate(drafts):
            result = self._file(draft, known)
            if result.id is not None and (draft.id or draft.ref) is not None:
                _refuse_contradiction(told.setdefault(result.id, {}), index, draft)
            self._plan.results.append(result)

    async def by_rule(self, drafts: Sequence[EventDraft]) -> None:
        """File one event a substantive turn; a turn that was filed before keeps its memory."""
        stretch = self._plan.stretch
        refs = [rule_ref(stretch.thread, stretch.seqs[draft.index]) for draft in drafts]
        stored = await self._filed_by_rule(refs)
        for draft, ref in zip(drafts, refs, strict=True):
            old, redacted = stored.get(ref), self._intake.redacted.get(draft.index, ())
            if old is not None:
                result = RememberedOut(id=old.id, actions=[Action.MERGED], reason="stored before", merged_into=old.id)
            elif redacted and self._parts.settings.secrets == "refuse":
                reason = "it held a secret, and the setting secrets is refuse; the message is kept without it"
                result = RememberedOut(actions=[Action.REJECTED], reason=reason, redacted=list(redacted))
            else:
                given: dict[str, Any] = {"text": draft.text, "kind": draft.kind, "source": draft.source}
                if redacted:
                    given["redacted"] = True
                event = MemoryDraft(id=None, ref=ref, fields=given, turns=(draft.index,), redacted=redacted)
                result = self._store(event, self._new(event))
            self._plan.results.append(result)

    async def _filed_by_rule(self, refs: Sequence[str]) -> dict[str, Memory]:
        """The stored events of these turns; an earlier version of this program gave them no mark."""
        plain = {shown_ref(ref) or "": ref for ref in refs}
        found = await self._parts.store.memories.by_ref(self._caller.grant, [*refs, *plain], agent=self._caller.agent)
        thread = self._plan.stretch.thread
        early = {
            plain[ref]: memory
            for ref, memory in found.items()
            if ref in plain and memory.thread == thread and is_by_rule(ref, thread, memory.turns)
            if memory.kind is Kind.EVENT
        }
        return early | {ref: memory for ref, memory in found.items() if ref not in plain}

    async def _known(self, drafts: Sequence[MemoryDraft]) -> _Known:
        store, grant = self._parts.store.memories, self._caller.grant
        ids = [draft.id for draft in drafts if draft.id is not None]
        refs = [draft.ref for draft in drafts if draft.ref is not None]
        texts = [draft.fields["text"] for draft in drafts if draft.id is None and draft.ref is None]
        return _Known(
            await writable(self._parts, self._caller, ids, "memories"),
            await store.by_ref(grant, refs, agent=self._caller.agent) if refs else {},
            {fold(text): found for text, found in (await store.same_text(grant, texts)).items()} if texts else {},
        )

    def _file(self, draft: MemoryDraft, known: _Known) -> RememberedOut:
        if draft.refused is not None:
            return RememberedOut(actions=[Action.REJECTED], reason=draft.refused, redacted=list(draft.redacted) or None)
        stored = known.by_id.get(draft.id or "") or known.by_ref.get(draft.ref or "")
        if stored is not None:
            return self._update(stored, draft)
        memory = self._new(draft)
        if draft.ref is not None:
            known.by_ref[draft.ref] = memory
            return self._store(draft, memory)
        same = known.by_text.setdefault(fold(memory.text), [])
        for old in same:
            if same_claim(self._plan.changes.current(old), memory, at_given="at" in draft.fields):
                return self._merge(old, memory, draft)
        same.append(memory)
        return self._store(draft, memory)

    def _store(self, draft: MemoryDraft, memory: Memory) -> RememberedOut:
        self._plan.changes.add(memory)
        return _result(memory.id, [Action.STORED], draft)

    def _merge(self, old: Memory, new: Memory, draft: MemoryDraft) -> RememberedOut:
        state = self._plan.changes.current(old)
        self._plan.changes.change(old, **merged_fields(state, new))
        return _result(old.id, [Action.MERGED], draft, reason="the same was stored before", merged_into=old.id)

    def _update(self, stored: Memory, draft: MemoryDraft) -> RememberedOut:
        """A new version of a stored memory; what the user says explicitly is thereby verified."""
        fields = {**draft.fields, **_standing(stored, draft.fields)}
        if draft.expires_with_session:
            fields |= {"expires_session": self._sitting.session.id, "expires_at": None}
        elif "expires_at" in fields:
            fields["expires_session"] = None
        told_anew = "text" in draft.fields and draft.fields["text"] != stored.text and bool(self._plan.stretch.drafts)
        if told_anew or (draft.turns and stored.thread in (None, self._plan.stretch.thread)):
            evidence = self._evidence(draft)
            evidence.pop("at")
            fields |= evidence
        if draft.id is None:  # told again under its own reference: what was put aside is live again
            fields |= {"status": Status.LIVE, "superseded_by": None, "merged_into": None}
        before = self._plan.changes.current(stored)
        after = self._plan.changes.change(stored, **fields)
        changed = differing(before, after)
        reason = f"changed {', '.join(changed)}" if changed else "nothing was different"
        if after.status in _PUT_ASIDE:
            reason += f"; it is {after.status}: restore it to find it again"
        return _result(stored.id, [Action.UPDATED], draft, reason=reason)

    def _new(self, draft: MemoryDraft) -> Memory:
        fields = dict(draft.fields)
        source = fields.setdefault("source", Source.AGENT)
        defaults = DEFAULTS[source]
        for name in ("importance", "confidence", "trust"):
            fields.setdefault(name, getattr(defaults, name))
        fields.setdefault("kind", Kind.FACT)
        if fields["kind"] is Kind.TASK:
            fields.setdefault("state", TaskState.OPEN)
        evidence = self._evidence(draft)
        fields.setdefault("at", evidence.pop("at"))
        return Memory(
            id=new_id("m"),
            namespace=self._caller.grant.write,
            agent=self._caller.agent,
            session=self._sitting.session.id,
            created_at=self._plan.now,
            updated_at=self._plan.now,
            ref=draft.ref,
            valid_from=fields["at"],
            expires_session=self._sitting.session.id if draft.expires_with_session else None,
            status=Status.LIVE,
            **evidence,
            **fields,
        )

    def _evidence(self, draft: MemoryDraft) -> dict[str, Any]:
        """Thread, episode and linked turns of a memory of this call, and when the last of those turns was said."""
        stretch, episode = self._plan.stretch, self._plan.episode
        indexes: Sequence[int] = ()
        if stretch.drafts:
            text = draft.fields.get("text", "")
            indexes = draft.turns if draft.turns is not None else link_turns(text, self._spoken)
        return {
            "thread": stretch.thread,
            "episode_id": episode.id if episode else None,
            "turns": tuple(sorted({stretch.seqs[index] for index in indexes})),
            "at": max((stretch.at(index, self._plan.now) for index in indexes), default=self._plan.now),
        }


def _refuse_contradiction(told: dict[str, tuple[int, Any]], index: int, draft: MemoryDraft) -> None:
    """Raise InvalidInput where an earlier entry told something else of the same memory: one of the two would be lost,
    as a call gives a memory one version. `told` has the first entry that gave a field, and its value.
    """
    for name, value in draft.fields.items():
        first, said = told.setdefault(name, (index, value))
        if said != value:
            names = "id" if draft.id is not None else "ref"
            raise InvalidInput(
                f"memories[{first}] and memories[{index}] are one memory by their {names} and differ in "
                f"{_GIVEN_AS.get(name, name)}; give it once, or under another {names}"
            )


def _standing(stored: Memory, given: dict[str, Any]) -> dict[str, Any]:
    """Source and trust after a change: the user's word verifies; new content is no better than who gave it; a mere
    mark, such as a pin or a tag, leaves both as they are.
    """
    source = given.get("source")
    if source is Source.USER:
        confidence = given.get("confidence", max(stored.confidence, DEFAULTS[Source.USER].confidence))
        return {"source": source, "trust": Trust.VERIFIED, "disputed": False, "confidence": confidence}
    if all(given.get(name, getattr(stored, name)) == getattr(stored, name) for name in ("text", "key", "value")):
        return {"source": stored.source, "trust": stored.trust}
    source = source or Source.AGENT
    return {
        "source": source,
        "trust": DEFAULTS[source].trust,
        "confidence": given.get("confidence", DEFAULTS[source].confidence),
    }


def _result(
    memory_id: str,
    actions: list[Action],
    draft: MemoryDraft,
    *,
    reason: str | None = None,
    merged_into: str | None = None,
) -> RememberedOut:
    if draft.redacted:
        actions = [*actions, Action.REDACTED]
    return RememberedOut(
        id=memory_id, actions=actions, reason=reason, merged_into=merged_into, redacted=list(draft.redacted) or None
    )
