"""Search by meaning: encoders of the extra `semantic`, their vectors, and how they are weighed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.extensions.meaning.embedder import Embedder as Embedder
    from skillhouse.extensions.meaning.embedder import EncoderError as EncoderError
    from skillhouse.extensions.meaning.encoders import Encoders as Encoders
    from skillhouse.extensions.meaning.encoders import encoders_of as encoders_of
    from skillhouse.extensions.meaning.weights import SHA256 as SHA256
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
