"""The only text analysis in the project: sentences, terms, names, numbers, negation, CJK.

Standard `re` alone. Every pattern consumes what it starts on and none looks ahead over a run of unknown length, so that
each function takes linear time on any text; lone surrogates pass through.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from middleout_mcp.budget import count_tokens, cut_line, sentence_ends

_CJK = (
    "\u1100-\u11ff\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u3099-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c"
    "\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff\uff66-\uff9f\uffa0-\uffdc\U00020000-\U0003ffff"
)
_CJK_RUN = re.compile(f"[{_CJK}]+")
_TOKEN = re.compile(f"[{_CJK}]+|[^\\W{_CJK}]+(?:[-.,'’/\\\\:@&+]+[^\\W{_CJK}]+)*")
_SEPARATOR = re.compile(r"[-.,'’/\\:@&+_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LONGEST_TERM = 64

STOP_WORDS = frozenset(
    "a about after again all also am an and any are aren't as at be because been before being both but by can can't "
    "cannot could couldn't d did didn't do does doesn't doing don't down during each few for from further had hadn't "
    "has hasn't have haven't having he her here hers herself him himself his how i if in into is isn't it its itself "
    "just ll m me more most my myself no nor not now of off on once only or other our ours ourselves out over own re s "
    "same shan't she should shouldn't so some such t than that the their theirs them themselves then there these they "
    "this those through to too under until up ve very was wasn't we were weren't what when where which while who whom "
    "whose why will with won't would wouldn't you your yours yourself yourselves".split()
)


def fold(text: str) -> str:
    """`text` for comparing: NFC, case folded, white space collapsed. Folding twice changes nothing."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(folded.split())


_BULLET = re.compile(r"(?:[-*•–—+>#]+[ \t]+)+")
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)[^\n]*\n?", re.MULTILINE)


def sentences(text: str) -> list[str]:
    """The sentences of `text` in order, as they stand there without bullet marks; inside code fences, its lines."""
    found: list[str] = []
    for index, block in enumerate(_FENCE.split(text)):
        found += block.splitlines() if index % 2 else _prose(block)
    stripped = (_unbulleted(sentence) for sentence in found)
    return [sentence for sentence in stripped if sentence]


def _prose(text: str) -> Iterator[str]:
    start = 0
    for end in sentence_ends(text):
        yield text[start:end]
        start = end
    yield text[start:]


def _unbulleted(sentence: str) -> str:
    sentence = sentence.strip()
    bullet = _BULLET.match(sentence)
    return sentence[bullet.end() :] if bullet else sentence


def cjk_bigrams(text: str) -> list[str]:
    """The overlapping pairs of every run of Han, kana or Hangul characters, in order; a single one yields itself."""
    pairs: list[str] = []
    for run in _CJK_RUN.findall(text):
        pairs += [run] if len(run) == 1 else map("".join, zip(run, run[1:], strict=False))
    return pairs


def terms(text: str) -> list[str]:
    """Search terms in order, lower-cased, repeats included: words but stop words, numbers, CJK bigrams, and compounds
    (`get_user`, `v2.3.1`, `src/app.py`) both whole and in parts.
    """
    found: list[str] = []
    for token in _TOKEN.findall(unicodedata.normalize("NFC", text)):
        if _CJK_RUN.match(token):
            found += cjk_bigrams(token)
        else:
            found += _word_terms(token.replace("’", "'").strip("_"))
    return found


def _word_terms(token: str) -> list[str]:
    lower = token.lower().removesuffix("'s")
    if not lower or lower in STOP_WORDS:
        return []
    if lower.isalpha() and lower in (token, token.casefold()):
        return [lower]
    parts = [part.lower() for piece in _SEPARATOR.split(token) for part in _CAMEL.split(piece)]
    whole = [lower] if len(lower) <= _LONGEST_TERM else []
    return whole + [part for part in parts if part != lower and _is_term(part)]


def _is_term(part: str) -> bool:
    if part.isdigit():
        return len(part) > 2
    return 1 < len(part) <= _LONGEST_TERM and part not in STOP_WORDS


_NAME_WORD = re.compile(f"[^\\W\\d_{_CJK}][^\\W_{_CJK}]*(?:['’&-][^\\W_{_CJK}]+)*")
_JOINERS = frozenset("of the de da del della der den di du la le van von und y bin al ibn".split())
_MONTHS = (
    "january february march april may june july august september october november december jan feb mar apr jun jul "
    "aug sep sept oct nov dec"
)
_DAYS = "monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun"
_NOT_A_NAME = (
    STOP_WORDS
    | frozenset(f"{_MONTHS} {_DAYS}".split())
    | frozenset(
        "i i'm i'll i've i'd it's that's there's what's let's he's she's we're they're you're don't we'll we've "
        "hi hey hello thanks thank ok okay oh wow yes yeah no sure well great good nice cool please sorry today tomorrow "
        "yesterday tonight maybe actually however although though since because first second third finally next last "
        "let never always sometimes often perhaps still yet also another anyone everyone someone nobody nothing something "
        "everything many much several two three four five ten one absolutely definitely congrats congratulations haha "
        "lol awesome amazing sounds looks looking got get go going make take give see say tell ask remember check use add "
        "run fix read write open close try note todo done error warning summary user assistant system bye welcome happy "
        "glad hope love like need want think know keep time day week month year work people things may might must shall "
        "really exactly totally true right wait btw fyi imo yep yup nope nah hmm ah aww aw ugh speaking even instead "
        "meanwhile besides after before during despite unless whether either neither every none ever again".split()
    )
)


def names(text: str) -> list[str]:
    """Capitalised names in order of first appearance, several words together; common words that only begin a sentence,
    days and months are left out.
    """
    found: dict[str, None] = {}
    for sentence in sentences(text):
        for name in _names_of(sentence):
            found.setdefault(name)
    return list(found)


def _names_of(sentence: str) -> Iterator[str]:
    group: list[str] = []
    end = -1
    for match in _NAME_WORD.finditer(sentence):
        word = match.group()
        adjacent = sentence[end : match.start()] in (" ", ". ") if group else False
        if adjacent and word in _JOINERS:
            group.append(word)
        elif word[0].isupper():
            if not adjacent:
                yield from _named(group)
                group = []
            group.append(word)
        else:
            yield from _named(group)
            group = []
        end = match.end()
    yield from _named(group)


def _named(group: list[str]) -> Iterator[str]:
    """The name that a run of capitalised words holds, if any."""
    words = [word.replace("’", "'").removesuffix("'s") for word in group]
    while words and (words[-1] in _JOINERS or words[-1].lower() in _NOT_A_NAME):
        words.pop()
    while words and (words[0] in _JOINERS or words[0].lower() in _NOT_A_NAME):
        words.pop(0)
    if words and (len(words) > 1 or len(words[0]) > 1):
        yield " ".join(words)


_MONTH = "(?:" + "|".join(sorted(_MONTHS.split(), key=len, reverse=True)) + r")\b\.?"
_NUMBER = re.compile(
    r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?"
    rf"|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}})?|\b{_MONTH} \d{{4}}"
    r"|\b\d{1,2}(?::\d{2}){1,2}(?: ?[ap]\.?m\b\.?)?|\b\d{1,2} ?[ap]\.?m\b"
    r"|[$€£¥₹] ?\d[\d,.]*\d(?: ?(?:k|m|bn|million|billion)\b)?|[$€£¥₹] ?\d"
    r"|\bv?\d+(?:\.\d+){2,}(?:-[a-z0-9.]{1,20})?"
    r"|[-+]?\b\d+(?:[.,/-]\d+)*(?: ?(?:%|[$€£¥₹]|°C?F?))?"
    rf"|\b(?:{'|'.join(sorted(_DAYS.split(), key=len, reverse=True))})\b",
    re.IGNORECASE,
)


def numbers(text: str) -> list[str]:
    """Numbers, dates, times, money, percentages, versions and weekdays as they are written, in order."""
    return [" ".join(number.split()) for number in _NUMBER.findall(text)]


_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|dont|doesnt|didnt|isnt|wasnt|wont|cant"
    r"|nicht|kein|keine|keinen|keinem|keiner|nie|niemals|niemand|nichts|pas|jamais|aucun|aucune|nunca|jamás|nada|nadie"
    r"|não|mai|niente|nessuno|niet|geen|nooit|не|нет|никогда)\b|n['’]t\b|[不没沒無]|ない|なかった|ません|안 |않",
    re.IGNORECASE,
)


def has_negation(text: str) -> bool:
    """Whether `text` denies something: English, and the plain negations of a few other languages."""
    return _NEGATION.search(text) is not None


_FILLER = frozenset(
    "hi hey hello hiya yo howdy greetings hallo hola salut bonjour ciao servus moin ola olá привет спасибо merci danke "
    "gracias grazie obrigado obrigada bitte bye goodbye cheers thanks thank thx ty tysm please pls welcome ok okay k kk "
    "oki sure yes yeah yep yup ya yea no nope nah fine alright right great cool nice good awesome perfect excellent "
    "wonderful amazing wow oh ah aha ahh aw aww hm hmm hmmm mhm uh um er well so haha hahaha hehe lol lmao rofl "
    "absolutely definitely exactly indeed totally agreed true yay woohoo sorry oops congrats congratulations same too "
    "very much really oui non si sí ja nein da нет да 嗯 你好 谢谢 謝謝 您好 再见 好的 好 ありがとう こんにちは はい "
    "ありがとうございます おはよう 안녕하세요 감사합니다 네 there you all everyone again then lots ton tons".split()
)
_FILLER_PHRASES = frozenset(
    tuple(phrase.split())
    for phrase in (
        "how are you|how are you doing|how are you today|how's it going|how is it going|what's up|whats up|how do you do"
        "|how have you been|how've you been|good morning|good afternoon|good evening|good night|guten tag|guten morgen"
        "|buenos días|buenas noches|see you|see you later|see you soon|see ya|take care|talk soon|talk to you later"
        "|you're welcome|no problem|no worries|my pleasure|any time|anytime|sounds good|sounds great|got it|makes sense"
        "|i see|i agree|i know|of course|for sure|all good|nice to meet you|good to see you|great to see you"
        "|good to hear from you|nice to see you|have a nice day|have a great day|have a good day|thank you so much"
        "|that's great|that's awesome|that's good|that's nice|that's cool|that sounds great|let me know|go ahead"
        "|long time no see|take it easy|i'm good|i'm fine|i'm doing well|i'm well|and you|how about you|what about you"
        "|glad to hear it|glad to hear that|great to hear|good to hear|no thanks|yes please"
    ).split("|")
)
_GREETED = frozenset("hi hey hello thanks thank bye goodbye hallo hola bonjour morning dear cheers welcome you".split())
_FILLER_TOKEN = re.compile(f"[{_CJK}]+|[^\\W{_CJK}]+(?:['’][^\\W{_CJK}]+)*")


def is_substantive(text: str) -> bool:
    """False only for greetings, thanks, acknowledgements and fillers without content; a bare yes or no is one."""
    words = [word.replace("’", "'") for word in _FILLER_TOKEN.findall(text)]
    lower = [word.lower() for word in words]
    position, greeted = 0, False
    while position < len(words):
        length = _filler_length(lower, position)
        if length == 0 and greeted and words[position][0].isupper():
            length, greeted = 1, False  # the name of the one greeted
        elif length == 0:
            return True
        else:
            greeted = lower[position + length - 1] in _GREETED
        position += length
    return False


def _filler_length(lower: list[str], position: int) -> int:
    """How many words from `position` on are one filler."""
    for length in range(min(5, len(lower) - position), 1, -1):
        if tuple(lower[position : position + length]) in _FILLER_PHRASES:
            return length
    return int(lower[position] in _FILLER)


_DECISION = re.compile(
    r"\b(?:decided|decide|decision|agreed|chose|chosen|will|going to|plan|must|should|need|deadline|due|finished|fixed"
    r"|failed|because|instead|prefer|booked|bought|moved|started|got|won|married|remember)\b",
    re.IGNORECASE,
)
_LINE_SENTENCES = 2_000  # a stretch longer than this is judged by its first and last thousand sentences


def episode_line(turns: Sequence[tuple[str, str]]) -> str:
    """One extractive line of at most 24 words and 40 tokens for a stretch of (speaker, text): what it was about, and
    how it ended. Empty where no turn has text.
    """
    spoken = [(speaker, sentence) for speaker, text in turns for sentence in sentences(text)]
    if len(spoken) > _LINE_SENTENCES:
        spoken = spoken[: _LINE_SENTENCES // 2] + spoken[-_LINE_SENTENCES // 2 :]
    kept = [pair for pair in spoken if is_substantive(pair[1])] or spoken
    if not kept:
        return ""
    spread = Counter(term for _, sentence in kept for term in set(terms(sentence)))
    scores = [_line_score(sentence, spread) for _, sentence in kept]
    best = max(range(len(kept)), key=lambda index: (scores[index], -index))
    half = len(kept) // 2
    later = [index for index in range(half, len(kept)) if index > best]
    last = max(later, key=lambda index: (scores[index], index), default=best)
    first = cut_line(_spoken(*kept[best]), words=24 if last == best else 13, tokens=40 if last == best else 22)
    if last == best:
        return first
    rest = 24 - len(first.split()) - 1
    line = f"{first} → {cut_line(kept[last][1], words=rest, tokens=max(1, 38 - count_tokens(first)))}"
    return cut_line(line)


def _spoken(speaker: str, sentence: str) -> str:
    return f"{speaker}: {sentence}" if speaker.strip() else sentence


def _line_score(sentence: str, spread: Counter[str]) -> float:
    """How much a sentence tells of its stretch, a word: recurring terms, names, numbers, decisions; not questions."""
    own = set(terms(sentence))
    weight = sum(1.0 + min(spread[term], 4) / 4 for term in own)
    weight += 1.5 * len(names(sentence)) + 1.0 * len(numbers(sentence)) + 2.0 * bool(_DECISION.search(sentence))
    score = weight / (6 + len(sentence.split())) ** 0.7
    return score * (0.4 if sentence.rstrip("\"'”’ ").endswith(("?", "？")) else 1.0)
