"""A cluster of this machine only, for as long as it is used.

`pdlrecover.cluster` joins what others started, and starts nothing. Here processes are started, and
ended again on leaving, by Ctrl-C too.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pdlrecover.cluster import ONE_THREAD, QUIET, Cluster
from pdlrecover.errors import ClusterError, Setting
from pdlrecover.extras import extra


@contextmanager
def started(cores: int) -> Iterator[Cluster]:
    """Start Ray on this machine with room for so many shards; it ends with this."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    with extra("cluster", "a simulation over shards"):
        import ray
        import ray.exceptions
    if ray.is_initialized():
        raise ClusterError(
            "this process is connected to a Ray cluster already: use it by ",
            Setting("on", "auto"),
            ", or call ray.shutdown() first",
        )
    try:
        try:
            ray.init(
                address="local",
                num_cpus=cores,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": ONE_THREAD},
            )
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise ClusterError(
                f"Ray could not be started on this machine: {why.rstrip('.')}; try again when it "
                "is less busy, or run without ",
                Setting("shards"),
            ) from error
        yield Cluster(ray)
    finally:
        ray.shutdown()
