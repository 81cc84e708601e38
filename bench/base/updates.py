"""What the comparisons of training share: whether losses agree, blocks of updates in turns, ratios.

A competitor has `losses(count)`, which makes updates and gives the loss of each, and `steps(count)`, which
makes them and gives a pair whose first is the seconds they took.
"""

import statistics
import time

import torch

PAUSE = 0.05  # seconds after a block: a process's OpenMP workers spin before they sleep


def nudges(count):
    """Generators for `count` trainings in float whose weights are changed in their last bit, and None for one
    from the weights as they are."""
    return [None] + [torch.Generator().manual_seed(seed) for seed in range(1, count + 1)]


def nudge(weight, generator):
    with torch.no_grad():
        weight.mul_(1 + 2.0**-23 * (torch.rand(weight.shape, generator=generator) * 2 - 1))


def compare(losses, exact, floats):
    """{competitor: what is wrong with its losses}, and how far the others' agree.

    What is allowed follows from what rounding does to this very training: eight times the largest
    distance so far between PyTorch's losses in float (`floats`: from the weights given and from weights
    changed in their last bit) and in double (`exact`). The first loss may differ by 1e-6 of it in any
    case, eight roundings; a later one by 3e-5: where a gradient is zero but for rounding, Adam's first
    steps move the weight by the learning rate one way or the other. The comparison ends where rounding
    would hide an error of 2e-3, and that must not be the first or second.
    """
    rounding, wrong, distances = 0.0, {}, []
    for i, expected in enumerate(exact):
        rounding = max([rounding] + [abs(run[i] - expected) for run in floats])
        tolerance = max(8 * rounding, (1e-6 if i == 0 else 3e-5) * expected)
        if tolerance > 2e-3 * expected:
            break
        for name, run in losses.items():
            if not abs(run[i] - expected) <= tolerance:
                wrong.setdefault(name, f"the loss of update {i + 1} must be {expected:.9g} within "
                                 f"{tolerance:.2g} but is {run[i]:.9g}")  # fmt: skip
        distances.append(max(abs(run[i] - expected) for run in losses.values()) / expected)
    if len(distances) < 2:
        wrong = {name: f"rounding hides the losses after update {len(distances)}" for name in losses}
    return wrong, " ".join(f"{d:.0e}" for d in distances)


def measure(competitors, rounds, block):
    """{name: [what `steps` of an update gave, divided by the updates: one a round]}."""
    count = 1
    while (slowest := max(c.steps(count)[0] for c in competitors.values())) < block / 2:  # also warms up
        count *= 2
    count = max(1, round(count * block / slowest))
    results = {name: [] for name in competitors}
    names = list(competitors)
    for r in range(rounds):
        for i in range(len(names)):
            name = names[(i + r) % len(names)]  # each is first, second ... as often
            time.sleep(PAUSE)
            results[name].append([value / count for value in competitors[name].steps(count)])
    return results


def best(result):
    return min(seconds for seconds, *_ in result)


def ratio(slow, fast):
    """Of the minima; median of the rounds' ratios, their first and last decile."""
    pairs = sorted(s / f for (s, *_), (f, *_) in zip(slow, fast))
    return best(slow) / best(fast), statistics.median(pairs), pairs[len(pairs) // 10], pairs[-1 - len(pairs) // 10]


def ratio_text(slow, fast):
    """'1.32 (1.30, 1.24-1.35)'"""
    of_best, median, low, high = ratio(slow, fast)
    return f"{of_best:.2f} ({median:.2f}, {low:.2f}-{high:.2f})"
