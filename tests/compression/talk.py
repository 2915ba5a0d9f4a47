"""Text for the tests of compression: real conversations where they are at hand, and odd ones of every kind."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from middleout_mcp.records import Kind, Memory, Privacy, TaskState

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
_DATA = Path(os.environ.get("MIDDLEOUT_EVAL_DATA", "")) / "locomo_dev.json"


def conversations() -> list[list[tuple[str, str]]]:
    """The sessions of LoCoMo as (speaker, text), where the evaluation data is; else two short ones."""
    if not _DATA.is_file():
        return [
            [
                ("Ann", f"I planted {n} larches near Kessler's mill on 3 May 2024. They never saw rain!")
                for n in range(9)
            ],
            [("Bob", f'We decided to sell boat number {n}, because the "old" pier must go.') for n in range(9)],
        ]
    found = []
    for sample in json.loads(_DATA.read_text(encoding="utf-8")):
        for key, turns in sample["conversation"].items():
            if key.startswith("session_") and isinstance(turns, list):
                found.append([(turn["speaker"], turn["text"]) for turn in turns])
    return found


def memory(number: int, text: str, **fields: Any) -> Memory:
    """One record; `number` gives its id and time."""
    at = NOON + timedelta(minutes=number)
    given: dict[str, Any] = {"kind": Kind.EVENT, "agent": "ann", "session": "s", "thread": "t", "turns": (number + 1,)}
    return Memory(
        **{
            "id": f"m_{number:09d}",
            "namespace": "n",
            "text": text,
            "at": at,
            "created_at": at,
            "updated_at": at,
            **given,
            **fields,
        }
    )


_WORDS = st.sampled_from(
    "Ann Bob Kessler Gdańsk Çelik O'Neil 東京 Ὀδυσσεύς larch greenhouse 12 1,000 3rd May 2024 €9.50 v2.3 $5k 10:30 "
    "Monday never must decided because \"old “new” «x» it's don't e.g. Mr. a.m. … ?! m_abc123456 is_available — - * # "
    "> | ﬁne ß İstanbul e\u0301 \u200d 🙂 \u0301 12.5.2024 5% ½ ２０２４ straße STRASSE iPhone USA ok".split(" ")
)
_GAPS = st.sampled_from([" ", " ", " ", ". ", "! ", "? ", "\n", ", ", ": ", " (", ") ", "。", "\n- ", "\n```\n"])
odd_texts = st.one_of(
    st.lists(st.tuples(_WORDS, _GAPS), min_size=1, max_size=40).map(lambda parts: "".join(w + g for w, g in parts)),
    st.text(max_size=120),
)
"""Texts of words, marks and gaps in any order, and texts of any characters."""

mixed_memories = st.lists(
    st.builds(
        dict,
        scope=st.sampled_from([None, "a", "b"]),
        privacy=st.sampled_from(list(Privacy)),
        known_by=st.sampled_from([None, (), ("Bob",), ("Ann", "Bob"), ("Bob", "Ann")]),
        key=st.sampled_from([None, "colour", "size"]),
        value=st.sampled_from([None, "red", "blue"]),
        thread=st.sampled_from([None, "t", "u"]),
        session=st.sampled_from([None, "s", "r"]),
        pinned=st.booleans(),
        kind=st.sampled_from([Kind.FACT, Kind.TASK, Kind.PREFERENCE]),
        state=st.sampled_from([None, TaskState.OPEN, TaskState.DONE]),
        confidence=st.sampled_from([0.5, 0.9]),
    ),
    max_size=90,
).map(lambda many: [memory(number, f"Thing {number}.", **fields) for number, fields in enumerate(many)])
"""Memories of which many must not be mixed."""
