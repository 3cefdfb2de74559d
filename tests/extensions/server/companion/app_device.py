"""A companion app without a browser: it signs as one does."""

from __future__ import annotations

import base64
import json
import time
import uuid
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.testclient import TestClient

from skillhouse.approval import Approval
from skillhouse.house import Skillhouse

ORIGIN = {"origin": "http://127.0.0.1:8600"}


class AppDevice:
    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.key = ec.generate_private_key(ec.SECP256R1())
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.public_key = base64.b64encode(point).decode()
        self.id = ""

    def signature(self, signed: bytes) -> str:
        first, second = decode_dss_signature(self.key.sign(signed, ec.ECDSA(SHA256())))
        return base64.b64encode(first.to_bytes(32, "big") + second.to_bytes(32, "big")).decode()

    def pair(self, code: str, *, name: str = "", **values: str) -> Any:
        body = {"code": code, "name": name, "public_key": self.public_key, **values}
        text = json.dumps(body).encode()
        headers = {"webhook-signature": self.signature(text), **ORIGIN}
        answer = self.client.post("/companion/pair", content=text, headers=headers)
        if answer.status_code == 200:
            self.id = answer.json()["device"]
        return answer

    def paired(self, house: Skillhouse, *, user: str = "local") -> AppDevice:
        codes = house.services.companion.codes
        answer = self.pair(codes.issue("phone", user=user))
        assert answer.status_code == 200, answer.text
        return self

    def headers(
        self, text: bytes, *, at: float | None = None, message_id: str = ""
    ) -> dict[str, str]:
        message_id = message_id or str(uuid.uuid4())
        moment = str(int(time.time() if at is None else at))
        signed = b".".join((message_id.encode(), moment.encode(), text))
        return {
            "webhook-id": message_id,
            "webhook-timestamp": moment,
            "webhook-signature": f"p256,{self.signature(signed)}",
            **ORIGIN,
        }

    def text(self, do: str, **values: Any) -> bytes:
        return json.dumps({"do": do, "device": self.id, **values}).encode()

    def send(self, text: bytes, headers: dict[str, str]) -> Any:
        return self.client.post("/companion/message", content=text, headers=headers)

    def say(self, do: str, **values: Any) -> Any:
        text = self.text(do, **values)
        return self.send(text, self.headers(text))

    def answer(self, asked: Approval, answer: str = "once", **values: Any) -> Any:
        return self.say(**self.given(asked, answer, **values))

    def given(self, asked: Approval, answer: str = "once", **values: Any) -> dict[str, Any]:
        return {
            "do": "answer",
            "approval": asked.id,
            "nonce": asked.request.nonce,
            "content_digest": asked.request.content_digest,
            "answer": answer,
            **values,
        }


def code_of(answer: Any) -> str:
    """The code of an error."""
    found: str = answer.json()["error"]["code"]
    return found
