import os
import socket
import subprocess
import sys
import threading

import pytest

from pdlrecover import cluster as own
from pdlrecover.cluster import Node, joined, pinned, require_alike, require_likeness
from pdlrecover.errors import ClusterError, ExtraError

NODE = Node(id="0", name="second", address="10.0.0.2", port=1, cores=1)


def test_nodes_are_named_and_what_they_run_has_one_thread(two_nodes):
    import ray

    def seen():
        import torch

        names = ("PDLRECOVER_THREADS", "OMP_NUM_THREADS")
        return [*map(os.environ.get, names), torch.get_num_threads()]

    with joined(two_nodes.address) as cluster:
        nodes = cluster.nodes()
        assert [(node.name, node.cores) for node in nodes] == [("first", 1), ("second", 1)]
        assert cluster.here == nodes[0].id
        assert all(map(cluster.answers, nodes))
        where = cluster.remote(lambda: ray.get_runtime_context().get_node_id())
        again = [where.options(scheduling_strategy=pinned(node)).remote() for node in nodes]
        assert ray.get(again) == [node.id for node in nodes]
        assert ray.get(cluster.remote(seen).remote()) == ["1", "1", 1]
        require_likeness(cluster, nodes)
        with joined(own.AUTO) as same:  # a process that is connected stays so
            assert same.address == cluster.address
        assert ray.is_initialized()
        with pytest.raises(ClusterError, match=r"is connected to the cluster at .* already"):
            _enter("127.0.0.1:9")
    assert not ray.is_initialized()


@pytest.mark.slow
def test_a_node_that_would_not_compute_the_same_is_named(two_nodes, another_node, other_source):
    another_node("elderly", ATEN_CPU_CAPABILITY="default")
    another_node("outdated", PYTHONPATH=str(other_source))
    with joined(two_nodes.address) as cluster:
        nodes = {node.name: node for node in cluster.nodes()}
        said = r"node elderly is not like this machine: processor \(DEFAULT there, .* here\).*leave"
        with pytest.raises(ClusterError, match=said):
            require_likeness(cluster, [nodes["elderly"]])
        require_likeness(cluster, [nodes["elderly"]], mixed_processors=True)
        said = r"node outdated is .*: source \(\w{12} there, \w{12} here\); check out the same"
        with pytest.raises(ClusterError, match=said):
            require_likeness(cluster, [nodes["outdated"]], mixed_processors=True)


def test_every_difference_is_said_with_what_to_do():
    mine = {"Python": "3.11.7", "torch": "2.12.0", "data mnist": "a" * 64, "processor": "AVX512"}
    theirs = {"Python": "3.11.7", "torch": "2.11.0", "data mnist": "absent", "processor": "AVX2"}
    with pytest.raises(ClusterError) as caught:
        require_alike(mine, theirs, NODE)
    assert str(caught.value) == (
        "node second is not like this machine: torch (2.11.0 there, 2.12.0 here), data mnist "
        "(absent there, aaaaaaaaaaaa here), processor (AVX2 there, AVX512 here); install the same "
        "version on every node; copy the data folder to every node, or name it by PDLRECOVER_DATA "
        "before `ray start`; the last bits of gradients differ between processors: leave the node "
        "out, or accept that by mixed_processors=True"
    )
    require_alike(mine, {**mine, "processor": "AVX2"}, NODE, mixed_processors=True)


@pytest.mark.parametrize("on", ["cluster", "ray://10.0.0.1:10001", "10.0.0.1", "10.0.0.1:0", ":1"])
def test_an_address_that_is_none_is_refused(on):
    with pytest.raises(ClusterError, match=r"on must be local, auto, or HOST:PORT as `ray start`"):
        _enter(on)


def test_where_nothing_listens_there_is_no_cluster():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ClusterError, match=rf"reached at 127.0.0.1:{port}: .*refused; start a"):
        _enter(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n", b""]
)
def test_what_is_no_cluster_is_not_waited_for(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with server.accept()[0] as caller:
                caller.recv(64)
                caller.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match=r"listens at .* is no Ray cluster \(its head"):
            _enter(address)
        serving.join()


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExtraError, match=r"--on needs the package ray.*pdlrecover\[cluster\]"):
        _enter("127.0.0.1:6379")


@pytest.mark.slow
def test_another_version_of_ray_is_said_with_what_to_install(two_nodes):
    script = (
        "import ray._private.utils as utils\n"
        "utils.compute_version_info = lambda: ('2.1.0', '3.11.0')\n"
        "from pdlrecover.cluster import joined\n"
        f"with joined({two_nodes.address!r}): pass"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode
    assert "was started with: Ray: 2.1.0 Python: 3.11.0; install the same Ray" in done.stderr


def _enter(on):
    with joined(on):
        pytest.fail("there is no cluster there")
