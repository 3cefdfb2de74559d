"""Ranks skills for a request."""

from skillhouse.retrieval.heads import HeadIndex
from skillhouse.retrieval.index import Document, Hit, Progress, SearchIndex
from skillhouse.retrieval.ranking import FIELDS
from skillhouse.retrieval.searching import search
from skillhouse.retrieval.stems import SearchError
from skillhouse.retrieval.tokens import QUERY_TERMS_MAX, name_key, query_terms, tokens

__all__ = [
    "FIELDS",
    "QUERY_TERMS_MAX",
    "Document",
    "HeadIndex",
    "Hit",
    "Progress",
    "SearchError",
    "SearchIndex",
    "name_key",
    "query_terms",
    "search",
    "tokens",
]
