"""The entry point of a worker process, which ignores signals for its parent from the start.

A terminal sends Ctrl-C to the whole process group, and a service manager sends its signals to every process
of a service.  The parent decides, and reloads its workers through their pipes.
"""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    from dataapi.service.worker import main  # its imports take a while

    sys.exit(main())
