"""What a text holds: names, numbers, a denial, or nothing but fillers."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from middleout_mcp.words.text import CONTRACTION, STOP_WORDS, cjk_runs, sentences, without_cjk

FILLER = frozenset(
    """
    hi hey hello hiya yo howdy greetings hallo hola salut bonjour ciao servus moin ola olá привет bye goodbye cheers
    thanks thank thx ty tysm please pls welcome danke merci gracias grazie obrigado obrigada спасибо bitte ok okay k kk
    oki sure yes yeah yep yup ya yea no nope nah fine alright right great cool nice good awesome perfect excellent
    wonderful amazing wow oh ah aha aw hm mhm uh um er well so ha haha hehe lol lmao rofl absolutely definitely exactly
    indeed totally agreed true yay woohoo sorry oops congrats congratulations same too very much really again there you
    all everyone guys then a lot lots noted oui non si sí ja nein da да нет
    """.split()
)
_MONTHS = (
    "january february march april may june july august september october november december jan feb mar apr jun jul "
    "aug sept sep oct nov dec"
)
_DAYS = "monday tuesday wednesday thursday friday saturday sunday mon tues tue wed thurs thur thu fri sat sun"
_BEGINNERS = frozenset(
    """
    actually add added ago agree almost already although always another anyone anything anytime anyway apart appreciate
    around ask asked assistant aww bad because besides best bet better big bought btw build busy call came care catch
    check choose close come consider count crazy create dear despite done either else enjoy error even ever every
    everything except excited fantastic feel feels felt finally find first five fix found four fun funny fyi gave get
    getting girl give given giving glad go going gone gonna got gotcha gotta guess guy hang happy hard heard help hmm
    hold hope however imagine imo impressive incredible instead interesting keep kids kind know last later learn least
    leave left less life like little long look looking looks love lovely lucky made make makes making man many maybe
    means meanwhile meet met might mine mmm more move moved must need never new next nobody none note nothing often old
    one oof ooh open otherwise ouch overall people perhaps phew plan plus probably put quick quite ran read ready
    remember reminds remove run said saw say second see seems seen send sent set several shall show since small someone
    something sometimes soon sound sounds speaking spent start started stay still stop strong stuff such summary super
    take takes taking talk tell ten that thing things think third though thought three time today todo together told
    tomorrow tonight took total tried truly trust try trying turn turns two ugh unless unlike update updated use used
    user using usually wait wanna want warning watch way week went whatever whenever whether whoa wish without woah
    woman work working worth write year yesterday yet
    """.split()
)

COMMON = STOP_WORDS | FILLER | _BEGINNERS
"""Words that are no names where a sentence begins with them, and that say little anywhere."""

_NAME_WORD = re.compile(r"[^\W\d_]\w*(?:['’&-]\w+)*")
DATES = frozenset(f"{_MONTHS} {_DAYS}".split())
_NEVER_A_NAME = STOP_WORDS | DATES | frozenset("ok okay hi hey hello yes yeah thanks".split())
_JOINERS = frozenset("of the de da del della der den di du la le van von und y bin al ibn".split())
_VERB_ENDS = ("ing", "ed", "ly")


def names(text: str) -> list[str]:
    """Capitalised names in order of first appearance, as they are written, several words together. Words that are only
    capitals because a sentence begins with them are left out, and so are days and months.
    """
    lower, inside = set[str](), set[str]()
    runs: list[tuple[str, bool, list[tuple[int, int]]]] = []
    for sentence in sentences(without_cjk(text)):
        shouted = sentence.isupper() and " " in sentence
        for run in () if shouted else _capital_runs(sentence, lower):
            at_start = not re.search(r"\w", sentence[: run[0][0]])
            runs.append((sentence, at_start, run))
            inside.update(sentence[start:end] for start, end in run[at_start:])
    found: dict[str, None] = {}
    for sentence, at_start, run in runs:
        name = _name(sentence, run, at_start, lower, inside)
        if name:
            found.setdefault(name)
    return list(found)


def _capital_runs(sentence: str, lower: set[str]) -> Iterator[list[tuple[int, int]]]:
    """The runs of capitalised words of a sentence, as offsets; its words in lower case are added to `lower`."""
    run: list[tuple[int, int]] = []
    for match in _NAME_WORD.finditer(sentence):
        word, span = match.group(), match.span()
        gap = sentence[run[-1][1] : span[0]] if run else ""
        adjacent = gap == " " or (gap in (".", ". ") and run[-1][1] - run[-1][0] <= 3)
        capital = word[0].isupper()
        if run and not (adjacent and (capital or word in _JOINERS)):
            yield run
            run = []
        if capital or run:
            run.append(span)
        if not capital:
            lower.add(word)
    if run:
        yield run


def _name(sentence: str, run: list[tuple[int, int]], at_start: bool, lower: set[str], inside: set[str]) -> str:
    """The name that a run of capitalised words holds, or ""; words at its ends that are no part of it are dropped."""
    spans = list(run)
    while spans and _bare(sentence[slice(*spans[-1])]) in _NEVER_A_NAME:
        spans.pop()
    if spans and at_start and _begins_only(sentence, spans, lower, inside):
        spans.pop(0)
    while spans and _bare(sentence[slice(*spans[0])]) in _NEVER_A_NAME:
        spans.pop(0)
    if not spans:
        return ""
    name = CONTRACTION.sub("", sentence[spans[0][0] : spans[-1][1]])
    return name if len(name) > 1 else ""


def _begins_only(sentence: str, spans: list[tuple[int, int]], lower: set[str], inside: set[str]) -> bool:
    """Whether the first word of a sentence has its capital only because it is the first."""
    word = sentence[slice(*spans[0])]
    if word in inside or (word.isupper() and len(word) > 1) or (word == "New" and len(spans) > 1):
        return False
    bare = _bare(word)
    return bare in COMMON or bare in lower or (len(bare) > 4 and bare.endswith(_VERB_ENDS))


def _bare(word: str) -> str:
    return CONTRACTION.sub("", word.lower())


_MONTH = "(?:" + _MONTHS.replace(" ", "|") + r")\b\.?"


@cache
def _number() -> re.Pattern[str]:
    """Everything that counts or dates; compiled late, because it takes a millisecond."""
    return re.compile(
        r"(?=[-+$€£¥₹\dvadfjmnostw])(?<!\w)(?:"  # the look ahead is for speed alone
        r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
        rf"|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?"
        rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}}\b)?|{_MONTH} \d{{4}}\b"
        r"|\d{1,2}(?::\d{2}){1,2}(?: ?[ap]\.?m\b)?|\d{1,2} ?[ap]\.?m\b"
        r"|[$€£¥₹] ?\d+(?:[.,]\d+)*(?: ?(?:k|m|bn|million|billion)\b)?"
        r"|v?\d+(?:\.\d+){2,}(?:-[a-z0-9.]{1,20})?|v\d+(?:\.\d+)*"
        r"|[-+]?\d+(?:[.,/-]\d+)*(?: ?[%$€£¥₹])?"
        rf"|(?:{_DAYS.replace(' ', '|')})\b)",
        re.IGNORECASE,
    )


def numbers(text: str) -> list[str]:
    """Numbers, dates, times, money, percentages, versions and weekdays as they are written, in order."""
    return _number().findall(without_cjk(text))


_NEGATION = re.compile(
    r"""\b(?:no|not|never|none|nobody|nothing|nowhere|neither|nor|without|cannot
    |(?:do|does|did|is|was|wo|ca|are|were|have|has|had|could|would|should)nt
    |nicht|nichts|kein|keine|keinen|keinem|keiner|nie|niemals|niemand|pas|jamais|aucun|aucune|nunca|jamás|nada|nadie
    |não|niente|nessuno|niet|geen|nooit|не|нет|никогда)\b
    |n['’]t\b|[不没沒無]|ない|なかった|ません|않""",
    re.IGNORECASE | re.VERBOSE,
)


def has_negation(text: str) -> bool:
    """Whether `text` denies something: English, and the plain negations of a few other languages."""
    return _NEGATION.search(text) is not None


_PHRASES = frozenset(
    tuple(phrase.split())
    for phrase in """
    how are you/how are you doing/how are you today/how's it going/how is it going/what's up/whats up/how do you do
    how have you been/how've you been/good morning/good afternoon/good evening/good night/guten tag/guten morgen
    buenos días/buenas noches/see you/see you later/see you soon/see ya/take care/talk soon/talk to you later
    you're welcome/no problem/no worries/my pleasure/any time/anytime/sounds good/sounds great/got it/makes sense
    i see/i agree/i know/of course/for sure/all good/nice to meet you/good to see you/great to see you/nice to see you
    good to hear from you/have a nice day/have a great day/have a good day/thank you so much/thank you for that
    that's great/that's awesome/that's good/that's nice/that's cool/that's amazing/that's wonderful/that sounds great
    go ahead/long time no see/i'm good/i'm fine/i'm doing well/i'm well/and you/how about you/what about you
    glad to hear it/glad to hear that/great to hear/good to hear/no thanks/it's good to see you/great to hear from you
    """.replace("\n", "/").split("/")
)
_GREETINGS = frozenset(
    "hi hey hello hiya thanks thank you bye goodbye cheers hallo hola salut bonjour ciao welcome dear congrats morning "
    "afternoon evening night congratulations later soon care".split()
)
_CJK_FILLER = re.compile(
    "ありがとうございます|ありがとう|おはようございます|おはよう|こんにちは|こんばんは|はい|いいえ|谢谢你|謝謝你|谢谢|謝謝|你好吗"
    "|你好嗎|你好|您好|再见|再見|好的|是的|没问题|嗯|好|안녕하세요|안녕|감사합니다|고마워요|고마워|네"
)
_SPOKEN = re.compile(r"\w+(?:['’]\w+)*")
_LONGEST_FILLER = 64  # words
_STRETCHED = re.compile(r"(\w)\1{2,}")  # "heyyy"


def is_substantive(text: str) -> bool:
    """False only for greetings, thanks, acknowledgements and fillers without content; a bare yes or no is one."""
    if len(text.split(None, _LONGEST_FILLER)) > _LONGEST_FILLER:
        return True
    if any(_CJK_FILLER.sub("", run) for run in cjk_runs(text)):
        return True
    spoken = [word.replace("’", "'") for word in _SPOKEN.findall(without_cjk(text))]
    plain = [_unstretched(word.lower()) for word in spoken]
    position = names_left = 0
    while position < len(spoken):
        length = _filler_length(plain, position)
        if length:  # "Hey Mel", "Good morning Dr Watson"
            names_left = 0 if _GREETINGS.isdisjoint(plain[position : position + length]) else 2
        elif names_left and spoken[position][0].isupper():
            names_left -= 1
        else:
            return True
        position += length or 1
    return False


def _unstretched(word: str) -> str:
    """`word` without drawn-out letters and laughter."""
    if len(word) > 4 and not word.strip("ha"):
        return "haha"
    return word if word in FILLER else _STRETCHED.sub(r"\1", word)


def _filler_length(plain: Sequence[str], position: int) -> int:
    """How many words from `position` on make one filler, 0 where none does."""
    for length in range(min(5, len(plain) - position), 1, -1):
        if tuple(plain[position : position + length]) in _PHRASES:
            return length
    return int(plain[position] in FILLER)
