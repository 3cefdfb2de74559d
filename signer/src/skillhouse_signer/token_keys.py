"""Keys in a hardware token, by PKCS #11: the private key never leaves it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from skillhouse.floor import needs_extra
from skillhouse.registry.certificates import Role, curve_hash
from skillhouse.registry.publisher_keys import CURVE_OF, PublisherKey
from skillhouse.registry.trust import PublisherError

_CURVES = {"secp256r1": ec.SECP256R1, "secp384r1": ec.SECP384R1}


def token_parts(uri: str) -> Mapping[str, str]:
    """Return the attributes of a PKCS #11 URI (RFC 7512), those of its query too.

    >>> token_parts("pkcs11:token=acme;object=root?module-path=/usr/lib/p11.so")["object"]
    'root'

    Raises:
        PublisherError: `token`, it names no token, object or module.
    """
    scheme, _, rest = uri.partition(":")
    path, _, query = rest.partition("?")
    parts = dict(one.partition("=")[::2] for one in path.split(";") if one)
    found = {name: unquote(text) for name, text in parts.items()}
    found |= dict(parse_qsl(query))
    missing = [name for name in ("token", "object", "module-path") if not found.get(name)]
    if scheme != "pkcs11" or missing:
        message = (
            "expected a URI such as pkcs11:token=NAME;object=KEY?module-path=/usr/lib/MODULE.so"
        )
        raise PublisherError("token", message)
    if "pin-value" in found:
        # It would be in the list of processes, in the history, and in our own file.
        raise PublisherError("token", "the PIN is no part of the URI: use --password")
    return found


def make_token_key(key: PublisherKey, pin: bytes) -> ec.EllipticCurvePrivateKey:
    """Make a key pair in a token; PublisherError `token` where that fails or one is there."""
    parts = token_parts(key.token)
    curve = next(name for name, one in _CURVES.items() if one is CURVE_OF[Role(key.role)])
    with _session(parts, pin, is_writing=True) as session:
        import pkcs11
        from pkcs11.util.ec import encode_named_curve_parameters

        label = parts["object"]
        if next(iter(session.get_objects({pkcs11.Attribute.LABEL: label})), None) is not None:
            raise PublisherError("token", f"the token has an object `{label}` already")
        parameters = session.create_domain_parameters(
            pkcs11.KeyType.EC,
            {pkcs11.Attribute.EC_PARAMS: encode_named_curve_parameters(curve)},
            local=True,
        )
        # INVARIANT: sensitive and not extractable, so that no copy of it can be made.
        parameters.generate_keypair(
            store=True,
            label=label,
            id=hashlib.sha256(label.encode()).digest()[:16],
            private_template={
                pkcs11.Attribute.SENSITIVE: True,
                pkcs11.Attribute.EXTRACTABLE: False,
            },
        )
    return open_token_key(key, pin)


def open_token_key(key: PublisherKey, pin: bytes) -> ec.EllipticCurvePrivateKey:
    """Return a key that signs in its token; PublisherError `token` where it cannot be reached."""
    parts = token_parts(key.token)
    with _session(parts, pin) as session:
        import pkcs11
        from pkcs11.util.ec import encode_ec_public_key

        found = session.get_key(object_class=pkcs11.ObjectClass.PUBLIC_KEY, label=parts["object"])
        public = serialization.load_der_public_key(encode_ec_public_key(found))
    if not isinstance(public, ec.EllipticCurvePublicKey) or type(public.curve) not in (
        _CURVES.values()
    ):
        raise PublisherError("token", "expected a key on P-256 or P-384")
    return TokenKey(parts, pin, public)


class TokenKey(ec.EllipticCurvePrivateKey):
    """A private key that only its token can use; what would show it is refused."""

    def __init__(
        self, parts: Mapping[str, str], pin: bytes, public: ec.EllipticCurvePublicKey
    ) -> None:
        self._parts = parts
        self._pin = pin
        self._public = public

    def sign(
        self,
        data: Any,
        signature_algorithm: ec.EllipticCurveSignatureAlgorithm,
    ) -> bytes:
        algorithm = signature_algorithm.algorithm
        wanted = curve_hash(self._public.curve)
        if isinstance(algorithm, utils.Prehashed) or algorithm.name != wanted.name:
            raise PublisherError("token", f"expected {wanted.name} for this key")
        hasher = hashes.Hash(wanted)
        hasher.update(data)
        with _session(self._parts, self._pin) as session:
            import pkcs11

            private = session.get_key(
                object_class=pkcs11.ObjectClass.PRIVATE_KEY, label=self._parts["object"]
            )
            raw = private.sign(hasher.finalize(), mechanism=pkcs11.Mechanism.ECDSA)
        half = len(raw) // 2
        return utils.encode_dss_signature(int.from_bytes(raw[:half]), int.from_bytes(raw[half:]))

    def public_key(self) -> ec.EllipticCurvePublicKey:
        return self._public

    @property
    def curve(self) -> ec.EllipticCurve:
        return self._public.curve

    @property
    def key_size(self) -> int:
        return self._public.key_size

    def exchange(self, algorithm: Any, peer_public_key: Any) -> NoReturn:
        raise PublisherError("token", "this key only signs")

    def private_numbers(self) -> NoReturn:
        raise PublisherError("token", "the private key does not leave its token")

    def private_bytes(self, encoding: Any, format: Any, encryption_algorithm: Any) -> NoReturn:  # noqa: A002 - as cryptography names it
        raise PublisherError("token", "the private key does not leave its token")

    def __copy__(self) -> TokenKey:
        return self

    def __deepcopy__(self, memo: Any) -> TokenKey:
        return self


@contextmanager
def _session(parts: Mapping[str, str], pin: bytes, *, is_writing: bool = False) -> Iterator[Any]:
    """Give a session of a token, logged in; its errors become ours, without the PIN."""
    with needs_extra("hsm"):
        import pkcs11
    try:
        token = pkcs11.lib(parts["module-path"]).get_token(token_label=parts["token"])
        with token.open(rw=is_writing, user_pin=pin.decode("utf-8", "replace")) as session:
            yield session
    except pkcs11.PKCS11Error as error:
        kind = type(error).__name__
        message = f"`{parts['token']}` answers {kind}: {str(error)[:120]}".removesuffix(": ")
        raise PublisherError("token", message) from None
    except RuntimeError as error:
        # The module itself: no file, or no PKCS #11.
        raise PublisherError("token", f"the module is not used: {str(error)[:160]}") from None
