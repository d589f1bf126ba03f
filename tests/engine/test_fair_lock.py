"""The lock that goes round."""

import threading

import pytest

from ggpy.engine.fair_lock import FairLock


def waiting(lock: FairLock, n: int) -> None:
    """Return when `n` threads wait for `lock`."""
    turn = threading.Event()
    while len(lock._gates) < n:
        turn.wait(0.001)


def test_threads_get_it_in_the_order_in_which_they_came() -> None:
    """Three wait while a fourth holds it; that one comes last when it asks again."""
    lock, order = FairLock(), []

    def work(name: int) -> None:
        with lock:
            order.append(name)

    lock.acquire()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for i, thread in enumerate(threads):
        thread.start()
        waiting(lock, i + 1)
    lock.release()
    with lock:
        order.append(3)
    for thread in threads:
        thread.join(timeout=60)
    assert order == [0, 1, 2, 3]


def test_it_is_free_after_an_error_inside() -> None:
    """As with any lock."""
    lock = FairLock()
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    lock.acquire()
    lock.release()
