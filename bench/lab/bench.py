"""Training speed of the lab's tasks: Planish against the same models in plain PyTorch, eager, in
Python.

Both start from the same weights and use the same batches. First their losses are compared; nothing
is timed unless they agree. Then blocks of updates alternate; results are ratios of the fastest.
docs/performance.md explains the tables. Results go to a JSON file, tables to standard output and,
with --docs, into the documentation."""

import importlib
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file

import cases
import mirrors
import report

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "base"))
import harness  # noqa: E402
import updates  # noqa: E402
from harness import BenchError  # noqa: E402

CHECKED_UPDATES = 6
BATCHES = 32  # of an epoch, repeated
NUDGES = 3
PLANS = 3


class PyTorch:
    """The model and its optimizer as a user of PyTorch writes them. Batches are prepared, so input
    has no cost."""

    def __init__(self, task, settings, start, *, fused=None, dtype=torch.float32, generator=None):
        self.task, self.settings = task, settings
        weights = {name.removeprefix("model."): value for name, value in start.items() if name.startswith("model.")}
        self.model = task.model(settings, weights)
        mirrors.fill(self.model, task.weight, weights)
        if generator is not None:
            for parameter in self.model.parameters():
                updates.nudge(parameter, generator)
        self.model.to(dtype).train()
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=settings["lr"], betas=(settings["adam_beta1"], settings["adam_beta2"]),
            eps=settings["adam_eps"], fused=fused)  # fmt: skip
        self.batches, self.next = batches(start, dtype), 0

    def update(self):
        self.optimizer.zero_grad()
        value, count = 0.0, self.settings["accumulate"]
        for _ in range(count):
            loss = self.task.loss(self.model, self.batches[self.next])
            self.next = (self.next + 1) % len(self.batches)
            value += loss.item() / count  # Planish reads every loss, too
            (loss / count if count > 1 else loss).backward()
        if self.settings.get("clip_each", 0) > 0:
            for parameter in self.model.parameters():
                torch.nn.utils.clip_grad_norm_(parameter, self.settings["clip_each"])
        if self.settings["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings["clip"])
        self.optimizer.step()
        return value

    def losses(self, count):
        return [self.update() for _ in range(count)]

    def steps(self, count):
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        for _ in range(count):
            self.update()
        if torch.get_default_device().type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        return seconds, 0.0, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults


class Planish:
    """bench/lab/steps.cc in a separate process."""

    def __init__(self, args, threads, *, keep_memory=True):
        self.process = subprocess.Popen(
            [pathlib.Path(args.build) / "bench" / "lab_steps", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, PLANISH_KEEP_MEMORY=str(int(keep_memory))))  # fmt: skip
        self.folder, self.preset, self.device = args.data, args.preset, args.device

    def send(self, **command):
        """Sends a command to the process. Returns its answer."""
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:  # the reason is on stderr
            raise BenchError(f"lab_steps ended with status {self.process.wait()} at {command}")
        return json.loads(line)

    def setup(self, case, settings, file):
        """Returns the answer to the setup, and the file's tensors."""
        setup = self.send(setup=case.task, preset=cases.TASKS[case.task].preset or self.preset,
                          set=case.settings() | settings, data=self.folder, batches=BATCHES, file=str(file),
                          device=self.device)  # fmt: skip
        return setup, load_file(file)

    def losses(self, count):
        return self.send(losses=count)

    def steps(self, count):
        answer = self.send(steps=count)
        return answer["seconds"], answer["input_seconds"], answer["faults"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def batches(start, dtype):
    """Returns the tensors of each batch on the default device, floats in `dtype`; None for one that a task omits."""
    found = {}
    for name, value in start.items():
        if match := re.fullmatch(r"batch\.(\d+)\.(\d+)", name):
            value = value.to(torch.get_default_device(), dtype if value.is_floating_point() else value.dtype)
            found.setdefault(int(match[1]), {})[int(match[2])] = value
    return [[found[b].get(i) for i in range(max(found[b]) + 1)] for b in sorted(found)]


def check(task, settings, start, planish):
    """Returns {competitor: error of its losses}, and the relative distances of the compared losses
    as text."""
    exact = PyTorch(task, settings, start, dtype=torch.float64).losses(CHECKED_UPDATES)
    floats = [PyTorch(task, settings, start, generator=g).losses(CHECKED_UPDATES) for g in updates.nudges(NUDGES)]
    losses = {"planish": planish.losses(CHECKED_UPDATES), "pytorch": floats[0]}
    return updates.compare(losses, exact, floats)


def run_case(args, case, planish, plain, lean, file):
    """Measures a case. `plain`, a second Planish, trains the same task without a norm for
    comparison, `lean` without keeping freed memory; each can be None."""
    task = importlib.import_module(cases.TASKS[case.task].module)
    result = {"task": case.task, "norm": case.norm, "threads": case.threads}
    if case.batch_size:
        result["batch size"] = case.batch_size
    checked = task.CHECK | (getattr(task, "CHECK_NONE", {}) if case.norm == "none" else {})
    setup, start = planish.setup(case, task.SETTINGS | checked, file)
    result["wrong"], result["agreement"] = check(task, setup["settings"], start, planish)
    if args.check:
        print(f"{case}: losses agree within {result['agreement']}", file=sys.stderr)
    if result["wrong"] or args.check:
        return result
    if checked:
        setup, start = planish.setup(case, task.SETTINGS, file)
    settings = setup["settings"]
    competitors = {
        "planish": planish,
        "pytorch": PyTorch(task, settings, start),
        "fused": PyTorch(task, settings, start, fused=True),
    }
    if plain:
        plain.setup(case._replace(norm="none"), task.SETTINGS, file.with_name("plain"))
        competitors["none"] = plain
    if lean:
        lean.setup(case, task.SETTINGS, file.with_name("lean"))
        competitors["lean"] = lean
    blocks = updates.measure(competitors, args.blocks, args.seconds)
    used = batches(start, torch.float32)
    units = settings["accumulate"] * statistics.mean(task.size(batch) for batch in used)
    epoch = planish.send(plans=PLANS) * settings["accumulate"] / setup["epoch_batches"]
    share = statistics.median((inputs + epoch) / seconds for seconds, inputs, _ in blocks["planish"])
    return result | {
        "settings": settings, "data": setup["data"], "unit": task.UNIT, "units": units, "input share": share,
        "seconds": {who: updates.best(found) for who, found in blocks.items()},
        "over": {who: updates.ratio(blocks[who], blocks["planish"]) for who in ("pytorch", "fused")},
        "over none": updates.ratio(blocks["planish"], blocks["none"]) if plain else None,
        "lean over": updates.ratio(blocks["lean"], blocks["planish"]) if lean else None,
        "faults": {who: statistics.median(f for *_, f in found) for who, found in blocks.items()},
    }  # fmt: skip


def run_cases(args, some, progress):
    """Returns {case: result}."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for threads in sorted({case.threads for case in some}):
            torch.set_num_threads(threads)
            planish, plain, lean = everyone = [Planish(args, threads), Planish(args, threads),
                                               Planish(args, threads, keep_memory=False)]  # fmt: skip
            foreign = harness.Foreign(*(one.process.pid for one in everyone))
            for case in some:
                if case.threads != threads:
                    continue
                about = cases.TASKS[case.task]
                found = run_case(args, case, planish, plain if about.recurrent and case.norm == "layer" else None,
                                 lean if about.lean else None, pathlib.Path(folder) / "start")  # fmt: skip
                results[case] = found | {"foreign cores": foreign.cores()}
                progress.step(str(case))
            for one in everyone:
                one.close()
    return results


def parse():
    parser = harness.arguments("lab", __doc__, quick="two norms, few blocks", example="mnist-cnn layer t2", seconds=0.4)
    harness.add_blocks(parser, 12, 5)
    parser.add_argument("--preset", default="small", help="of the tasks (default: small)")
    parser.add_argument("--data", default=os.environ.get("PLANISH_DATA"),
                        help="folder with the data (default: $PLANISH_DATA, else what the tasks make)")  # fmt: skip
    parser.add_argument("--device", default="cpu", help="of the updates: cpu (default) or cuda")
    parser.add_argument("--check", action="store_true", help="compare the losses, time nothing")
    return harness.check_arguments(parser)


def main():
    args = parse()
    pathlib.Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    about = harness.about(args, "lab_steps") | {"preset": args.preset, "device": args.device}
    if about["torch"].split("+")[0] != torch.__version__.split("+")[0]:
        raise BenchError(f"both sides must use the same PyTorch, got {about['torch']} and {torch.__version__}")
    torch.set_default_device(args.device)
    some = [case for case in cases.all_cases(args.threads, args.quick) if re.search(args.filter, str(case))]
    if not some:
        raise BenchError(f"--filter must match a case, got {args.filter!r}")
    progress = harness.Progress(len(some))
    results = harness.settle(some, lambda those: run_cases(args, those, progress), progress)
    progress.close()
    harness.finish(args, {"about": about, "results": list(results.values())}, report)


if __name__ == "__main__":
    harness.run_main(main)
