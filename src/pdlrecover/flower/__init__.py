"""Flower apps as peers: an unmodified `ClientApp` trains on shares, and can be removed.

    app      finds the app, and calls it with messages that Flower's own classes make
    replies  reads what it answers, and refuses what is no update
    peers    `FlowerPeers`: the app once for each partition, as peers of a federation
    seeding  makes what an app draws a function of seed, peer and round

No server takes part: what an app returns becomes one peer's update, which is dealt in shares like
any other. flwr is imported when an app is called for; it comes with the extra `flower`.
"""

from typing import TYPE_CHECKING

from pdlrecover.later import later

if TYPE_CHECKING:
    from pdlrecover.flower.peers import FlowerPeers

__all__ = ["FlowerPeers"]

__getattr__ = later(__name__, {"FlowerPeers": "peers"})


def __dir__() -> list[str]:
    return __all__
