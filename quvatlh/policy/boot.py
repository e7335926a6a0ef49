"""Where the process of the policies begins: run as a file, given the paths of the interpreter that started it, and nothing of its
surroundings: no site, no environment, no user's directory. Why it cannot begin goes over the socket, after a `!`.
"""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> None:
    socket_fd, page_fd, announcement_bytes_max, *paths = arguments
    sys.path[:] = paths
    try:
        from quvatlh.policy import cell  # noqa: PLC0415 - its place is not known before
    except Exception as error:
        import os  # noqa: PLC0415 - as above

        os.write(int(socket_fd), b"!" + repr(error).encode()[:1000])
        raise
    cell.main(int(socket_fd), int(page_fd), int(announcement_bytes_max))


if __name__ == "__main__":
    main(sys.argv[1:])
