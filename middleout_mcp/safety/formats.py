"""Secrets whose own form gives them away: key blocks, tokens of known make, passwords in URLs and commands, numbers
with a checksum. Package `redact-secret` knows many more; here is what it leaves, and what it skips on purpose because
the value reads EXAMPLE or FAKE.
"""

import re
from collections.abc import Iterator

from middleout_mcp.ports import Span
from middleout_mcp.safety.looks import PLAIN, is_placeholder, is_random, look

_BLOCK = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BLOCK_BODY = re.compile(r"(?:(?:\\[nr]|[\s>|\"'+,])*(?:[A-Za-z-]{1,20}: [^\n]{0,200}|[A-Za-z0-9+/=]{8,}))+")
_PUTTY = re.compile(r"Private-Lines: \d{1,4}\s+(?P<secret>(?:[A-Za-z0-9+/=]{1,80}\s*)+)")

_TOKENS = (
    ("aws_access_key_id", re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])")),
    ("webhook_url", re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w/-]{20,200}")),
    ("webhook_url", re.compile(r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{10,25}/[\w-]{20,200}")),
    ("webhook_url", re.compile(r"webhook\.office\.com/webhookb2/[\w@/-]{20,300}")),
    ("twilio_api_key", re.compile(r"(?<![A-Za-z0-9])SK[0-9a-f]{32}(?![A-Za-z0-9])")),
    ("discord_bot_token", re.compile(r"(?<![\w-])[A-Z][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,45}(?![\w-])")),
    ("age_secret_key", re.compile(r"AGE-SECRET-KEY-1[0-9A-Z]{20,80}")),
    ("password", re.compile(r"://[^\s/:@]{0,100}:(?P<secret>[^\s/]{1,200})@(?=[\w\[])")),
    (
        "credential",
        re.compile(
            r"(?i)[?&;](?:access_token|api_?key|auth|client_secret|key|pass(?:word|wd)?|pwd|secret|sig|signature|token)"
            r"=(?P<secret>[^\s&#;\"'<>]{6,500})"
        ),
    ),
    (
        "authorization",
        re.compile(
            r"(?i)authorization[\"']?\s?[:=]\s?[\"']?(?:basic|bearer|token)\s{1,3}(?P<secret>[^\s\"',]{8,2000})"
        ),
    ),
)
_GENERATED = ("credential", "authorization")
_ON_ONE_LINE = r"\b[^\n|;&]{0,200}?\s"
_COMMANDS = tuple(
    re.compile(command + arguments + r"[\"']?(?P<secret>[^\s\"'-][^\s\"']{2,200})")
    for command, arguments in (
        (r"\b(?:mysql|mariadb)[\w-]{0,20}" + _ON_ONE_LINE, "-p"),
        (r"\b(?:sshpass|(?:docker|podman|az|oc|helm registry) login)" + _ON_ONE_LINE, "-p[ =]?"),
        (
            r"\b(?:curl|wget|https?|xh|lftp|ncftp)" + _ON_ONE_LINE,
            r"(?:-u|--user|-a|--auth|--proxy-user|-U)[ =]?[\"']?[\w.@\\+-]{1,80}:",
        ),
        (
            r"\b(?:sqlcmd|ldap(?:search|modify|add)|plink|pscp|psexec|mongo(?:sh)?|xfreerdp|rdesktop|bcp)"
            + _ON_ONE_LINE,
            r"(?:-P|-pw|-w|-p|/p:)\s?(?!\d{1,5}\b)",  # short numbers are ports
        ),
        (r"\bredis-cli" + _ON_ONE_LINE, r"-a\s"),
        (r"\bsmbclient" + _ON_ONE_LINE, r"-U\s?[\w.\\]{1,60}%"),
        (r"\bhtpasswd" + _ON_ONE_LINE, r"-\w{0,4}b\w{0,4} \S{1,80} \S{1,80} "),
        (r"\bnet use" + _ON_ONE_LINE, r"/user:\S{1,80} "),
        (r"\bpass(?:in|out|wd)?[ :=]", "pass:"),
        (
            r"(?<!\S)--?(?:\w{1,20}-)?(?:password|passwd|pass|passphrase|pwd|token|secret|(?:api|access|secret)-?key)",
            "[ =]",
        ),
    )
)

_CARD = re.compile(r"(?<![\w.-])\d(?:[ \u00a0.-]?\d){12,18}(?![\w-]|\.\d)")
_CARD_PREFIX = re.compile(
    r"(?:4\d{3}|5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720|6011|64[4-9]\d|65\d\d|62\d\d|35[2-8]\d|8[12]\d\d)\d{12}"
    r"|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}"
)
_NO_CARD = re.compile(
    r"(?i)\b(?:order|invoice|tracking|imei|serial|snowflake|bug|ticket|case|isbn|ean|customer)\b[^\d\n]{0,12}\Z"
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ \u00a0-]?[A-Za-z0-9]){11,30}")
_IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FI FO GL NL", 19: "MK SI", 20: "AT BA EE KZ LT LU MN XK", 21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA", 23: "AE GI IL IQ OM SO TL", 24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST", 26: "IS TR", 27: "BI DJ FR GR IT MC MR SM", 28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC", 33: "RU",
    }.items()
    for country in countries.split()
}  # fmt: skip
_SSN = re.compile(r"(?<![\w-])(?!000|666)\d{3}([- ]?)(?!00)\d{2}\1(?!0000)\d{4}(?![\w-])")
_SSN_WORDS = re.compile(r"(?i)\bssns?\b|\bsocial[ -]security\b|\bsoc\.? ?sec|\bitin\b|\btax(?:payer)? id")
_SSN_DISTANCE = 60


def secrets_by_form(text: str) -> Iterator[Span]:
    """Secrets that need no label; spans may overlap."""
    if "PRIVATE KEY" in text or "Private-Lines" in text:
        yield from _key_blocks(text)
    for kind, pattern in _TOKENS:
        for match in pattern.finditer(text):
            yield from _captured(match, kind)
    for pattern in _COMMANDS:
        for match in pattern.finditer(text):
            if look(match["secret"]) >= PLAIN:
                yield from _captured(match, "password")
    yield from _cards(text)
    yield from _ibans(text)
    yield from _social_security(text)


def _captured(match: re.Match[str], kind: str) -> Iterator[Span]:
    start, end = match.span("secret" if "secret" in match.re.groupindex and match["secret"] is not None else 0)
    value = match.string[start:end]
    if not is_placeholder(value) and (kind not in _GENERATED or is_random(value, 6)):
        yield Span(start, end, kind)


def _key_blocks(text: str) -> Iterator[Span]:
    """From the first line to the last; without a last line, as far as it looks like a key."""
    position = 0
    closing = _BLOCK_END.search(text)
    while begin := _BLOCK.search(text, position):
        if closing is not None and closing.start() < begin.end():
            closing = _BLOCK_END.search(text, begin.end())
        body = _BLOCK_BODY.match(text, begin.end())
        end = closing or body
        position = end.end() if end else begin.end()
        if end:
            yield Span(begin.start(), position, "private_key")
    for match in _PUTTY.finditer(text):
        yield Span(*match.span("secret"), "private_key")


def _cards(text: str) -> Iterator[Span]:
    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match[0])
        if (
            _CARD_PREFIX.fullmatch(digits)
            and _luhn(digits)
            and not _NO_CARD.search(text, max(0, match.start() - 30), match.start())
        ):
            yield Span(*match.span(), "card_number")


def _luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def _ibans(text: str) -> Iterator[Span]:
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match[0][:2].upper())
        places = [match.start() + place for place, letter in enumerate(match[0]) if letter.isalnum()]
        if length is None or len(places) < length:
            continue
        end = places[length - 1] + 1
        code = "".join(text[place] for place in places[:length]).upper()
        if text[end : end + 1].isalnum():
            continue
        if int("".join(str(int(letter, 36)) for letter in code[4:] + code[:4])) % 97 == 1:
            yield Span(match.start(), end, "iban")


def _social_security(text: str) -> Iterator[Span]:
    if not _SSN_WORDS.search(text):
        return
    for match in _SSN.finditer(text):
        around = text[max(0, match.start() - _SSN_DISTANCE) : match.end() + _SSN_DISTANCE]
        if _SSN_WORDS.search(around):
            yield Span(*match.span(), "ssn")
