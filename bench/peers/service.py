"""A peer as a process of its own. A benchmark writes one command per line to its standard input, and the process
answers each with one line of JSON on its standard output.

The first line, without a command, tells the facts about the peer. The end of the input ends the process. An error is
answered as {"error"}. An error before the first command also ends the process.
"""
import json
import os
import resource
import signal
import sys
import time

from environment import PeerError

REST_SECONDS = 0.05


def peak_bytes():
    """Returns the largest resident memory so far."""
    # ru_maxrss may hold the value of the process that started this one, if that is larger.
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak():
    """Resets the peak, if the kernel allows it, because importing a library takes more memory than it keeps."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass


def timed(call, least_untimed=0.0):
    """Returns the seconds of one call and its result, after a rest and untimed calls for at least so many seconds."""
    time.sleep(REST_SECONDS)
    begin = time.perf_counter()
    call()
    while time.perf_counter() - begin < least_untimed:
        call()
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def serve(start):
    """Runs the service. `start()` returns the facts, and a function that answers a command (a line of text)."""
    # Libraries print to standard output too. Their words go to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(content):
        print(json.dumps(content), file=answers, flush=True)

    def attempt(call, *arguments):
        """Returns the result, or None after an error, which has been answered."""
        try:
            return call(*arguments)
        except Exception as error:  # the benchmark must hear of every exception of a library
            text = str(error) if isinstance(error, PeerError) else f"{type(error).__name__}: {error}"
            answer({"error": text.split("\n", maxsplit=1)[0]})
            return None

    # The benchmark handles Ctrl-C. It closes the input when it has its results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    started = attempt(start)
    if started is None:
        return
    facts, handle = started
    answer(facts)
    for line in sys.stdin:
        result = attempt(handle, line.strip())
        if result is not None:
            answer(result)
