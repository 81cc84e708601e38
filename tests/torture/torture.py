#!/usr/bin/env python3
"""Runs the full form of the tests of kills, faults and full disks (docs/reliability.md), for `make torture`.

PLANISH_BUILD names CMake's build folder.
"""

import argparse
import collections
import os
import pathlib
import random
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent.parent / "python"
FILES = ("test_kills.py", "test_faults.py", "test_full_disk.py")


class Totals:
    """Adds up the numbers that the tests record."""

    def __init__(self):
        self.counts = collections.Counter()

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":  # the last report of a test, with everything that it has recorded
            self.counts.update(dict(report.user_properties))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kills", type=int, default=1000, help="number of kills (default: 1000)")
    parser.add_argument("--seed", default=str(random.randrange(10**9)), help="of the moments of the kills")
    parser.add_argument("--stride", type=int, default=1, help="try each STRIDE-th fault (default: 1, all)")
    parser.add_argument("--jobs", default="auto", help="tests at once (default: one for each core)")
    parser.add_argument("--only", help="pytest's -k: run a part of the tests")
    options = parser.parse_args()
    os.environ["PLANISH_KILLS"] = str(options.kills)
    os.environ["PLANISH_KILL_SEED"] = options.seed
    os.environ["PLANISH_FAULT_STRIDE"] = str(options.stride)
    print(f"{options.kills} kills, seed {options.seed}", flush=True)

    totals = Totals()
    arguments = ["-q", "-rs", "-n", options.jobs, *(str(TESTS / name) for name in FILES)]
    status = pytest.main(arguments + (["-k", options.only] if options.only else []), plugins=[totals])
    count = totals.counts
    print(
        f"torture: {count['kills']} kills ({count['kills_of_two']} of runs of two processes, "
        f"{count['kills_while_writing']} while a file was written), "
        f"{count['resumptions']} resumptions, {count['runs']} finished runs, seed {options.seed}; "
        f"{count['faults']} faults; {count['full_disks']} full disks"
    )
    if options.only:
        complete = sum(count.values()) > 0
    else:
        complete = count["kills"] == options.kills and count["runs"] > 0 and count["faults"] > 0
    if status == 0 and not complete:
        print("torture: tests were skipped")
        return 1
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
