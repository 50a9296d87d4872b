"""The rival of `peers.py`: one process of a bare all-to-all over gRPC, with mutual TLS.

It sends every other process the bytes of an exact round, in two messages, the second when all
first ones are here, and nothing else: no signature, no seal, no vote, no history. Rounds of two
kinds take turns: the exchange alone, and after this peer's own gradient and dealing, done by the
very task that a peer does them with.

    peers_bare.py FEDERATION FOLDER ROUNDS FIRST SECOND OUT     FIRST, SECOND: bytes of a message
"""

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import grpc
import torch

from pdlrecover.engines.peers.protocol.tasks import FreshSum
from pdlrecover.engines.peers.runs.contribution import Contribution
from pdlrecover.engines.peers.startup import PeerFiles
from pdlrecover.field import one_blas_thread
from pdlrecover.recovery.requests import Update

METHOD = "/bare/Exchange"
LIMIT = 1 << 28
OPTIONS = [("grpc.max_receive_message_length", LIMIT), ("grpc.max_send_message_length", LIMIT)]


class Exchange(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """Counts what arrives; a message begins with its exchange's number."""

    def __init__(self, others: int) -> None:
        self._others = others
        self._arrived: dict[int, int] = defaultdict(int)
        self._full: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._handler = grpc.unary_unary_rpc_method_handler(self._take)

    def service(self, details: Any) -> Any:
        """Return what answers the one method."""
        return self._handler if details.method == METHOD else None

    async def _take(self, data: bytes, context: Any) -> bytes:
        number = int.from_bytes(data[:8], "little")
        self._arrived[number] += 1
        if self._arrived[number] == self._others:
            self._full[number].set()
        return b""

    async def whole(self, number: int) -> None:
        """Wait until everybody's message of an exchange is here."""
        await self._full[number].wait()


async def main(federation: str, folder: str, *told: str) -> None:
    rounds, first, second = map(int, told[:3])
    torch.set_num_threads(1)
    one_blas_thread()
    files = PeerFiles(Path(federation), Path(folder))
    members = files.membership.peers
    key, certificate = files.identity.tls_pem()
    authority = b"".join(member.certificate_pem for member in members)
    exchange = Exchange(len(members) - 1)
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((exchange,))
    server.add_secure_port(
        members[files.me].address,
        grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True),
    )
    await server.start()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    calls = [
        grpc.aio.secure_channel(
            member.address,
            credentials,
            options=[*OPTIONS, ("grpc.ssl_target_name_override", member.tls_name)],
        ).unary_unary(METHOD)
        for i, member in enumerate(members)
        if i != files.me
    ]
    work = own_work(files)
    content = os.urandom(max(first, second))

    async def send(number: int, size: int) -> None:
        data = number.to_bytes(8, "little") + content[8:size]
        await asyncio.gather(*(call(data, wait_for_ready=True) for call in calls))
        await exchange.whole(number)

    found: list[dict[str, float]] = []
    await send(0, 8)
    for t in range(2 * rounds):
        begun, spent = time.monotonic(), time.process_time()
        computed = begun
        if t % 2:
            await asyncio.to_thread(work, t)
            computed = time.monotonic()
        await send(2 * t + 1, first)
        await send(2 * t + 2, second)
        found.append(
            {
                "computes": t % 2,
                "seconds": time.monotonic() - begun,
                "computing": computed - begun,
                "cpu": time.process_time() - spent,
            }
        )
    await send(4 * rounds + 1, 8)
    await server.stop(1.0)
    (Path(folder) / told[3]).write_text(json.dumps(found))


def own_work(files: PeerFiles) -> Any:
    """Return this peer's gradient and dealing, of a round."""
    training, model = files.membership.training, files.model
    contribution = Contribution(
        peer=files.me,
        peers=len(files.membership.peers),
        model=model,
        x=files.data.train_x,
        y=files.data.train_y,
        size_bound=training.samples,
        batch_size=training.batch_size,
        seed=training.seed,
        bound=training.bound,
    )

    def work(t: int) -> None:
        task = FreshSum(
            scheme=files.membership.scheme,
            length=contribution.code.length,
            round=t,
            asked=bytes(32),
            least_dealers=2,
            compute=lambda: contribution(Update(round=t, at=model.initial)),
        )
        task.deal(bytes(32), os.urandom(32))

    return work


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
