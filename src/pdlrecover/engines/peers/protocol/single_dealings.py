"""The step that opens a little of every single dealing of a void round, to find who made it void.

Legend: x the update and a the weight that one peer dealt, as whole numbers; L, A, 2^f as in
`engines.bounds`.

- *Weights*: a of every peer. An honest one has A ≤ a ≤ 2^f.
- *Sketches*: r_k·x of every peer, for k = 1 … 8. A number of r is −1 or 1 with probability ¼ each,
  else 0; r follows from the digest of the void sum, which nobody knew while it was dealt. For fixed
  x with ‖x‖ ≤ L, E exp(s·r·x) ≤ exp(s²L²/4), so Σ_k (r_k·x)² exceeds 48·L² with a probability of at
  most (12·e^−11)^4 < 2·10⁻¹⁵ (Chernoff, as for χ² with 8 degrees). Who is beyond that is named.
  With signs alone, x = ((q+1)/2, (q+1)/2) would look small: every r·x is −1, 0 or 1 modulo q. With
  zeros, a number beyond 14·L in x makes each r·x large with a probability of at least ½.

Rules:

- There is one place for every peer of the federation, in order, and who did not deal has zeros. So
  a sub-secret means the same to whoever has the federation file, and a weight of 0 proves nothing.
- What is asked follows from the kind and the round alone, and both are in what peers sign. So the
  sub-secrets themselves are the evidence: see `convicted`.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pdlrecover.engines.bounds import Bounds
from pdlrecover.engines.peers.protocol import messages as m
from pdlrecover.engines.peers.protocol.forms import MAX_ELEMENTS
from pdlrecover.engines.peers.protocol.tasks import MaskedDots
from pdlrecover.field import Integers
from pdlrecover.recovery.requests import SKETCHES
from pdlrecover.sharing import Scheme

Opens = Literal["weights", "sketches"]
LARGEST = 48
"""Their squares add up to at most this times L², but for a chance of 2·10⁻¹⁵."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SingleDealings(MaskedDots):
    """Open dot products with every peer's own dealing of a void round."""

    opens: Opens
    bounds: Bounds

    def named(self, opened: Integers) -> dict[int, str]:
        """Return who dealt what no honest peer deals, and what that is."""
        return outside(self.opens, self.bounds, self.round, opened)


def asked_of(opens: Opens, round: int) -> bytes:
    """Return the digest of the request."""
    text = f"pdlrecover naming {opens} of round {round}"
    return hashlib.sha256(text.encode()).digest()


def vectors_of(opens: Opens, length: int, seed: bytes) -> Integers:
    """Return the public vectors, for updates and a weight of `length` numbers together."""
    vectors = np.zeros((1 if opens == "weights" else SKETCHES, length), dtype=np.int64)
    if opens == "weights":
        vectors[0, -1] = 1
        return vectors
    size = -(-2 * SKETCHES * (length - 1) // 8)
    drawn = hashlib.shake_256(b"pdlrecover sketches" + seed).digest(size)
    bits = np.unpackbits(np.frombuffer(drawn, dtype=np.uint8))[: 2 * SKETCHES * (length - 1)]
    first, second = bits.astype(np.int64).reshape(2, SKETCHES, length - 1)
    vectors[:, :-1] = first - second
    return vectors


def outside(opens: Opens, bounds: Bounds, round: int, opened: Integers) -> dict[int, str]:
    """Return whose opened numbers are not an honest peer's, and what they are."""
    if opens == "weights":
        return {
            peer: f"dealt a weight of {int(weight) / bounds.one:.6g} in round {round}, and weights "
            "are above 0 and at most 1"
            for peer, weight in enumerate(opened)
            if weight and not bounds.least_weight <= weight <= bounds.one
        }
    limit = replace(bounds, length=MAX_ELEMENTS).norm
    sums = [sum(int(x) ** 2 for x in column) for column in opened.reshape(SKETCHES, -1).T]
    return {
        peer: f"dealt an update with a norm of about {_norm(total, bounds):.6g} in round {round}, "
        f"and the bound is {bounds.bound:.6g}"
        for peer, total in enumerate(sums)
        if total > LARGEST * limit**2
    }


def convicted(scheme: Scheme, bounds: Bounds, envelopes: Sequence[m.Envelope]) -> dict[int, str]:
    """Return who is outside by these sub-secrets, whose signatures are checked.

    There must be e more of them than a dot product's polynomial takes, all on it: so at least as
    many as it takes are honest peers', and an honest dealer's numbers are what it dealt.
    """
    headers = [replace(each.header, sender=0) for each in envelopes]
    parts = {e.header.sender: e.body for e in envelopes if isinstance(e.body, m.SubSecret)}
    if len(parts) < len(envelopes) or any(header != headers[0] for header in headers):
        return {}
    if len({body.choice for body in parts.values()}) != 1:
        return {}
    for opens in ("weights", "sketches"):
        count = scheme.quorums.peers * (1 if opens == "weights" else SKETCHES)
        fits = all(len(body.values) == count for body in parts.values())
        if headers[0].asked == asked_of(opens, headers[0].round) and fits:
            task = MaskedDots(
                scheme=scheme,
                me=0,
                round=headers[0].round,
                asked=headers[0].asked,
                least_dealers=0,
                vectors=np.zeros((0, 0), dtype=np.int64),
                pairs=lambda: None,
                count=0,
                dealt=0,
            )
            found = task.open({peer: body.values for peer, body in parts.items()})
            if found is not None and not found[1]:
                return outside(opens, bounds, headers[0].round, found[0])
    return {}


def _norm(total: int, bounds: Bounds) -> float:
    """Return the norm that projections whose squares add up to this are likely of."""
    return math.sqrt(2 * total / SKETCHES) / bounds.one
