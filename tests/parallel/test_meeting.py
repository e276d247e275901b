"""Ranks that are started over meet each other, not the dead whose words are still in the store."""

import threading
import time

import pytest
from torch._C._distributed_c10d import HashStore

from seedbed.parallel.meeting import meet


def start(store: HashStore, size: int, order: list[int], pause: float = 0.0) -> dict[int, tuple[int, int]]:
    """All ranks of a start, which come in this order; how many met there, and the number of earlier starts, by rank."""
    found: dict[int, tuple[int, int]] = {}
    there = threading.Barrier(size)

    def rank(number: int) -> None:
        own, before = meet(store, number, size, 10)
        own.add("present", 1)
        there.wait(10)
        found[number] = own.add("present", 0), before

    threads = []
    for number in order:
        threads.append(threading.Thread(target=rank, args=(number,)))
        threads[-1].start()
        time.sleep(pause)
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_each_start_has_a_store_of_its_own(order):
    store = HashStore()
    first, second = start(store, 3, order), start(store, 3, order, pause=0.15)
    assert first == dict.fromkeys(range(3), (3, 0))
    assert second == dict.fromkeys(range(3), (3, 1))


def test_after_a_start_in_which_some_never_came():
    store = HashStore()
    with pytest.raises(RuntimeError):
        meet(store, 0, 2, 0.3)
    found = start(store, 2, [1, 0], pause=0.2)
    assert found == {0: (2, 1), 1: (2, 1)}


def test_ranks_that_do_not_come_are_an_error_between_ranks():
    from seedbed.parallel.world import between_ranks

    with pytest.raises(RuntimeError, match="not all of 2 ranks came") as error:
        meet(HashStore(), 0, 2, 0.2)
    assert between_ranks(error.value)
