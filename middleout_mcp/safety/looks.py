"""What the value behind a label looks like: a placeholder, a word of prose, or a secret."""

import re

PLAIN = 1

_MASKED = re.compile(r"[*•xX.…_?#-]+")
_PLACEHOLDERS = re.compile(
    r"\[(?:redacted|private|hidden|removed|masked)\b.*"
    r"|<[^<>]*>.*|<[^<>]*|\{.*|\$[A-Za-z_]\w*|[^$]*\$[({].*|%\w+%|[^.]*\.\.\."
    r"|(?:your|insert|enter|example|placeholder|replace|change)[-_].*"
    r"|(?:os|process|env|config|settings|secrets|self|args|options|params|request|system|vault|ssm)[.\[(].*"
    r"|\w+(?:\.\w+)*[(\[].*|\w+(?:\.\w+)+\(.*"
    r"|~?/[\w./-]*|\.{1,2}/.*|[a-z]:\\.*|[a-z][a-z0-9+.-]*://.*",
    re.IGNORECASE,
)
_TECHNICAL = re.compile(
    r"sha-?\d{1,3}(?:-\d+)?|md\d|bcrypt|scrypt|argon2\w*|pbkdf2|aes-?\d*(?:-\w+)?|rsa-?\d*|base-?\d\d|utf-?\d+"
    r"|oauth-?\d?(?:\.\d)?|\dfa|mfa|totp|1password|https?|v?\d+(?:\.\d+)+|ipv\d|x\.?509|ed25519|iso-?\d+|nist\S*|q[1-4]"
    r"|\d+(?:st|nd|rd|th|x|h|d|s|ms|m|min|[kmg]b?|%|\+)|\d+-?(?:bits?|chars?|characters?|digits?|days?)"
    r"|\d{4}-\d\d(?:-\d\d.*)?|\d{1,2}[:.]\d\d(?:am|pm)?|\d{1,2}(?:am|pm)",
    re.IGNORECASE,
)
_SYMBOLS = re.compile(r"[!@#$%^&*+=~?|\\§°<>]")
_INNER_CAPITAL = re.compile(r"[a-zß-ÿ][A-Z]")
_HEX = re.compile(r"[0-9a-fA-F-]{32,}")
_PARTS = re.compile(r"[-_./:]")
_NAME_PART = re.compile(r"[^\W\d_]*|v?\d{1,4}|[^\W\d_]{2,}\d{1,2}")
_CLAUSE_END = re.compile(r"[\"'`*)\]}»”]{0,3}(?:[.;!?,][\"')]?(?:\s|\Z)|\s*(?:\Z|\n))")
_PROSE_SUFFIX = re.compile(
    r".{2,}(?:ed|ing|ive|able|ible|ory|ary|ent|ant|ful|less|al|ous|ic|ly|ong|ten|wn|ured|age|ment|tion|ness)"
)
_PROSE = frozenset(
    """a about after again all allowed already also alt always an and any anything are as at bad be been before being
    below blank both broken by case changed changeme clear cleartext common complex correct correcta dead
    default different done down due easy email empty enough every everywhere expired falsch false fine for
    forgotten from geheim gone good great gut hard hash here hers hidden him his how if in incorrecta insecure
    inside invalid is it its just kept known later leaked like login long lost luck mandatory me mine missing
    more much must my neu never new next nil no none not nothing now nueva null off offline okay old olvidada on
    online only open optional or other ours out over password passwords past plain plaintext private public
    random ready redacted required reset richtig right safe same saved secret secure see segura set shared short
    sicher simple so some somewhere soon still stored string strong sure tbd text that the theirs them there
    this to todo token too true unbekannt unchanged unclear undefined undisclosed unique unknown unset up upon
    useless user username valid vergessen very weak what when where which with within without written wrong yes
    you your yours""".split()
)


def look(value: str) -> int:
    """How much a value looks like a password: 0 no, 1 a plain word, 2 unusual, 3 letters with digits or symbols.

    Digits alone, four or more, are unusual; so are a capital inside a word and four words joined by hyphens.
    """
    core = value.rstrip("!?")
    if len(value) < 4 or is_placeholder(value) or _TECHNICAL.fullmatch(core):
        return 0
    letters = any(map(str.isalpha, core))
    if letters and (any(map(str.isdigit, core)) or _SYMBOLS.search(core)):
        return 3
    if not letters:
        return 2 if sum(map(str.isdigit, core)) >= 4 else 0
    if _INNER_CAPITAL.search(core) or core.count("-") >= 3:
        return 2
    return PLAIN if core.isalpha() and not is_prose(core) else 0


def is_prose(word: str) -> bool:
    """Whether a plain word rather tells about a password than being one."""
    return is_common(word) or _PROSE_SUFFIX.fullmatch(word.casefold()) is not None


def is_common(word: str) -> bool:
    """Whether it is a word that often follows a label without being the secret: "required", "here", "null"."""
    return word.casefold() in _PROSE


def is_placeholder(value: str) -> bool:
    """Whether it stands for a value: `<password>`, `$TOKEN`, `os.environ[…]`, `****`, a path, a former redaction."""
    return bool(_MASKED.fullmatch(value) or _PLACEHOLDERS.fullmatch(value))


def is_random(value: str, at_least: int) -> bool:
    """Whether it looks generated: letters among digits, of a given length, and no identifier, path or number."""
    if len(value) < at_least or is_placeholder(value) or _TECHNICAL.fullmatch(value):
        return False
    if not any(map(str.isdigit, value)) or not any(map(str.isalpha, value)):
        return False
    if _HEX.fullmatch(value):
        return True
    return not all(_NAME_PART.fullmatch(part) for part in _PARTS.split(value.rstrip("=")))


def ends_clause(text: str, position: int) -> bool:
    """Whether a sentence, a line or the text ends at the position."""
    return _CLAUSE_END.match(text, position) is not None
