"""Norms and recurrent layers on a GPU: Planish against PyTorch, other installed libraries, and the
limits.

Every contestant's result is checked first. Then they are timed by the device's clock, alternating
in one process. The limit of norms is a copy of the same bytes in memory; the limit of recurrent
layers is their GEMMs. Results go to a JSON file and to sections of docs/performance.md."""

import argparse
import datetime
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "base"))
sys.path.append(str(HERE))
import norms  # noqa: E402
import recurrent  # noqa: E402
import report  # noqa: E402

PARTS = {"norms": norms, "recurrent": recurrent}
LONG_ENOUGH = 0.05  # seconds of a turn, of ten calls at most
LONG = 1  # seconds of all turns; a contestant that would take longer has MIN_TURNS
MIN_TURNS = 3


def seconds(call, repeats):
    """Returns the seconds per call by the device's clock, over consecutive calls."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000 / repeats


def measure(case, turns):
    """Returns the median over turns of each contestant's seconds, and the wrong contestants."""
    calls, bad, times = {}, {}, {}
    for who in case.contestants():
        try:
            calls[who] = case.call(who)
            if text := case.wrong(who, calls[who]):
                bad[who] = text
                del calls[who]
        except Exception as error:  # an error of another library: its cell stays empty
            bad[who] = f"{type(error).__name__}: {error}".splitlines()[0]
            calls.pop(who, None)
    once = {}
    for who, call in calls.items():
        seconds(call, 1)
        once[who] = seconds(call, 1)
    for turn in range(turns):
        for who, call in calls.items():
            if turn < MIN_TURNS or once[who] * turns < LONG:
                repeats = max(1, min(10, round(LONG_ENOUGH / once[who])))
                times.setdefault(who, []).append(seconds(call, repeats))
    medians = {who: statistics.median(t) for who, t in times.items()}
    return {**case.about(), "seconds": medians, "wrong": bad}


def about():
    import torch

    import planish

    device = torch.cuda.get_device_properties(0)
    return {"gpu": device.name, "multiprocessors": device.multi_processor_count, "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "planish": f"{planish.__version__}, measured on {datetime.date.today()}"}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few widths and shapes, few turns")
    parser.add_argument("--only", choices=PARTS, help="only one part")
    parser.add_argument("--turns", type=int, default=0, help="turns of each contestant (15; quick: 5)")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the JSON file to write")
    parser.add_argument("--docs", type=pathlib.Path, help="the folder whose performance.md gets the tables")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("bench: PyTorch must be installed")
    if not torch.cuda.is_available():
        sys.exit("bench: a GPU must be there, and a PyTorch that was built for it")
    turns = args.turns or (5 if args.quick else 15)
    cases = [case for part in PARTS if args.only in (None, part) for case in PARTS[part].cases(args.quick)]
    document = {"about": about(), "results": []}
    for i, make in enumerate(cases, 1):
        case = make()
        document["results"].append(measure(case, turns))
        print(f"{i}/{len(cases)} {case}", file=sys.stderr, flush=True)
        del case
        torch.cuda.empty_cache()
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(document, indent=1))  # after every case, in case the process is stopped
    print(report.markdown(document))
    if args.docs:
        report.write(document, args.docs)


if __name__ == "__main__":
    main()
