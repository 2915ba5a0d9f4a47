"""When two memories say the same thing (pure). So far only identical texts; look-alikes are never merged."""

from middleout_mcp.policy import trust_rank
from middleout_mcp.records import Kind, Memory, Privacy


def same_claim(old: Memory, new: Memory, *, at_given: bool) -> bool:
    """Whether `new`, whose text equals `old`'s but for case and spacing, is the same memory told again.

    Everything that limits the claim must agree. An event is told again only at the same time, or, where none was
    given, in the same session: the same thing can happen twice.
    """
    limits = ("kind", "scope", "key", "value", "privacy", "known_by")
    if any(getattr(old, name) != getattr(new, name) for name in limits):
        return False
    if old.privacy is Privacy.PRIVATE and old.agent != new.agent:
        return False
    if new.kind is Kind.EVENT:
        return old.at == new.at if at_given else old.session == new.session
    return True


def merged_fields(old: Memory, new: Memory) -> dict[str, object]:
    """What `old` gains when `new` is merged into it: the better source, united tags, evidence and use.

    Trust rises only where the newcomer's own source is better; a copy never raises trust by repetition alone.
    """
    better = new if trust_rank(new.trust) > trust_rank(old.trust) else old
    fields: dict[str, object] = {
        "copies": old.copies + new.copies,
        "source": better.source,
        "trust": better.trust,
        "confidence": max(old.confidence, new.confidence),
        "importance": max(old.importance, new.importance),
        "tags": tuple(dict.fromkeys((*old.tags, *new.tags))),
        "use": old.use + new.use,
        "pinned": old.pinned or new.pinned,
        "demoted": old.demoted and new.demoted,
    }
    if old.episode_id is None:
        fields |= {"episode_id": new.episode_id, "thread": new.thread, "turns": new.turns}
    elif old.thread == new.thread:
        fields["turns"] = tuple(sorted({*old.turns, *new.turns}))
    if old.expires_at is not None and (new.expires_at is None or new.expires_at > old.expires_at):
        fields["expires_at"] = new.expires_at
    if old.expires_session is not None:
        fields["expires_session"] = new.expires_session
    return fields
