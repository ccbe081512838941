"""The entry point of a worker process. It ignores the signals that are meant for its parent.

A terminal sends Ctrl-C to the whole process group, and a service manager sends signals to every process of a
service. The parent handles the signals, and reloads its workers through their pipes.
"""

from __future__ import annotations

import gc
import signal
import sys

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    gc.disable()
    from dataapi.service.worker import main  # after ignoring signals, because the import is slow

    sys.exit(main())
