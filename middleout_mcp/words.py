"""The only text analysis in the project: sentences, terms, names, numbers, negation, CJK.

Standard `re` alone. Every pattern consumes what it starts on, none looks ahead over a run of unknown length or has two
ways to read one, so that each function takes linear time on any text; lone surrogates pass through. The lists of words
are short on purpose: they decide what is *not* worth a second look, and what they do not know counts as content.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from middleout_mcp.budget import cut_line, sentence_ends

_CJK = (
    "\u1100-\u11ff\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u3099-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c"
    "\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff\uff66-\uff9f\uffa0-\uffdc\U00020000-\U0003ffff"
)
_LETTER = f"[^\\W{_CJK}]"  # a letter, digit or underscore that is not CJK
_CJK_RUN = re.compile(f"[{_CJK}]+")


def fold(text: str) -> str:
    """`text` for comparing: NFC, case folded, white space collapsed. Folding twice changes nothing."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFD", folded).casefold()).split())


_BULLET = re.compile(r"(?:[-*•–—+>#]+[ \t]+)+")
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)[^`\n]*$", re.MULTILINE)


def sentences(text: str) -> list[str]:
    """The sentences of `text` in order, as they stand there but without bullet marks; inside code fences, its lines."""
    found: list[str] = []
    for index, block in enumerate(_FENCE.split(text)):
        found += block.split("\n") if index % 2 else _prose(block)
    return [stripped for sentence in found if (stripped := _unbulleted(sentence.strip()))]


def _prose(text: str) -> Iterator[str]:
    start = 0
    for end in sentence_ends(text):
        yield text[start:end]
        start = end
    yield text[start:]


def _unbulleted(sentence: str) -> str:
    bullet = _BULLET.match(sentence)
    return sentence[bullet.end() :] if bullet else sentence


def cjk_bigrams(text: str) -> list[str]:
    """The overlapping pairs of every run of Han, kana or Hangul characters, in order; a single one yields itself."""
    pairs: list[str] = []
    for run in _CJK_RUN.findall(text):
        pairs += [run] if len(run) == 1 else map("".join, pairwise(run))
    return pairs


STOP_WORDS = frozenset(
    """
    a about after again all also am an and any are as at be because been before being both but by can cannot could d did
    do does doing don down during each few for from further had has have having he her here hers herself him himself his
    how i if in into is it its itself just let ll m me more most my myself no nor not now of off on once only or other
    our ours ourselves out over own re s same she should so some such t than that the their theirs them themselves then
    there these they this those through to too under until up ve very was we were what when where which while who whom
    whose why will with would you your yours yourself yourselves
    ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mustn't shan't shouldn't wasn't weren't
    won't wouldn't
    """.split()
)
"""English words that search and comparison skip: they tell one text from another too seldom."""

_TOKEN = re.compile(f"[{_CJK}]+|{_LETTER}+(?:[-.,'’/\\\\:@&+]+{_LETTER}+)*")
_SEPARATOR = re.compile(r"[-.,'/\\:@&+_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CONTRACTION = re.compile(r"'(?:s|d|m|ll|re|ve)\Z")
_LONGEST_TERM = 64


def terms(text: str) -> list[str]:
    """Search terms in order, lower-cased, repeats included: words but stop words, numbers, CJK bigrams, and compounds
    (`get_user`, `v2.3.1`, `src/app.py`, `well-known`) first whole, then in parts.
    """
    found: list[str] = []
    for token in _TOKEN.findall(unicodedata.normalize("NFC", text)):
        if _CJK_RUN.match(token):
            found += cjk_bigrams(token)
        else:
            found += _word_terms(token.replace("’", "'").strip("_"))
    return found


def _word_terms(token: str) -> list[str]:
    """The terms of one run of letters, digits and inner punctuation."""
    lower = _CONTRACTION.sub("", token.lower())
    if not lower or lower in STOP_WORDS:
        return []
    if lower.isalpha() and (token[1:].islower() or token.isupper()):
        return [lower]
    parts = [part.lower() for piece in _SEPARATOR.split(token) for part in _CAMEL.split(piece)]
    whole = [lower] if len(lower) <= _LONGEST_TERM else []
    if not re.search(r"[^\W\d_]", lower):  # "1,000" and "10:30" are found as they are, not by their parts
        return whole or [part for part in parts if part]
    return whole + [part for part in parts if part != lower and _is_term(part)]


def _is_term(part: str) -> bool:
    """Whether a part of a compound is worth a search of its own."""
    if part.isdigit():
        return 2 < len(part) <= _LONGEST_TERM
    return 1 < len(part) <= _LONGEST_TERM and part not in STOP_WORDS


_MONTHS = (
    "january february march april may june july august september october november december jan feb mar apr jun jul "
    "aug sept sep oct nov dec"
)
_DAYS = "monday tuesday wednesday thursday friday saturday sunday mon tues tue wed thurs thur thu fri sat sun"
_COMMON = STOP_WORDS | frozenset(
    f"""
    {_MONTHS} {_DAYS} absolutely actually add added ago ah aha almost already alright although always amazing another
    anyone anything anyway apart around ask asked assistant aw awesome aww bad because besides best better big bought
    btw build built bye call called came check choose close come congrats congratulations consider cool create created
    dear decide decided definitely delete despite done either else enjoy enough error even ever every everyone
    everything exactly except excited fantastic feel felt finally find fine first five fix fixed follow found four full
    fun fyi gave get getting girl give given giving glad go going gone good got great guess guy haha happy hard hello
    help hey hi hmm hope however imagine imo incredible instead interesting keep kept kids kind know last later learn
    least leave left less life like little lol long look looking looks lots lovely made make making man many maybe
    meanwhile meet met might mind more move moved much must nah need never new next nice nobody none nope note nothing
    often oh ok okay old one open otherwise overall people perfect perhaps personally place plan please plus probably
    put quick quite ran read ready really remember remove right run said saw say second see seeing seems seen send sent
    set several shall show since small someone something sometimes soon sorry sound sounds speaking spent start started
    still stop such summary super sure system take taking talk tell ten test thank thanks that thing things think third
    though thought three time today todo together told tomorrow tonight took total totally tried true truly trust try
    trying turn turns two ugh unless unlike update updated use used user using usually very wait want warning watch way
    week welcome well went whatever whenever whether without woman wonderful work working worth wow write year yeah yep
    yes yesterday yet yo yup
    """.split()
)
"""Words that begin sentences in capitals without being names."""

_NAME_WORD = re.compile(f"[^\\W\\d_{_CJK}]{_LETTER}*(?:['’&-]{_LETTER}+)*")
_NEVER_A_NAME = STOP_WORDS | frozenset(f"{_MONTHS} {_DAYS} ok okay hi hey hello yes yeah thanks".split())
_JOINERS = frozenset("of the de da del della der den di du la le van von und y bin al ibn".split())
_VERB_LIKE = re.compile(r"[a-z]{2,}(?:ing|ed|ly)\Z")


def names(text: str) -> list[str]:
    """Capitalised names in order of first appearance, as they are written, several words together. Words that are only
    capitals because a sentence begins with them are left out, and so are days and months.
    """
    lower, inside = set[str](), set[str]()
    runs: list[tuple[str, bool, list[tuple[int, int]]]] = []
    for sentence in sentences(text):
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
        adjacent = gap == " " or (gap == ". " and run[-1][1] - run[-1][0] <= 3)
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
    name = _CONTRACTION.sub("", sentence[spans[0][0] : spans[-1][1]].replace("’", "'"))
    return name if len(name) > 1 else ""


def _begins_only(sentence: str, spans: list[tuple[int, int]], lower: set[str], inside: set[str]) -> bool:
    """Whether the first word of a sentence has its capital only because it is the first."""
    word = sentence[slice(*spans[0])]
    if word in inside or (word.isupper() and len(word) > 1) or (word == "New" and len(spans) > 1):
        return False
    bare = _bare(word)
    return bare in _COMMON or bare in lower or _VERB_LIKE.search(bare) is not None


def _bare(word: str) -> str:
    return _CONTRACTION.sub("", word.lower().replace("’", "'"))


_MONTH = "(?:" + _MONTHS.replace(" ", "|") + r")\b\.?"
_AFTER_WORD = f"(?<!{_LETTER})"  # like \b, but a digit may follow a CJK character
_NUMBER = re.compile(
    rf"{_AFTER_WORD}(?:"
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
    return _NUMBER.findall(text)


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


_FILLER = frozenset(
    """
    hi hey hello hiya yo howdy greetings hallo hola salut bonjour ciao servus moin ola olá привет bye goodbye cheers
    thanks thank thx ty tysm cheers please pls welcome danke merci gracias grazie obrigado obrigada спасибо bitte
    ok okay k kk oki sure yes yeah yep yup ya yea no nope nah fine alright right great cool nice good awesome perfect
    excellent wonderful amazing wow oh ah aha aw hm mhm uh um er well so ha haha hehe lol lmao rofl absolutely definitely
    exactly indeed totally agreed true yay woohoo sorry oops congrats congratulations same too very much really again
    there you all everyone guys then a lot lots oui non si sí ja nein da да нет
    """.split()
)
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
_SPOKEN = re.compile(f"[{_CJK}]+|{_LETTER}+(?:['’]{_LETTER}+)*")
_LONGEST_FILLER = 64  # words
_STRETCHED = re.compile(r"(\w)\1{2,}")


def is_substantive(text: str) -> bool:
    """False only for greetings, thanks, acknowledgements and fillers without content; a bare yes or no is one."""
    if len(text.split(None, _LONGEST_FILLER)) > _LONGEST_FILLER:
        return True
    spoken = [word.replace("’", "'") for word in _SPOKEN.findall(text) if _CJK_FILLER.sub("", word)]
    plain = [_unstretched(word.lower()) for word in spoken]
    position, greeted = 0, False
    while position < len(spoken):
        length = _filler_length(plain, position)
        if not length and not (greeted and spoken[position][0].isupper()):
            return True
        greeted = not _GREETINGS.isdisjoint(plain[position : position + length])  # "Hey Mel", "Thank you, Caroline"
        position += length or 1
    return False


def _unstretched(word: str) -> str:
    """ "heyyy" as "hey", "hahahaha" as "haha"."""
    if len(word) > 4 and not word.strip("ha"):
        return "haha"
    return word if word in _FILLER else _STRETCHED.sub(r"\1", word)


def _filler_length(plain: Sequence[str], position: int) -> int:
    """How many words from `position` on make one filler, 0 where none does."""
    for length in range(min(5, len(plain) - position), 1, -1):
        if tuple(plain[position : position + length]) in _PHRASES:
            return length
    return int(plain[position] in _FILLER)


_OUTCOME = re.compile(
    r"\b(?:decided|decide|decision|agreed|chose|chosen|will|going to|plan|must|should|need|deadline|due|finished|fixed"
    r"|failed|because|instead|prefer|booked|bought|moved|started|got|won|married|remember)\b",
    re.IGNORECASE,
)
_MOST_SENTENCES = 400  # of a longer stretch, the first and the last half as many
_MOST_CHARACTERS = 400


def episode_line(turns: Sequence[tuple[str, str]]) -> str:
    """One extractive line of at most 24 words and 40 tokens for a stretch of (speaker, text): what it was about, and
    how it ended. Empty where no turn has text.
    """
    spoken = [(speaker, sentence[:_MOST_CHARACTERS]) for speaker, text in turns for sentence in sentences(text)]
    if len(spoken) > _MOST_SENTENCES:
        spoken = spoken[: _MOST_SENTENCES // 2] + spoken[-_MOST_SENTENCES // 2 :]
    kept = [pair for pair in spoken if is_substantive(pair[1])] or spoken
    if not kept:
        return ""
    spread = Counter(term for _, sentence in kept for term in set(terms(sentence)))
    scores = [_weight(sentence, spread) for _, sentence in kept]
    best = max(range(len(kept)), key=lambda index: (scores[index], -index))
    later = range(max(best + 1, len(kept) // 2), len(kept))
    last = max(later, key=lambda index: (scores[index], index), default=None)
    if last is None:
        return cut_line(_said(*kept[best]))
    first = cut_line(_said(*kept[best]), words=13, tokens=22)
    return cut_line(f"{first} → {kept[last][1]}")


def _said(speaker: str, sentence: str) -> str:
    return f"{speaker}: {sentence}" if speaker.strip() else sentence


def _weight(sentence: str, spread: Counter[str]) -> float:
    """How much a sentence tells of its stretch for its length: recurring terms, names, numbers, outcomes."""
    weight = sum(1.0 + min(spread[term], 4) / 4 for term in set(terms(sentence)))
    weight += 1.5 * len(names(sentence)) + len(numbers(sentence)) + 2.0 * bool(_OUTCOME.search(sentence))
    asked = sentence.rstrip("\"'”’ ").endswith(("?", "？"))
    return weight / math.sqrt(6 + len(sentence.split())) * (0.4 if asked else 1.0)
