"""Secrets that only their label gives away: "the wifi password is …", `SMTP_PASS="…"`, "PIN: …".

A label (a word for password, PIN, key or token, in a language or inside an identifier) is followed by a join (`:`,
`=`, "is", "lautet", "は"), perhaps after a qualifier ("at the office is"), and that by a value. What decides is the
look of the value: a placeholder, a word of prose, a path or the name of an algorithm is no secret; digits among
letters, symbols or quotes make one. The less the join says, the more the value must. Every step is bounded in length
and the search goes on behind what was found, so that the work is linear in the text.
"""

import re
from collections.abc import Iterator

from middleout_mcp.ports import Span
from middleout_mcp.safety.looks import PLAIN, ends_clause, is_placeholder, is_prose, is_random, look

_LABEL_WORDS = (
    r"pass(?:word|wort|code|phrase|wd|ord(?:et)?)s?|pass[ -](?:word|code|phrase)|pwd?|kennwort|wachtwoord"
    r"|lösenord(?:et)?|adgangskode[nr]?|kodeord(?:et)?|salasana|contraseñas?|contrasena|clave(?: de acceso)?|senha"
    r"|palavra-passe|mots? de passe|mdp|parola(?: d'ordine)?|parolă|hasło|haslo|heslo|jelszó|jelszava|geslo|lozinka"
    r"|slaptažodis|şifre(?:si|m|miz)?|mật khẩu|kata sandi(?:nya)?|парол(?:ь|я|ю|ем)|лозинка|κωδικός(?: πρόσβασης)?"
    r"|ה?סיסמ[אה]|كلمة (?:المرور|السر)|رمز عبور|पासवर्ड|รหัสผ่าน"
)
_UNSPACED = "パスワード|密码|密碼|口令|비밀번호|암호"
_PIN = (
    r"(?:PIN|PUK|CVV2?|CVC2?|TAN|OTP|2FA|ПИН)(?:[ -]?(?:code|number|nummer|код))?"
    r"|(?i:pin[ -]?(?:code|number|nummer)|code pin|código pin|пин(?:-?код)?|geheimzahl|passcode"
    r"|pin(?=\s?[:=]\s?\d{4}|\s(?:is|ist|es|est|è|é|er|är|to)\s\d{4})"
    r"|(?:my|our|the|his|her|their|your|card|phone|bank|sim) pin"
    r"|(?:door|gate|alarm|access|entry|garage|lock|unlock|safe|security|keypad|lockbox|building|verification|one-time)"
    r" (?:code|combination))|暗証番号"
)
_KEY = (
    r"(?:api|access|secret|auth|client|private|encryption|signing|master|account|storage|service|session|refresh|bearer"
    r"|webhook|deploy|license|app|admin|bot|consumer|jwt|hmac|aes|cookie|security)[ _-]?(?:keys?|tokens?|secret)"
    r"(?:[ _-](?:key|token|value))?|credentials?|creds|secrets?|tokens?"
)
_LABELS = re.compile(
    rf"(?P<pin>\b(?:{_PIN})(?![\w-]))"
    rf"|(?P<phrase>\b(?i:pass-? ?phrase|(?:seed|recovery|mnemonic|backup) (?:phrase|words)|mnemonic)\b)"
    rf"|(?P<password>(?<![^\W_])(?i:{_LABEL_WORDS})(?![\w-])|(?<=[A-Za-z0-9][_-])(?i:pass)(?![\w-])"
    r"|\b(?i:wi-?fi|wlan|login|user|admin|root|guest|db|database|ssh|ftp|smtp|e?mail) (?i:pass)(?![\w-])"
    rf"|(?<=[A-Za-z0-9])(?:[Pp]ass(?:word|wort|wd)|Pwd|PASSWORD|Pass)(?![\w-])|{_UNSPACED})"
    rf"|(?P<key>(?<![^\W_])(?i:{_KEY})(?![\w-])|(?<=[A-Za-z0-9][_-])(?i:key)(?![\w-])"
    rf"|(?<=[a-z0-9])(?:ApiKey|AccessKey|SecretKey|AccountKey|Secret|Token)(?![\w-]))"
)
_NO_SECRET_KEY = re.compile(
    r"(?i:public|primary|foreign|cache|partition|sort|idempotency|row|object|unique|host|group|issue|project|next|page"
    r"|sync|continuation|pagination|cursor)[ _-]?\Z"
)

_TIGHT = (
    r"(?:[\\\"'`*_\])]{0,4}\s{0,8}(?:[:=]{1,2}|[-=]>|→)\s{0,8}[*_]{0,3}\s?"
    r"|[\"']?>(?=[^\s<])|[\"']\s{1,3}(?:value|content)\s?=\s?)"  # as in XML
)
_COPULA = (
    r"\s{1,3}(?:(?:(?:is|was|has been|got)\s)?(?:now\s)?(?:(?:re)?set|changed|updated)\s(?:back\s)?to|[—–-]"
    r"|is|was|are|be|to|ist|lautet|war|es|era|è|é|est|это|был|je|är|er|on|este|είναι|là|adalah|هي|هو|היא|הוא)"
    r"(?:\s(?:now|still|currently|just|actually|simply|jetzt|ahora|maintenant|теперь))?\s?:?\s{1,3}"
    r"|['’]s\s{1,3}|\s?(?:は|が|是|为|為|는|은|가|이)\s?:?\s?"
)
_JOIN = rf"(?:(?P<tight>{_TIGHT})|(?P<copula>{_COPULA}))"
_QUALIFIER = (
    r"(?:\s?\([^()\n]{1,40}\)|\s(?i:wi-?fi|wlan|root|admin|guest)|\s(?:for|to|of|at|on|in|from|we|I|he|she|they|you|used|para|del?|della|du|des|für|zum|zur"
    r"|vo[nm]|beim|im|am|от|для|к|на|voor|van|till|för|til|do|na|pour|per|pro)\s\S{1,30}(?:\s\S{1,30}){0,4}?)"
)
_VALUE = (
    r"(?:\\\"(?P<escaped>[^\"\\\n]{1,160})\\\"|\"(?P<double>(?:[^\"\\\n]|\\.){1,160})\"|'(?P<single>[^'\n]{1,160})'"
    r"|`(?P<code>[^`\n]{1,160})`|“(?P<curly>[^”\n]{1,160})”|„(?P<low>[^“”\n]{1,160})[“”]|«(?P<angle>[^»\n]{1,160})»"
    r"|「(?P<corner>[^」\n]{1,160})」|(?P<bare>(?:(?![;&,|]\s?[\"']?[\w.-]{1,40}[\"']?\s?[=:]|</)\S){1,160}))"
)
_JOINED = re.compile(_JOIN + _VALUE)
_QUALIFIED = re.compile(_QUALIFIER + _JOIN + _VALUE)
_ADJACENT = re.compile(r"\s{1,3}" + _VALUE)
_WORDS = re.compile(
    rf"{_JOIN}[\"'“„`]?(?P<words>[^\W\d_]+(?:[ ,]{{1,2}}[^\W\d_]+){{2,24}})(?=[\"'”“`]|[.;]?\s*(?:\n|\Z))"
)
_DIGITS = re.compile(
    rf"(?:{_QUALIFIER}?{_JOIN}|\s{{1,3}}|\s?#\s?)[\"'`*]{{0,2}}"
    r"(?P<digits>\d{3,8}|\d{1,4}(?:[ -]\d{1,4}){1,4})(?![\w.,]{0,20}\d)"
)
_NEARBY = re.compile(
    r"\s{1,3}(?:[\w'’()/-]{1,20}:?\s{1,3}){0,3}[\"'`(]?(?P<bare>[\w+/=.~-]{16,160}+)(?=[\s\"'`).,;:!?\w+/=~-]|\Z)"
)
_HASHES = re.compile(r"(?i)\b(?:commit|sha\d*|hash|checksum|digest|etag|build|version|revision|fingerprint)\b")
_UNITS = re.compile(
    r"\s?-?(?i:characters?|chars?|days?|digits?|letters?|symbols?|minutes?|hours?|attempts?|times|words?|bits?|bytes?|long"
    r"|encoded|hashed|encrypted|protected|compatible|zeichen|caracteres|caractères|символов)\b"
)
_REVERSED = re.compile(
    r"(?<!\S)[\"'`]?(?P<bare>[^\s\"'`]{6,64})[\"'`]?,?\s(?:is|was|as|ist|war|als|es|è|est|это|für)\s(?:(?:also|still|now)\s)?"
    r"(?:my|the|our|his|her|their|your|a|das|dein|mein|unser|la|le|il|mi|su|mon|notre)\s(?:[\w'-]{1,20}\s){0,2}?"
    rf"(?i:{_LABEL_WORDS})(?![\w-])(?!\s(?i:manager|policy|reset|field|hash|generator|vault|hint|length|rule|app))"
)
_LOGIN = re.compile(
    r"\b(?i:log(?:s|ged)?[ -]?in|login|sign(?:s|ed)?[ -]?in|credentials?|creds|user(?:name)?\s?/\s?pass(?:word)?"
    r"|anmeld\w{1,6}|zugangsdaten)\b[^\n]{0,60}?[\s:(][\w.@+-]{1,60}(?P<between>\s[/|]\s|:)(?P<bare>[^\s/]{6,64})"
)
_ENGLISH = re.compile(r"\s*(?:['’]s|is|was|be|to|.* to)\b")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.\w+)+")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_FILE = re.compile(r".*/.*\.\w{1,4}|[\w-]+(?:\.[a-z]{2,})+")
_TRAILING = ".,;:)]}>\"'`»”。、）」"
_INSTRUCTIONS = frozenset(
    "must need needs should please enter has have is was were be are not never your will if use share keep write store"
    " than least characters words letters digits".split()
)


def labelled_secrets(text: str) -> Iterator[Span]:
    """Secrets that follow, or precede, a word that names them; spans may overlap."""
    position = 0
    while label := _LABELS.search(text, position):
        found = _RULES[label.lastgroup or ""](text, label)
        position = label.end()
        if found is not None:
            found = _whole(text, found)
            yield found
            position = max(position, found.end)
    yield from _reversed(text)


def secret_by_name(name: str, value: str) -> str | None:
    """The kind of secret that a field of this name holds as its whole value, as `"password"` or `dbPass`; else None."""
    value = value.strip()
    label = _LABELS.search(name) or _LABELS.search(name.upper())
    if label is None or label.end() != len(name) or is_placeholder(value):
        return None
    if label.lastgroup == "key":
        secret = is_random(value, 8) and not _NO_SECRET_KEY.search(name, 0, label.start())
        return "credential" if secret else None
    if len(value) < 4 or is_prose(value):
        return None
    return "pin" if label.lastgroup == "pin" else "password"


def _password(text: str, label: re.Match[str]) -> Span | None:
    for pattern in (_JOINED, _QUALIFIED, _ADJACENT):
        match = pattern.match(text, label.end())
        if match is None:
            continue
        start, end, quoted = _value(text, match)
        if start == end or _UNITS.match(text, end):
            continue
        value = text[start:end]
        if _is_quoted_secret(value) if quoted else _is_bare_secret(text, value, end, match):
            return Span(start, end, "password")
    return None


def _is_quoted_secret(value: str) -> bool:
    words = value.split()
    if len(words) > 1:
        return len(value) >= 8 and not is_placeholder(value) and _INSTRUCTIONS.isdisjoint(value.casefold().split())
    return look(value) >= PLAIN


def _is_bare_secret(text: str, value: str, end: int, match: re.Match[str]) -> bool:
    groups = match.groupdict()
    level = look(value)
    if groups.get("tight") is not None:
        return level > PLAIN or (level == PLAIN and ends_clause(text, end))
    if _EMAIL.fullmatch(value):
        return False
    if groups.get("copula") is not None:
        # the words that tell about a password are known in English only
        return level > PLAIN or (
            level == PLAIN and ends_clause(text, end) and _ENGLISH.match(match["copula"]) is not None
        )
    return level >= 3 and len(value) >= 6


def _phrase(text: str, label: re.Match[str]) -> Span | None:
    match = _WORDS.match(text, label.end())
    if match is None:
        return _password(text, label)
    words = match["words"].casefold().replace(",", " ").split()
    told_about = not _INSTRUCTIONS.isdisjoint(words) or 2 * sum(map(is_prose, words)) >= len(words)
    return None if told_about else Span(*match.span("words"), "passphrase")


def _pin(text: str, label: re.Match[str]) -> Span | None:
    match = _DIGITS.match(text, label.end())
    if match is not None:
        return None if _UNITS.match(text, match.end()) else Span(*match.span("digits"), "pin")
    code = _password(text, label)
    return code if code is not None and look(text[code.start : code.end]) > PLAIN else None


def _key(text: str, label: re.Match[str]) -> Span | None:
    if _NO_SECRET_KEY.search(text, max(0, label.start() - 20), label.start()):
        return None
    for pattern in (_JOINED, _QUALIFIED):
        match = pattern.match(text, label.end())
        if match is not None:
            start, end, _quoted = _value(text, match)
            if is_random(text[start:end], 8) and not _UNITS.match(text, end):
                return Span(start, end, "credential")
    match = _NEARBY.match(text, label.end())
    return None if match is None else _generated(text, label.end(), match.start("bare"), match["bare"].rstrip("."))


def _generated(text: str, label_end: int, start: int, value: str) -> Span | None:
    """A value that stands up to three words behind its label without a join, if it is generated beyond doubt."""
    gap = text[label_end:start]
    if _FILE.fullmatch(value) or _HASHES.search(gap):
        return None
    mixed = value != value.lower() and value != value.upper() and len(value) >= 20
    adjacent = gap.isspace() and (value.isalnum() or _UUID.fullmatch(value) is not None)
    return Span(start, start + len(value), "credential") if is_random(value, 16) and (mixed or adjacent) else None


def _value(text: str, match: re.Match[str]) -> tuple[int, int, bool]:
    """Where the value of a match lies, without closing punctuation, and whether it was quoted."""
    if match["bare"] is None:
        name = next(name for name in _QUOTES if match[name] is not None)
        return *match.span(name), True
    start, end = match.span("bare")
    return start, start + len(text[start:end].rstrip(_TRAILING)), False


def _whole(text: str, found: Span) -> Span:
    """A value that the bound on lengths may have cut, up to the next blank."""
    blank = _BLANK.search(text, found.end) if found.end - found.start >= 150 else None
    return found if blank is None else Span(found.start, blank.start(), found.kind)


def _reversed(text: str) -> Iterator[Span]:
    """Values that stand before their label ("hunter2 is my password"), or behind a user name ("bob / hunter2")."""
    for match in _REVERSED.finditer(text):
        if look(match["bare"]) >= 3:
            yield Span(*match.span("bare"), "password")
    for match in _LOGIN.finditer(text):
        value = match["bare"].rstrip(_TRAILING)
        if look(value) >= 3 and (not value.isalnum() or match["between"] != ":"):
            yield Span(match.start("bare"), match.start("bare") + len(value), "password")


_RULES = {"password": _password, "phrase": _phrase, "pin": _pin, "key": _key}
_QUOTES = ("escaped", "double", "single", "code", "curly", "low", "angle", "corner")
_BLANK = re.compile(r"\s|\Z")
