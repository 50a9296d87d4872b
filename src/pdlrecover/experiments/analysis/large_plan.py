"""What a simulation of more peers than were measured would take, from a record of the benchmark.

With the largest measured number of peers m, and per round: G processor seconds of shards, t_D
seconds of dealing, t_O of opening, for n peers on k cores,

    gradients     G·(n/m)/k
    dealing       t_D·L(n)/L(m),   L(x) = log₂ x: convolutions whose number falls as 1/x, each of
    opening       t_O·L(n)/L(m)    the order x·log x
    transfers     p·k·8·(d + 1) bytes of sums to the driver, 3 parts a shard, and 8·d of a model to
                  every node, at a rate of the network that is assumed

and a round is their sum: the driver waits for the shards, and they for it.

    memory of the driver    what was measured, and 8 bytes for each of n shares of a round's record
    history of a round      8·n·⌈(d + 1)/ℓ⌉ bytes for every cohort, ℓ ∝ n
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PARTS_EACH = 3
"""Into how many parts a round's work is cut for every shard (`engines.shards.crew`)."""
NETWORK_BYTES = 1.25e8
"""Bytes a second that are assumed between machines: a gigabit network."""
CORES_A_NODE = 16
COHORTS = 2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a round of a large simulation takes."""

    peers: int
    cores: int
    gradients: float
    """Seconds, and so are the next three."""
    dealing: float
    opening: float
    transfers: float
    transferred: int
    """Bytes a round."""
    memory: float
    """Bytes of the driver."""
    history: float
    """Bytes a round."""

    @property
    def seconds(self) -> float:
        """Seconds of a round."""
        return self.gradients + self.dealing + self.opening + self.transfers

    @property
    def rounds_per_hour(self) -> float:
        """Rounds in an hour."""
        return 3600 / self.seconds


def plan(record: Mapping[str, Any], peers: int, cores: int) -> Plan:
    """Return what so many peers take on so many cores, by the largest size of a record."""
    most = max(record["sizes"], key=lambda size: int(size["peers"]))
    best, growth = most["best"], math.log2(peers) / math.log2(most["peers"])
    factor, parameters = peers / most["peers"], int(most["parameters"])
    blocks = -(-(parameters + 1) // max(1, round(most["packing"] * factor)))
    history = 8 * COHORTS * peers * blocks
    nodes = -(-cores // CORES_A_NODE)
    transferred = 8 * (PARTS_EACH * cores * (parameters + 1) + nodes * parameters)
    return Plan(
        peers=peers,
        cores=cores,
        gradients=most["shards_processor_seconds"] * factor / cores,
        dealing=best["dealing"] * growth,
        opening=best["opening"] * growth,
        transfers=transferred / NETWORK_BYTES,
        transferred=transferred,
        memory=most["whole_run"]["bytes"] + history,
        history=history,
    )
