"""`from quvatlh import App`: functions as tasks. Loaded when it is used: a worker's child imports this package, too."""

TYPE_CHECKING = False  # what `typing` has under this name, without loading it

if TYPE_CHECKING:
    from quvatlh.client.app import App
    from quvatlh.client.handles import Handle, TaskFailed
    from quvatlh.client.hooks import Attempt
    from quvatlh.task import Cancelled, PermanentFailure, Retry, current
else:
    _PLACES = {
        "App": "quvatlh.client.app",
        "Attempt": "quvatlh.client.hooks",
        "Handle": "quvatlh.client.handles",
        "TaskFailed": "quvatlh.client.handles",
        "Cancelled": "quvatlh.task",
        "PermanentFailure": "quvatlh.task",
        "Retry": "quvatlh.task",
        "current": "quvatlh.task",
    }

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - for who asks

        return getattr(import_module(_PLACES[name]), name)


__all__ = ["App", "Attempt", "Cancelled", "Handle", "PermanentFailure", "Retry", "TaskFailed", "current"]
