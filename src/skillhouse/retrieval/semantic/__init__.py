"""Search by meaning: encoders of the extra `semantic`, their vectors, and how they are weighed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.retrieval.semantic.embedder import Embedder as Embedder
    from skillhouse.retrieval.semantic.embedder import EncoderError as EncoderError
    from skillhouse.retrieval.semantic.encoders import CHOICES as CHOICES
    from skillhouse.retrieval.semantic.encoders import Encoders as Encoders
    from skillhouse.retrieval.semantic.encoders import encoders_of as encoders_of
    from skillhouse.retrieval.semantic.weights import SHA256 as SHA256
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
