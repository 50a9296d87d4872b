import asyncio
import os

from pdlrecover.engines.peers.report import serve_control


def test_several_local_sockets_opened_at_once_leave_the_process_mask_alone(tmp_path):
    before = os.umask(0o022)

    async def open_all():
        paths = [tmp_path / str(i) for i in range(5)]
        servers = await asyncio.gather(*(serve_control(path, lambda command: {}) for path in paths))
        modes = [path.stat().st_mode & 0o777 for path in paths]
        for server in servers:
            server.close()
            await server.wait_closed()
        return modes

    try:
        assert asyncio.run(open_all()) == [0o600] * 5
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
