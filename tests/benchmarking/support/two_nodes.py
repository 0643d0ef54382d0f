"""A Ray cluster on this machine: a head without CPUs, and nodes that can be killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LOOPBACK = "127.0.0.1"
# Ray reads it when it is imported. Without it, Ray listens on the host's own address.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"


@contextmanager
def ray_cluster(folder: Path, nodes: int = 2) -> Iterator[Any]:
    """Start a cluster that listens on the loopback address only; everything is gone afterwards.

    `folder` is where its nodes keep what membench sends them.
    """
    os.environ["MEMBENCH_NODE"] = str(folder / "node")
    os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
    from ray.cluster_utils import Cluster

    options = {"node_ip_address": _LOOPBACK, "include_dashboard": False, "object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, connect=False, head_node_args={**options, "num_cpus": 0})
    try:
        for _ in range(nodes):
            cluster.add_node(node_ip_address=_LOOPBACK, num_cpus=1, object_store_memory=100_000_000)
        yield cluster
    finally:
        cluster.shutdown()
        del os.environ["MEMBENCH_NODE"]
