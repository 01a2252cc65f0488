"""A Headrace inside a test: `with Cluster() as cluster`, or `async with`, or the pytest fixture `headrace_cluster`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.cluster import CLIENTS, Cluster

__all__ = ["CLIENTS", "Cluster"]


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: pytest imports this package in every run, for the plug-in beside it."""
    if name in __all__:
        from headrace.testing import cluster

        return getattr(cluster, name)
    raise AttributeError(name)
