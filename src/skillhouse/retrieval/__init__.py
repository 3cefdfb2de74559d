"""Ranks skills for a request."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.retrieval.confidence import CONFIDENT as CONFIDENT
    from skillhouse.retrieval.confidence import Fit as Fit
    from skillhouse.retrieval.confidence import fit_of as fit_of
    from skillhouse.retrieval.confidence import is_weak as is_weak
    from skillhouse.retrieval.hits import Hit as Hit
    from skillhouse.retrieval.hits import SearchDatabaseError as SearchDatabaseError
    from skillhouse.retrieval.hits import Searcher as Searcher
    from skillhouse.retrieval.hits import SearchResult as SearchResult
    from skillhouse.retrieval.hits import reason as reason
    from skillhouse.retrieval.hits import skills_of as skills_of
    from skillhouse.retrieval.index import Document as Document
    from skillhouse.retrieval.index import HeadIndex as HeadIndex
    from skillhouse.retrieval.index import Progress as Progress
    from skillhouse.retrieval.index import SearchIndex as SearchIndex
    from skillhouse.retrieval.index import search as search
    from skillhouse.retrieval.query import surely_meant as surely_meant
    from skillhouse.retrieval.query import words_in as words_in
    from skillhouse.retrieval.rank import FIELDS as FIELDS
    from skillhouse.retrieval.tokens import QUERY_TERMS_MAX as QUERY_TERMS_MAX
    from skillhouse.retrieval.tokens import SearchError as SearchError
    from skillhouse.retrieval.tokens import name_key as name_key
    from skillhouse.retrieval.tokens import query_terms as query_terms
    from skillhouse.retrieval.tokens import stems_of as stems_of
    from skillhouse.retrieval.votes import MeaningMaker as MeaningMaker
    from skillhouse.retrieval.votes import MeaningState as MeaningState
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
