"""Turns a query into concepts: its words, what was meant by misspelt ones, and translations."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from skillhouse.retrieval.glossary.translate import Meaning, idle_words, meanings, translations
from skillhouse.retrieval.rank import Alternative, Concept, Found, Ranking
from skillhouse.retrieval.spelling import distance, edits_max, is_correctable
from skillhouse.retrieval.tokens import is_pair, query_terms, stems_of_query, tokens

CORRECTION_WEIGHTS = (1.0, 0.9, 0.75)
"""Weight of a word that was meant, beside one that was written, by the number of edits."""
REVERSE_WEIGHT = 0.3
"""Weight of a word of another language for an English one."""
REVERSE_ROWS = 30
"""Rows from which an English word is not looked for in other languages: enough skills have it."""
UNSURE_TIMES = 20
"""A word that could be of another language is, if so many times more skills have its meaning."""
QUERY_CHARS_MAX = 16_384
"""Characters of a query that are read."""
CONCEPTS_MAX = 128
"""Concepts of a query that count: a page of Chinese has hundreds of words."""
_TRANSLATED_CHARS = 2_000
"""Characters of a query that are translated: each of their words looks up several others."""
_SENSES_MAX = 4
_SENSE_LEAST = 0.04
_FAMILIAR = 0.35
"""How much a sense counts more the more skills have its words. These are decision record 0301."""
_SAME_START = 0.3
_FREQUENCY = 0.06
"""What a first letter in common, and each e-fold of frequency, count against one edit
(reference/retrieval-resources.md, section 3)."""


ASKING_WORDS = frozenset(
    """
    how what which who whom whose when where why do does did can could would should will shall may
    might must have has had am i me my mine we us our you your he she his her him them there any
    some need want like please help tell give get make just really very so up out about
    """.split()
)
"""What people ask with. Descriptions rarely have these words, so they would weigh much there."""
ASKING_WEIGHT = 0.6
"""Their weight where no bodies are searched. With bodies it helps shipped evals and costs requests
by hand (decision record 0404)."""


class TranslationWeights(NamedTuple):
    """How much translations count."""

    senses: float = 0.9
    """Weight of a translated word, beside one that was written."""
    pairs: float = 0.15
    """Weight of a pair of CJK signs beside the words that the glossary finds in the same text."""


MIX = TranslationWeights()
"""Chosen on the development set, cross-validated by owner of the skill (decision record 0305)."""

Stems = Mapping[str, tuple[str, ...]]


def looked_for(query: str) -> list[str]:
    """Return the tokens that a search for a query looks for, corrections aside."""
    terms = query_terms(query)
    words = [word for term in terms for word in translations(term)]
    for meaning in meanings(query):
        words += [meaning.text, *(text for text, _ in meaning.senses)]
    return [*terms, *(token for word in words for token in _tokens(word))]


def surely_meant(query: str) -> list[str]:
    """Return the English words of what a query says in another language, the likely ones first.

    >>> surely_meant("天气"), surely_meant("four routes")
    (['weather'], [])
    """
    sure = (each.senses for each in meanings(query[:_TRANSLATED_CHARS]) if each.is_sure)
    return list(dict.fromkeys(text for senses in sure for text, _ in senses))


Fields = Mapping[str, str]
"""The texts of one thing that is searched, by the name of the field."""


def words_in(query: str, found: Sequence[Fields]) -> list[dict[str, tuple[str, ...]]]:
    """Return the words of a query that each field has, for hits that something else ranked.

    Translations count where they are sure, corrections do not; a field without any is left out.

    >>> words_in("merging files", [{"name": "pdf-merge", "description": "Merges documents"}])
    [{'name': ('merging',), 'description': ('merging',)}]
    >>> words_in("天气", [{"name": "weather", "description": "天气预报"}])
    [{'name': ('天气',), 'description': ('天气',)}]
    """
    query = query[:_TRANSLATED_CHARS]
    # The texts that answer a word, each by its tokens, all of which a field must have.
    asked = {term: [[term]] for term in query_terms(query)}
    if not asked:  # A list of everything has no words, and its texts need not be read.
        return [{} for _ in found]
    for meaning in meanings(query):
        if meaning.is_sure:
            texts = asked.setdefault(meaning.text, [_tokens(meaning.text)])
            texts += [text.split() for text, _ in meaning.senses]
    stems = stems_of_query(chain.from_iterable(chain.from_iterable(asked.values())))
    answers = {
        word: [frozenset(chain.from_iterable(stems[token] for token in text)) for text in texts]
        for word, texts in asked.items()
    }
    return [
        {name: words for name, text in fields.items() if (words := _words_of(text, answers))}
        for fields in found
    ]


def _words_of(text: str, answers: Mapping[str, list[frozenset[str]]]) -> tuple[str, ...]:
    """Return the words one of whose answers, each some stems, is in a text."""
    own = frozenset(chain.from_iterable(stems_of_query(tokens(text)).values()))
    return tuple(word for word, texts in answers.items() if any(t and t <= own for t in texts))


class PreparedQuery(NamedTuple):
    """A query, ready to be ranked."""

    concepts: Sequence[Concept]
    found: dict[str, Found]
    """The postings of all stems of the concepts."""
    corrected: dict[str, str]
    """Misspelt words of the query, and the stems that were looked for instead."""


def read_query(query: str, ranking: Ranking, mix: TranslationWeights = MIX) -> PreparedQuery:
    """Return the concepts of a query. DamagedError or OSError: a segment cannot be read."""
    query = query[:QUERY_CHARS_MAX]
    idle = idle_words(query)
    terms = query_terms(query)
    terms = [term for term in terms if term not in idle] or terms
    translated = meanings(query[:_TRANSLATED_CHARS])
    senses = (word for meaning in translated for text, _ in meaning.senses for word in text.split())
    # What is written in another language is no misspelt English.
    reading = _Reading(ranking, stems_of_query([*terms, *senses]), mix, corrects=not idle)
    read = [(each, concept) for each in translated if (concept := reading.translated(each))]
    meant = [concept for _, concept in read]
    texts = {word for each, _ in read for word in each.words}
    has_signs = any(is_pair(text) for text in texts)
    concepts = [
        concept
        for term in terms
        if term not in texts or is_pair(term)
        for concept in reading.written(term, is_beside=has_signs)
    ]
    return PreparedQuery(_heaviest([*concepts, *meant]), reading.found, reading.corrected)


def _heaviest(concepts: Sequence[Concept]) -> Sequence[Concept]:
    """Return the concepts that count, in the order of the query."""
    if len(concepts) <= CONCEPTS_MAX:
        return concepts
    least = heapq.nlargest(CONCEPTS_MAX, (concept.weight for concept in concepts))[-1]
    return [concept for concept in concepts if concept.weight >= least][:CONCEPTS_MAX]


class _Reading:
    """The postings that one query needed so far."""

    def __init__(
        self, ranking: Ranking, stems: Stems, mix: TranslationWeights, *, corrects: bool
    ) -> None:
        self._ranking = ranking
        self._mix = mix
        self._corrects = corrects
        self._stems = stems
        self.found: dict[str, Found] = {}
        self.corrected: dict[str, str] = {}

    def written(self, term: str, *, is_beside: bool) -> list[Concept]:
        """Return the concepts of a term as it is written, or as it was meant.

        Args:
            is_beside: Whether pairs of signs are beside the words that they belong to.
        """
        concepts = []
        for stem in dict.fromkeys(self._stems[term]):
            own = Alternative((stem,))
            reverse = self._reverse(term) if self._count(stem) < REVERSE_ROWS else []
            is_unknown = self._corrects and not reverse and not self._count(stem)
            if is_unknown and is_correctable(term):
                own = self._corrected(term, stem)
            weight = self._found(own.stems[0]).idf
            if term in ASKING_WORDS and not self._ranking.has_bodies:
                weight *= ASKING_WEIGHT
            if is_beside and is_pair(term):
                weight *= self._mix.pairs
            elif reverse and not self._count(stem):
                weight = self._ranking.idf(max(self._rows(each.stems) for each in reverse))
            is_known = bool(reverse) or self._count(own.stems[0]) > 0
            concepts.append(Concept(term, (own, *reverse), weight, is_known))
        return concepts

    def _reverse(self, term: str) -> list[Alternative]:
        """Return the words of other languages for an English one that some row has."""
        words = [_tokens(word) for word in translations(term)]
        stems = stems_of_query(token for tokens in words for token in tokens)
        found = [tuple(stem for token in tokens for stem in stems[token]) for tokens in words]
        return [
            Alternative(each, REVERSE_WEIGHT, word)
            for each, word in zip(found, translations(term), strict=True)
            if self._rows(each)
        ]

    def translated(self, meaning: Meaning) -> Concept | None:
        """Return the concept of a word of another language, if it is one."""
        own = Alternative(self._of(_tokens(meaning.text)))
        senses = self._senses(meaning.senses)
        rows = self._rows(own.stems) if own.stems else 0
        known = max((self._rows(each.stems) for each in senses), default=0)
        if not own.stems or (not meaning.is_sure and UNSURE_TIMES * rows >= known):
            return None
        if not senses:
            return Concept(meaning.text, (own,), self._ranking.idf(rows), rows > 0)
        total = sum(each.weight**2 for each in senses)
        idfs = (each.weight**2 * self._ranking.idf(self._rows(each.stems)) for each in senses)
        # All alternatives count alike, so that skills in two languages compete.
        return Concept(meaning.text, (own, *senses), sum(idfs) / total)

    def _senses(self, senses: Iterable[tuple[str, float]]) -> list[Alternative]:
        """Return the senses whose words the skills have, the likely ones in this library first."""
        known: dict[tuple[str, ...], float] = {}
        texts: dict[tuple[str, ...], str] = {}
        for text, weight in senses:
            stems = self._of(text.split())
            if stems and (rows := self._rows(stems)):
                known[stems] = max(known.get(stems, 0.0), weight * rows**_FAMILIAR)
                texts.setdefault(stems, text)
        best = sorted(known.items(), key=lambda item: (-item[1], item[0]))[:_SENSES_MAX]
        total = sum(weight for _, weight in best)
        return [
            Alternative(stems, self._mix.senses * math.sqrt(weight / total), texts[stems])
            for stems, weight in best
            if weight > _SENSE_LEAST * total
        ]

    def _corrected(self, term: str, stem: str) -> Alternative:
        """Return the stem that was most likely meant, or `stem`."""
        most = edits_max(term)
        best, weight, least, meant = stem, 1.0, math.inf, ""
        for word, other in self._ranking.alike(term):
            edits = distance(term, word, most)
            if edits > most:
                continue
            # Words of hidden documents are no corrections.
            count = self._count(other)
            cost = edits - _SAME_START * (word[0] == term[0]) - _FREQUENCY * math.log1p(count)
            if count and cost < least:
                best, weight, least, meant = other, CORRECTION_WEIGHTS[edits], cost, word
        if best != stem:
            self.corrected[term] = best
        return Alternative((best,), weight, meant if best != stem else "")

    def _of(self, tokens: Iterable[str]) -> tuple[str, ...]:
        """Return the stems of tokens; of those that were not asked for, the tokens."""
        return tuple(
            dict.fromkeys(stem for token in tokens for stem in self._stems.get(token, (token,)))
        )

    def _rows(self, stems: Iterable[str]) -> int:
        """Return in how many rows the rarest of some stems is."""
        return min((self._count(stem) for stem in stems), default=0)

    def _count(self, stem: str) -> int:
        return self._found(stem).row_count

    def _found(self, stem: str) -> Found:
        found = self.found.get(stem)
        if found is None:
            found = self.found[stem] = self._ranking.found(stem)
        return found


def _tokens(word: str) -> list[str]:
    """Return the tokens of a word of another language: pairs of CJK signs, or the word."""
    if not is_pair(word):
        return word.split()
    return [word[at : at + 2] for at in range(max(1, len(word) - 1))]
