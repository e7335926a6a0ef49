"""Loads an app for a look: whether it can be loaded, and what stands in it. `survey.py FD DIRECTORY MODULE`, by its path.

Run by the environment's own interpreter, in a process of its own, since loading is running somebody's code. What it found is
one JSON document on FD: `{error, trace, tasks, schedules, files}`. Standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import sysconfig
import traceback
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
TRACE_CHARS_MAX = 4000
_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    fd, cwd, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    sys.path[:] = [each for each in sys.path if each != HERE]
    sys.path.insert(0, cwd)
    found: dict[str, Any] = {"error": "", "trace": "", "apps": 0, "tasks": 0, "schedules": {}}
    places: list[str] = []
    try:
        importlib.import_module(name)
        found.update(_told())
    except BaseException as error:  # noqa: BLE001 - what a module does while it is imported is anything
        found["error"], trace = described(error, [name], cwd)
        found["trace"] = trace[-TRACE_CHARS_MAX:]
        places = _places(error, name, cwd)
    found["files"] = sorted({*_files(), *places})
    data = json.dumps(found).encode()
    while data:
        data = data[os.write(fd, data) :]
    os._exit(0)


def _told() -> dict[str, Any]:
    """Of all apps that there are now; none where nobody has loaded the library."""
    library = sys.modules.get("quvatlh.client.app")
    apps = [] if library is None else list(library.apps)
    schedules: dict[str, Any] = {}
    for app in apps:
        for name, schedule in app.schedules().items():
            if name in schedules:
                raise ValueError(f"there are two schedules {name}; give one of them another name=")
            schedules[name] = schedule
    return {"apps": len(apps), "tasks": sum(len(app.targets) for app in apps), "schedules": schedules}


def described(error: BaseException, names: list[str], cwd: str) -> tuple[str, str]:
    """In a line; and its traceback, where that line is not all. Of modules that were to be loaded."""
    try:
        name = next((each for each in names if _is_missing(error, each)), "")
        words = _words(error, name, cwd)
        if name or isinstance(error, SyntaxError):
            return _whole(words), ""
        below = traceback.format_exception(type(error), error, _below(error.__traceback__))
        return _whole(words), _whole("".join(below))
    except BaseException:  # noqa: BLE001 - an exception may be of any make
        return f"{type(error).__name__}: it cannot be described", ""


def _whole(text: str) -> str:
    """Half a character is escaped: nobody would read it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _is_missing(error: BaseException, name: str) -> bool:
    """The module itself, or what it is in."""
    return isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")


def _words(error: BaseException, name: str, cwd: str) -> str:
    if name:
        return f"there is no module {getattr(error, 'name', name)} in {cwd}, on PYTHONPATH, or in {sys.prefix}"
    if isinstance(error, ModuleNotFoundError):
        return f"{_where(error)}there is no module {error.name} in {sys.prefix}"
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    return f"{_where(error)}{type(error).__name__}: {error}"


def _where(error: BaseException) -> str:
    """The last place that is not the import machinery's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith("<frozen") and os.path.dirname(frame.filename) != HERE:
            return f"{frame.filename}, line {frame.lineno}: "
    return ""


def _below(trace: Any) -> Any:
    while trace is not None and (
        os.path.dirname(trace.tb_frame.f_code.co_filename) == HERE
        or trace.tb_frame.f_code.co_filename.startswith("<frozen")
        or os.path.basename(os.path.dirname(trace.tb_frame.f_code.co_filename)) == "importlib"
    ):
        trace = trace.tb_next
    return trace


def _files() -> list[str]:
    """Of the modules that are loaded, those that somebody works on."""
    paths = sysconfig.get_paths()
    others = tuple(
        f"{os.path.realpath(paths[each])}/"
        for each in ("stdlib", "platstdlib", "purelib", "platlib")
        if paths.get(each)
    )
    found = []
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py"):
            real = os.path.realpath(path)
            if not real.startswith(others) and "/site-packages/" not in real and "/dist-packages/" not in real:
                found.append(real)
    return found


def _places(error: BaseException, name: str, cwd: str) -> list[str]:
    """Files whose change may mend it: those in its trace, and those where the module would be."""
    found = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        found.append(error.filename)
    stem = os.path.join(cwd, *name.split("."))
    found += [f"{stem}.py", f"{stem}/__init__.py"]
    return [os.path.realpath(each) for each in found if not each.startswith("<") and each != __file__]


if __name__ == "__main__":
    main()
