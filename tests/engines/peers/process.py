"""One peer as a process of its own: python process.py NUMBER PAPERS FOLDER."""

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path


async def main():
    """Run until a signal."""
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    import torch
    import town

    from pdlrecover.engines.peers.report import JsonLines

    me, papers, folder = int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), sys.argv[3]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    torch.set_num_threads(1)
    peer = town.peer(me, papers, Path(folder))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, peer.stop)
    await peer.run()


if __name__ == "__main__":
    asyncio.run(main())
