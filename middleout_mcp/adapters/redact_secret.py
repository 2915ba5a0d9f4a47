"""Known secret formats, found by package `redact-secret`; a text it cannot screen is refused, never let through.

One of its detectors takes time quadratic in the length (160 s for a megabyte of `eyJeyJ…`), so a long text is read in
overlapping windows. What is found at the edge of a window may go on behind it, and is taken to the next blank.
"""

import re
from collections.abc import Iterator

from middleout_mcp.errors import InvalidInput
from middleout_mcp.ports import Span

WINDOW = 32_768  # characters
OVERLAP = 8_192  # longer than nearly every token; key blocks, which may be longer, have a rule of their own

_UNBOUNDED = 1 << 40  # by default the package refuses a text with 50,000 secrets
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK = re.compile(r"\s|\Z")


def find_secrets(text: str) -> list[Span]:
    """The secrets of a text in order, without overlaps. Raises InvalidInput when the text could not be screened."""
    text = _SURROGATE.sub("\ufffd", text)  # one character for one, which keeps the offsets
    spans: list[Span] = []
    for found in sorted(_windows(text), key=lambda span: (span.start, -span.end)):
        if spans and found.start < spans[-1].end:
            spans[-1] = Span(spans[-1].start, max(spans[-1].end, found.end), spans[-1].kind)
        else:
            spans.append(found)
    return spans


def _windows(text: str) -> Iterator[Span]:
    start = 0
    while True:
        end = min(start + WINDOW, len(text))
        for found in _scan(text[start:end]):
            last = start + found.end
            if last == end < len(text):
                last = next(_BLANK.finditer(text, end)).start()
            yield Span(start + found.start, last, found.kind)
        if end == len(text):
            return
        start = end - OVERLAP


def _scan(text: str) -> Iterator[Span]:
    import redact_secret

    limits = redact_secret.WholeInputLimits(max_input_bytes=_UNBOUNDED, max_findings=_UNBOUNDED)
    try:
        findings = redact_secret.scan(text, limits=limits)
    except redact_secret.SecretScanError:
        raise InvalidInput(
            "The text could not be screened for secrets, so nothing was stored; send it in smaller pieces."
        ) from None
    for found in findings:
        if found.action != "allow":
            yield Span(found.start, found.end, found.type)
