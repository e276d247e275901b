"""Run by a test, which stops it by a signal: runs on the Ray of this machine. STORE FOLDER"""

import sys
from pathlib import Path

import tasks

from seedbed.errors import SignalStop
from seedbed.study.on_ray import ray_engine

if __name__ == "__main__":
    store, folder = map(Path, sys.argv[1:])
    trains = {"a": tasks.until_told, "b": tasks.until_told, "c": tasks.note}
    todo = tasks.one_after_another(*(tasks.task(store, folder, name, train) for name, train in trains.items()))
    try:
        ray_engine(2, print)(todo, lambda task, reason: print(task.key, reason))
    except SignalStop as stop:
        sys.exit(128 + stop.signum)
