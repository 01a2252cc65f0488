"""A Headrace inside a test: `with Cluster() as cluster`, or `async with`, or the pytest fixture `headrace_cluster`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: pytest imports this package in every run, for the plug-in beside it."""
    if name == "Cluster":
        from headrace.testing.cluster import Cluster

        return Cluster
    raise AttributeError(name)
