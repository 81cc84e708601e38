"""Shared parts of the training comparisons: comparison of losses, alternating blocks of updates,
ratios.

A competitor has two methods, which make `count` updates. `losses(count)` returns the loss of each.
`steps(count)` returns a tuple that starts with the seconds of all."""

import statistics
import time

import torch

PAUSE = 0.05  # seconds after a block: a process's OpenMP workers spin before they sleep


def nudges(count):
    """Returns None, for a training from the original weights, and generators for `count` trainings
    in float whose weights are changed in their last bit."""
    return [None] + [torch.Generator().manual_seed(seed) for seed in range(1, count + 1)]


def nudge(weight, generator):
    with torch.no_grad():
        noise = torch.rand(weight.shape, generator=generator, device=generator.device).to(weight.device)
        weight.mul_(1 + 2.0**-23 * (noise * 2 - 1))


def compare(losses, exact, floats):
    """Returns {competitor: error of its losses}, and the relative distances of the compared losses
    as text.

    The tolerance is eight times the effect of rounding: the largest distance so far between
    PyTorch's losses in double (`exact`) and in float (`floats`). `floats` has trainings from the
    given weights and from weights changed in their last bit. The minimum tolerance is 1e-6 of the
    first loss, eight roundings, and 3e-5 of a later one. The latter is for Adam, whose first
    steps move a weight by the learning rate in either direction if its gradient is zero up to
    rounding. The comparison ends at the loss where rounding would hide an error of 2e-3. At least
    two losses must be compared."""
    rounding, wrong, distances = 0.0, {}, []
    for i, expected in enumerate(exact):
        rounding = max([rounding] + [abs(run[i] - expected) for run in floats])
        tolerance = max(8 * rounding, (1e-6 if i == 0 else 3e-5) * expected)
        if tolerance > 2e-3 * expected:
            break
        for name, run in losses.items():
            if not abs(run[i] - expected) <= tolerance:
                wrong.setdefault(name, f"the loss of update {i + 1} must be {expected:.9g} within "
                                 f"{tolerance:.2g}, got {run[i]:.9g}")  # fmt: skip
        distances.append(max(abs(run[i] - expected) for run in losses.values()) / expected)
    if len(distances) < 2:
        wrong = {name: f"rounding hides the losses after update {len(distances)}" for name in losses}
    return wrong, " ".join(f"{d:.0e}" for d in distances)


def measure(competitors, rounds, block):
    """Returns {name: [results of `steps`, divided by the updates, for each round]}."""
    count = 1
    while (slowest := max(c.steps(count)[0] for c in competitors.values())) < block / 2:  # also warms up
        count *= 2
    count = max(1, round(count * block / slowest))
    results = {name: [] for name in competitors}
    names = list(competitors)
    for r in range(rounds):
        for i in range(len(names)):
            name = names[(i + r) % len(names)]  # each has each position equally often
            time.sleep(PAUSE)
            results[name].append([value / count for value in competitors[name].steps(count)])
    return results


def best(result):
    return min(seconds for seconds, *_ in result)


def ratio(slow, fast):
    """Returns the ratio of the minima, the median of the rounds' ratios, and their first and last
    decile."""
    pairs = sorted(s / f for (s, *_), (f, *_) in zip(slow, fast))
    return best(slow) / best(fast), statistics.median(pairs), pairs[len(pairs) // 10], pairs[-1 - len(pairs) // 10]


def ratio_text(slow, fast):
    """Returns text like '1.32 (1.30, 1.24-1.35)'."""
    of_best, median, low, high = ratio(slow, fast)
    return f"{of_best:.2f} ({median:.2f}, {low:.2f}-{high:.2f})"
