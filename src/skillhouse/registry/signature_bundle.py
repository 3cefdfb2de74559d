"""The files of signatures: a Sigstore bundle 0.3 that holds a DSSE envelope and certificates.

What is signed is an in-toto statement over every file, with the identity of the skill.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct

from skillhouse.floor import EXECUTABLE_MODE, SIGNATURE_FILE, DecodeError, Tree, shaped, tree_of
from skillhouse.floor.documents import json_value
from skillhouse.floor.trees import FILE_MODE, INSTALL_DIRECTORY, TREE_MAX_FILES, TreeFile
from skillhouse.registry.certificates import curve_hash
from skillhouse.registry.trust import SIGNATURE_MAX, PublisherError, SkillIdentity

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
TIMESTAMPS_MAX = 4
DEPTH_MAX = 16
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
_SERIALIZATION = {
    "method": "files",
    "hash_type": "sha256",
    "allow_symlinks": False,
    "ignore_paths": [SIGNATURE_FILE, INSTALL_DIRECTORY],
}
OTHER_PROGRAM = (
    "has no object `skill`: another program signed it in the Model Signing format, which binds "
    "neither name, version and registry nor the modes of files; its publisher has to sign it with "
    "`skillhouse sign`"
)
"""What is said of signatures that the stock program makes."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class SignatureBundle(Struct, frozen=True, kw_only=True):
    """What a file of a signature holds; none of it is checked but its form."""

    payload: bytes
    payload_type: str
    signature: bytes
    certificates: tuple[bytes, ...]
    """In DER; the signer's first, a root never."""
    timestamps: tuple[bytes, ...] = ()
    """RFC 3161 responses over the signature."""

    @property
    def signed(self) -> bytes:
        return signed_bytes(self.payload_type, self.payload)


def signed_bytes(payload_type: str, payload: bytes) -> bytes:
    """Return what is signed: DSSE's pre-authentication encoding.

    >>> signed_bytes("a/b", b"c")
    b'DSSEv1 3 a/b 1 c'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign_payload(
    payload: bytes,
    payload_type: str,
    *,
    key: ec.EllipticCurvePrivateKey,
    certificates: Sequence[bytes],
) -> SignatureBundle:
    """Return a bundle over a payload."""
    signed = signed_bytes(payload_type, payload)
    return SignatureBundle(
        payload=payload,
        payload_type=payload_type,
        signature=key.sign(signed, ec.ECDSA(curve_hash(key.curve))),
        certificates=tuple(certificates),
    )


def check_signature(bundle: SignatureBundle, key: ec.EllipticCurvePublicKey) -> None:
    """Refuse, with `signature`, a bundle that was not signed with a key."""
    try:
        # The hash is that of the key's curve: nothing in the file chooses an algorithm.
        key.verify(bundle.signature, bundle.signed, ec.ECDSA(curve_hash(key.curve)))
    except InvalidSignature as error:
        message = "was not made with the key of the certificate, or what it signs was changed"
        raise PublisherError("signature", message) from error


def write_bundle(bundle: SignatureBundle) -> bytes:
    """Return a bundle as its file."""
    material: dict[str, Any] = {
        "x509CertificateChain": {
            "certificates": [{"rawBytes": _text(one)} for one in bundle.certificates]
        },
        "tlogEntries": [],
    }
    if bundle.timestamps:
        stamps = [{"signedTimestamp": _text(one)} for one in bundle.timestamps]
        material["timestampVerificationData"] = {"rfc3161Timestamps": stamps}
    value = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": material,
        "dsseEnvelope": {
            "payload": _text(bundle.payload),
            "payloadType": bundle.payload_type,
            "signatures": [{"sig": _text(bundle.signature), "keyid": ""}],
        },
    }
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def read_bundle(data: bytes, payload_type: str) -> SignatureBundle:
    """Return what a file of a signature holds.

    Raises:
        PublisherError: `size`, or `bundle` for whatever is not exactly such a file.
    """
    if len(data) > SIGNATURE_MAX:
        raise PublisherError("size", f"expected a signature of at most {SIGNATURE_MAX} bytes")
    value = strict_json(data, "bundle")
    _keys(value, {"mediaType", "verificationMaterial", "dsseEnvelope"})
    if value["mediaType"] != MEDIA_TYPE:
        _refuse(f"expected the media type {MEDIA_TYPE}, got {str(value['mediaType'])[:80]!r}")
    material, envelope = value["verificationMaterial"], value["dsseEnvelope"]
    _keys(material, {"x509CertificateChain"}, {"tlogEntries", "timestampVerificationData"})
    if material.get("tlogEntries", []) != []:
        _refuse("entries of a transparency log cannot be checked yet")
    _keys(material["x509CertificateChain"], {"certificates"})
    _keys(envelope, {"payload", "payloadType", "signatures"})
    if envelope["payloadType"] != payload_type:
        _refuse(f"expected a payload {payload_type}, got {str(envelope['payloadType'])[:80]!r}")
    signatures = _list(envelope["signatures"])
    if len(signatures) != 1:
        _refuse(f"expected one signature, got {len(signatures)}")
    _keys(signatures[0], {"sig"}, {"keyid"})
    return SignatureBundle(
        payload=_bytes(envelope["payload"]),
        payload_type=payload_type,
        signature=_bytes(signatures[0]["sig"]),
        certificates=_each(material["x509CertificateChain"]["certificates"], "rawBytes"),
        timestamps=_timestamps(material.get("timestampVerificationData")),
    )


def _timestamps(value: Any) -> tuple[bytes, ...]:
    if value is None:
        return ()
    _keys(value, {"rfc3161Timestamps"})
    found = _each(value["rfc3161Timestamps"], "signedTimestamp")
    if len(found) > TIMESTAMPS_MAX:
        _refuse(f"expected at most {TIMESTAMPS_MAX} timestamps")
    return found


def _each(value: Any, key: str) -> tuple[bytes, ...]:
    items = _list(value)
    for item in items:
        _keys(item, {key})
    return tuple(_bytes(item[key]) for item in items)


def strict_json(data: bytes, step: str) -> Any:
    """Return JSON as `json_value` reads it, without fractions and not nested deeply.

    Raises:
        PublisherError: of the `step` given.
    """

    if data.startswith(b"\xef\xbb\xbf"):
        raise PublisherError(step, "is no JSON: a byte order mark")
    try:
        value = json_value(data)
    except DecodeError as error:
        raise PublisherError(step, f"is no JSON: {str(error)[:80]}") from error
    if _has_fractions(value):
        raise PublisherError(step, "expected whole numbers")
    if _depth(value) > DEPTH_MAX:
        raise PublisherError(step, f"is nested deeper than {DEPTH_MAX}")
    return value


def _has_fractions(value: Any) -> bool:
    """Whether a value that `json_value` returned has a number with a fraction."""
    if isinstance(value, (dict, list)):
        return any(map(_has_fractions, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def _depth(value: Any) -> int:
    """Return how deep lists and objects are nested, counted no further than the limit."""
    level, depth = [value], 0
    while level and depth <= DEPTH_MAX:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
        level, depth = inner, depth + 1
    return depth


def _keys(value: Any, needed: set[str], optional: set[str] | None = None) -> None:
    if not isinstance(value, dict):
        _refuse("expected an object")
    missing = needed - value.keys()
    unknown = value.keys() - needed - (optional or set())
    if missing or unknown:
        word = "has no" if missing else "has an unknown"
        _refuse(f"{word} key `{min(missing or unknown)[:40]}`")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        _refuse("expected a list")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        _refuse("expected a text in base64")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        _refuse("expected a text in base64")
    if _text(data) != value:
        # Two spellings of one signature would have two digests.
        _refuse("expected base64 in its one spelling")
    return data


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _refuse(message: str) -> NoReturn:
    raise PublisherError("bundle", message)


class SignedStatement(Struct, frozen=True, kw_only=True):
    """What was signed."""

    identity: SkillIdentity
    tree: Tree
    signed_at: datetime
    """As the signer's clock had it."""


class _Resource(Struct, frozen=True, kw_only=True):
    """One file, as the Model Signing format lists it."""

    name: str
    algorithm: str
    digest: str


class _Skill(Struct, frozen=True, kw_only=True):
    """What the format does not bind: the rest of a tree, and whose it is."""

    name: str
    version: str
    repository: str
    signed_at: str
    tree_digest: str
    modes: Mapping[str, str]
    sizes: Mapping[str, int]


def write_statement(statement: SignedStatement) -> bytes:
    """Return a statement as the payload of a signature."""
    files = statement.tree.files
    identity = statement.identity
    value = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": identity.name, "digest": {"sha256": _root_digest(statement.tree)}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "serialization": _SERIALIZATION,
            "resources": [
                {"algorithm": "sha256", "digest": one.sha256, "name": one.path} for one in files
            ],
            "skill": {
                "name": identity.name,
                "version": identity.version,
                "repository": identity.repository,
                "signed_at": f"{statement.signed_at.astimezone(UTC):{_TIME}}",
                "tree_digest": statement.tree.digest,
                "modes": {one.path: one.mode for one in files},
                "sizes": {one.path: one.size for one in files},
            },
        },
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def read_statement(payload: bytes) -> SignedStatement:
    """Return what a payload says; PublisherError `statement` unless it is exactly such a one."""
    value = strict_json(payload, "statement")
    try:
        return _statement(value)
    except (KeyError, TypeError, AttributeError, ValueError, DecodeError) as error:
        message = f"is no statement over the files of a skill: {str(error)[:120]}"
        raise PublisherError("statement", message) from error


def _statement(value: Any) -> SignedStatement:
    for key, wanted in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if value[key] != wanted:
            raise ValueError(f"expected `{key}` to be {wanted}, got {str(value[key])[:80]!r}")
    predicate = value["predicate"]
    if "skill" not in predicate:
        raise PublisherError("statement", OTHER_PROGRAM)
    # INVARIANT: a statement that leaves out more paths, or hashes otherwise, is not one of ours.
    if predicate["serialization"] != _SERIALIZATION:
        raise ValueError("expected each file with its SHA-256, and none left out")
    skill = shaped(predicate["skill"], _Skill)
    tree = _tree(shaped(predicate["resources"], tuple[_Resource, ...]), skill)
    subject = {"name": skill.name, "digest": {"sha256": _root_digest(tree)}}
    if value["subject"] != [subject]:
        raise ValueError("expected one subject: the skill with the digest of its files")
    if skill.tree_digest != tree.digest:
        raise ValueError("its tree digest is not that of its files")
    identity = SkillIdentity(name=skill.name, version=skill.version, repository=skill.repository)
    signed_at = datetime.strptime(skill.signed_at, _TIME).replace(tzinfo=UTC)
    return SignedStatement(identity=identity, tree=tree, signed_at=signed_at)


def _tree(resources: tuple[_Resource, ...], skill: _Skill) -> Tree:
    names = [one.name for one in resources]
    if len(names) > TREE_MAX_FILES or len(set(names)) != len(names):
        raise ValueError("it lists too many files, or one twice")
    if not set(names) == skill.modes.keys() == skill.sizes.keys():
        raise ValueError("expected a mode and a size of each file")
    for one in resources:
        if one.algorithm != "sha256" or not _SHA256.fullmatch(one.digest):
            raise ValueError(f"expected the SHA-256 of {one.name[:80]!r}")
        if skill.modes[one.name] not in (FILE_MODE, EXECUTABLE_MODE):
            raise ValueError(f"expected a mode of a file, got {skill.modes[one.name][:20]!r}")
    return tree_of(
        TreeFile(
            path=one.name,
            mode=skill.modes[one.name],
            size=skill.sizes[one.name],
            sha256=one.digest,
        )
        for one in resources
    )


def _root_digest(tree: Tree) -> str:
    """Return the digest that the Model Signing format has of all files, in their order."""
    hasher = hashlib.sha256()
    for one in tree.files:
        hasher.update(bytes.fromhex(one.sha256))
    return hasher.hexdigest()
