"""planish train --device: every task on a fake CUDA device whose kernels are the GPU's, run as C++; on a GPU if
PLANISH_TEST_GPU is 1."""

import json
import os
import pathlib
import signal
import time

import pytest
from test_processes import together

BUILD = pathlib.Path(os.environ["PLANISH_BUILD"]).resolve()
EMULATED = BUILD / "torch/emulated"  # torch/CMakeLists.txt

# Enough for two evaluations; the fake device runs each of PyTorch's operators by way of a fallback.
TASKS = {
    "pi-mnist": ("--norm", "none"),
    "mnist-cnn": ("--norm", "none"),
    "convnet": ("--norm", "none"),
    "online-ln": ("--norm", "none"),
    "char-lm": ("--cell", "ln-lstm"),
    "rt": ("--norm", "none"),
    "sst5": ("--norm", "none"),
    "sentences": ("--norm", "none"),
    "images": ("--norm", "none"),
    "parser": ("--norm", "none"),
    "mt": ("--norm", "layer"),
    "enwik8": ("--norm", "layer"),
    "attentive-reader": ("--norm", "layer"),
    "handwriting": ("--norm", "layer"),
    "draw": ("--norm", "none"),
    "order-embedding": ("--norm", "none"),
    "skip-thoughts": ("--norm", "none"),
}


REAL = os.environ.get("PLANISH_TEST_GPU") == "1"
FAKE = {"LD_PRELOAD": str(EMULATED / "libplanish_fake_cuda_device.so"), "LD_LIBRARY_PATH": str(EMULATED)}
GPU = {} if REAL else FAKE


def on_gpu(planish, *arguments):
    planish.environment |= GPU
    try:
        return planish(*arguments)
    finally:
        for name in GPU:
            del planish.environment[name]


def values(folder):
    (run,) = folder.glob("*/*/metrics.jsonl")
    return [json.loads(line)["values"] for line in run.read_text().splitlines()]


@pytest.mark.skipif(REAL, reason="this libtorch has CUDA")
def test_a_libtorch_without_cuda_is_a_usage_error(planish):
    result = planish("train", "pi-mnist", "--preset", "smoke", "--device", "cuda:7")
    assert result.returncode == 2
    assert result.stderr == (
        "planish: [train] --device cuda:7 needs a libtorch with CUDA and a GPU; this one computes on the CPU\n"
    )


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_a_task_trains_on_a_gpu_as_on_the_cpu(planish, tmp_path, task):
    arguments = ("train", task, "--preset", "smoke", "--threads", 1, "--quiet", *TASKS[task])
    cpu = planish(*arguments, "--out", tmp_path / "cpu")
    assert cpu.returncode == 0, cpu.stderr
    gpu = on_gpu(planish, *arguments, "--device", "cuda", "--out", tmp_path / "gpu")
    assert gpu.returncode == 0, gpu.stderr
    ours, theirs = values(tmp_path / "gpu"), values(tmp_path / "cpu")
    assert len(ours) == len(theirs) > 1
    # The weights and random numbers are equal, so the first evaluation, and the losses up to the second one, differ by
    # rounding only, which the updates in between multiply.
    for name, value in theirs[0].items():
        assert ours[0][name] == pytest.approx(value, rel=1e-4, abs=1e-4), name
    assert ours[1]["train_loss"] == pytest.approx(theirs[1]["train_loss"], rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("options", [("shards=4",), ("shards=2", "sync_batch_norm=true")])
def test_two_processes_with_gpus_train_as_on_the_cpu(planish, options):
    sets = [part for option in options for part in ("--set", option)]
    run = ("pi-mnist", "--preset", "smoke", "--threads", 1, "--quiet", "--norm", "batch", *sets)
    together(planish, 2, *run, "--out", "cpu")
    together(planish, 2, *run, "--device", "cuda:0", "--out", "gpu", variables=GPU)
    ours, theirs = values(planish.folder / "gpu"), values(planish.folder / "cpu")
    for name, value in theirs[0].items():
        assert ours[0][name] == pytest.approx(value, rel=1e-4, abs=1e-4), name
    assert ours[1]["train_loss"] == pytest.approx(theirs[1]["train_loss"], rel=1e-3)


@pytest.mark.long
def test_a_run_continues_on_another_device(planish):
    run = ("train", "pi-mnist", "--preset", "smoke", "--norm", "none", "--threads", 1, "--set", "epochs=200", "--quiet", "--out", "runs")
    planish.environment |= GPU
    process = planish.start(*run, "--device", "cuda")
    for name in GPU:
        del planish.environment[name]
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        metrics = list(planish.folder.glob("runs/*/*/metrics.jsonl"))
        if metrics and metrics[0].read_bytes().count(b"\n") >= 3:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    again = planish(*run)
    assert again.returncode == 0
    assert again.stderr == (
        "warning: smoke-none-b128-epochs=200-s1: the checkpoint was made on cuda:0 and continues on cpu: the last bits "
        "can differ\n"
    )


@pytest.mark.long
def test_cuda_is_the_gpu_of_the_process_under_torchrun(planish):
    planish.environment["LOCAL_RANK"] = "99"
    result = on_gpu(planish, "train", "pi-mnist", "--preset", "smoke", "--device", "cuda")
    assert result.returncode == 2
    assert "--device cuda:99 does not exist: GPUs are cuda:0 to cuda:" in result.stderr
    planish.environment["LOCAL_RANK"] = "0"
    assert on_gpu(planish, "train", "pi-mnist", "--preset", "smoke", "--norm", "none", "--device", "cuda", "--quiet").returncode == 0
