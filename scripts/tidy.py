#!/usr/bin/env python3
"""Runs clang-tidy on the C++ sources of a build that are not tests, and exits with 1 if it finds something.

    tidy.py BUILD [REGEX]

Sources that BUILD compiles together are also checked together, because reading libtorch's headers takes longer than
checking a file. REGEX selects by path. Tests are left out, because the analyzer is slow on GoogleTest's macros.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

# The files that a unity file includes count as headers.
HEADERS = r"/(include/planish|src|torch|lab|bench)/[^:]*\.(h|cu|cc)$"
NOT_CHECKED = re.compile(r"_test\b|_test_|/tests/|/testing/|cmake_pch|\.pb\.cc$|\.c$")


def check(tidy: str, build: pathlib.Path, source: str) -> tuple[str, str]:
    command = [tidy, "-p", build, "--quiet", f"--header-filter={HEADERS}", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return source, ""
    return source, done.stdout or done.stderr


def main() -> None:
    build = pathlib.Path(sys.argv[1])
    wanted = re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    # Findings differ between versions. Uses version 19 if it is installed, else the default.
    tidy = shutil.which("clang-tidy-19") or shutil.which("clang-tidy")
    if tidy is None:
        sys.exit("tidy.py: clang-tidy is not there: install clang-tidy-19")
    commands = build / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"tidy.py: {commands} is not there: configure the build first")
    sources = sorted({entry["file"] for entry in json.loads(commands.read_text())})
    sources = [source for source in sources if not NOT_CHECKED.search(source) and wanted.search(source)]
    if not sources:
        sys.exit("tidy.py: no source matches")
    found = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for number, (source, output) in enumerate(pool.map(lambda s: check(tidy, build, s), sources), start=1):
            print(f"[{number}/{len(sources)}] {os.path.relpath(source)}", flush=True)
            if output:
                found += 1
                print(output, flush=True)
    if found:
        sys.exit(f"tidy.py: clang-tidy found something in {found} of {len(sources)} sources")
    print(f"clang-tidy found nothing in {len(sources)} sources")


if __name__ == "__main__":
    main()
