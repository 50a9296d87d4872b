"""Flower has an environment of its own (see the Makefile); elsewhere these tests are not there."""

import warnings

from pdlrecover.extras import has

if has("flower"):
    with warnings.catch_warnings():  # what its libraries deprecate of each other is theirs
        warnings.simplefilter("ignore", DeprecationWarning)
        import flwr.clientapp
        import flwr.compat.client
        import flwr.compat.common.recorddict_compat  # noqa: F401
else:
    collect_ignore_glob = ["test_*.py"]
