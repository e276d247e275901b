"""How the ranks of one start find each other in a store that outlives starts."""

import time
from uuid import uuid4

from torch.distributed.distributed_c10d import PrefixStore, Store


def meet(store: Store, rank: int, size: int, timeout_s: float) -> tuple[PrefixStore, int]:
    """Wait until all ``size`` ranks of this start are there; (a store of their own, how many starts were before).

    When torchrun starts ranks over, it keeps its store with all that the dead wrote, and its count of restarts differs
    from machine to machine. So the first rank gives each start a name. The others may read the one before; but what
    lists its ranks lists the dead, not them. Raises RuntimeError where some do not come within ``timeout_s``.
    """
    me, joined = uuid4().hex, ""
    if rank == 0:
        store.set("start", f"{store.add('starts', 1)}-{me}")
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        name = store.get("start").decode() if store.check(["start"]) else ""
        if name and name != joined:
            store.set(f"{name}/{rank}", me)
            joined = name
        places = [f"{joined}/{place}" for place in range(size)]
        if rank == 0 and not store.check([f"{joined}/all"]) and store.check(places):
            store.set(f"{joined}/all", " ".join(store.get(place).decode() for place in places))
        if joined and store.check([f"{joined}/all"]) and me in store.get(f"{joined}/all").decode():
            return PrefixStore(joined, store), int(joined.partition("-")[0]) - 1
        time.sleep(0.05)
    raise RuntimeError(f"gloo/store: not all of {size} ranks came within {timeout_s:.0f} s")
