"""Benchmarks that fail in different ways; test_execution.py checks the outcomes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from memory.benchmarking import Bench, not_available


def benchmark_good(bench: Bench | None = None) -> dict[str, Any]:
    return {"upper": (bench or Bench()).time("a".upper)}


# -- failing benchmarks -----------------------------------------------------------------------


def benchmark_raises() -> dict[str, Any]:
    raise ValueError("first line\nsecond line")


def benchmark_raises_with_a_note() -> dict[str, Any]:
    problem = ValueError("what went wrong")
    problem.add_note("what to do")
    raise problem


def benchmark_raises_what_cannot_be_written() -> dict[str, Any]:
    raise ValueError("half a sign: \ud800")


def benchmark_raises_a_page() -> dict[str, Any]:
    raise ValueError("word " * 10_000)


def benchmark_exits_with_7() -> dict[str, Any]:
    os._exit(7)


def benchmark_exits_with_3() -> dict[str, Any]:
    os._exit(3)


def benchmark_exits_with_0() -> dict[str, Any]:
    os._exit(0)


def benchmark_ends_the_interpreter() -> dict[str, Any]:
    sys.exit(0)


def benchmark_segfaults() -> dict[str, Any]:
    ctypes.string_at(0)
    return {}


def benchmark_is_killed() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def benchmark_leaks() -> dict[str, Any]:
    kept = []
    while True:
        kept.append(bytearray(b"x" * 1_000_000))


def benchmark_leaves_a_process() -> dict[str, Any]:
    subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    return {"figure": 1}


def benchmark_prints_a_lot() -> dict[str, Any]:
    for number in range(300_000):
        print("line", number)
    raise ValueError("after many lines")


def benchmark_returns_nan() -> dict[str, Any]:
    return {"deep": {"down": float("nan")}}


def benchmark_returns_infinity() -> dict[str, Any]:
    return {"deep": {"down": float("-inf")}}


def benchmark_returns_a_list() -> Any:
    return [1, 2]


def benchmark_returns_nothing() -> None:
    return None


def benchmark_returns_an_empty_dictionary() -> dict[str, Any]:
    return {}


def benchmark_returns_only_text() -> dict[str, Any]:
    return {"text": "fine", "more": {"none": None}}


def benchmark_returns_one_key_twice() -> dict[Any, Any]:
    return {1: 1.0, "1": 2.0}


def benchmark_returns_an_empty_key() -> dict[str, Any]:
    return {"": 1.0}


def benchmark_returns_a_control_sign() -> dict[str, Any]:
    return {"red \x1b[31m": 1.0}


def benchmark_returns_an_object() -> dict[str, Any]:
    return {"figure": 1.0, "what": threading.Lock()}


def benchmark_returns_itself() -> dict[str, Any]:
    tree: dict[str, Any] = {"figure": 1.0}
    tree["again"] = tree
    return tree


# -- unusual benchmarks that are valid --------------------------------------------------------


def benchmark_leaves_a_thread() -> dict[str, Any]:
    threading.Thread(target=threading.Event().wait).start()
    return {"figure": 1}


def benchmark_leaves_a_dead_process() -> dict[str, Any]:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return {"figure": 1}


def benchmark_shares_memory() -> dict[str, Any]:
    """Python starts a helper process for this, which ends after the round's process."""
    from multiprocessing import shared_memory

    shared = shared_memory.SharedMemory(create=True, size=100)
    shared.close()
    shared.unlink()
    return {"figure": 1}


def benchmark_closes_its_output() -> dict[str, Any]:
    sys.stdout.close()
    return {"figure": 1}


def benchmark_goes_elsewhere() -> dict[str, Any]:
    os.chdir("/")
    return {"figure": 1}


def benchmark_returns_odd_things() -> dict[Any, Any]:
    import numpy as np

    return {
        "a/b": 1,
        "größe ⚙": {"x y": np.float32(0.5), 7: np.int64(7)},
        "zero_dimensions": np.array(3.0),
        "list": [1, 2],
        "array": np.arange(3),
        "none": None,
        "text": "text",
        "true": np.bool_(True),
        ("tuple", 1): 2,
    }


def benchmark_is_not_available() -> dict[str, Any]:
    return {"here": 1.0, "there": not_available("nobody is there")}
