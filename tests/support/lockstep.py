"""Run one function as several ranks, in threads, with a maximum over the ranks that all must reach equally often."""

from threading import Barrier, Thread


class Meeting:
    """Exchanges one number a rank; a rank that comes too late or too often breaks it instead of hanging."""

    def __init__(self, ranks, timeout=5):
        self._values = [0] * ranks
        self._barrier = Barrier(ranks, timeout=timeout)

    def most(self, rank, value):
        self._values[rank] = value
        self._barrier.wait()
        result = max(self._values)
        self._barrier.wait()
        return result

    def leave(self):
        self._barrier.abort()


def in_lockstep(work, ranks, errors=False):
    """Return ``work(rank, most)`` of every rank; with ``errors``, an exception is returned in its place."""
    meeting, outcomes = Meeting(ranks), [None] * ranks

    def run(rank):
        try:
            outcomes[rank] = work(rank, lambda value: meeting.most(rank, value))
        except Exception as error:
            outcomes[rank] = error
            if not errors:
                meeting.leave()

    threads = [Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if failed and not errors:
        raise failed[0]
    return outcomes
