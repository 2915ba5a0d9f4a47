"""The only text analysis in the project: sentences, terms, names, numbers, negation, substance, lines.

Standard `re` alone. Every pattern consumes what it starts on, none looks ahead over a run of unknown length or has two
ways to read one, so that each function takes linear time on any text; lone surrogates pass through. The lists of words
are short on purpose: they decide what is *not* worth a second look, and what they do not know counts as content.
"""

from middleout_mcp.words.content import COMMON, has_negation, is_substantive, names, numbers
from middleout_mcp.words.line import episode_line
from middleout_mcp.words.text import STOP_WORDS, cjk_bigrams, fold, sentences, terms

__all__ = [
    "COMMON",
    "STOP_WORDS",
    "cjk_bigrams",
    "episode_line",
    "fold",
    "has_negation",
    "is_substantive",
    "names",
    "numbers",
    "sentences",
    "terms",
]
