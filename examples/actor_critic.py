"""A recurrent actor-critic (A2C) with planish.nn's resets: episodes end anywhere in a rollout.

    python actor_critic.py                      three cells, one after the other
    python actor_critic.py --cell ln-gru --longest 20

The task needs memory. At the start of a corridor, a sign shows one of four doors; at its end, some
steps later, the agent must take that door. Episodes have different lengths, so each of the B
environments starts new episodes in the middle of a rollout. The state of the recurrent layer must
become zero exactly where an episode starts.
"""

import argparse
import dataclasses
import sys
import time

import torch
from arguments import above_zero, at_least_one
from torch import Tensor, nn

import planish

DOORS = 4
OBSERVATION = DOORS + 2
ACTIONS = DOORS + 1
CELLS = ("ln-gru", "plain-gru", "gru")


class Corridors:
    """B corridors of random lengths; a new one starts when an episode ends.

    Observations [B, OBSERVATION]: the sign (only at the start), in the corridor, at the doors.
    Actions [B]: the indices of the doors, then a step ahead. Every door at the end ends the
    episode; the right one has a reward of 1. A door in the corridor, or a step ahead at the doors,
    has no effect and costs 0.05.
    """

    def __init__(self, batch: int, longest: int) -> None:
        self.longest = longest
        self.sign = torch.zeros(batch, dtype=torch.long)
        self.ahead = torch.zeros(batch, dtype=torch.long)  # steps to the doors
        self.at_start = torch.zeros(batch, dtype=torch.bool)
        self._start(torch.ones(batch, dtype=torch.bool))

    def _start(self, where: Tensor) -> None:
        self.sign = torch.where(where, torch.randint(DOORS, where.shape), self.sign)
        self.ahead = torch.where(where, torch.randint(1, self.longest + 1, where.shape), self.ahead)
        self.at_start |= where

    def observe(self) -> Tensor:
        sign = nn.functional.one_hot(self.sign, DOORS) * self.at_start.unsqueeze(1)
        places = torch.stack([self.ahead > 0, self.ahead == 0], 1)
        return torch.cat([sign, places], 1).float()

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the rewards, and whether each episode ended with this step."""
        door, at_doors = action < DOORS, self.ahead == 0
        done = door & at_doors
        forward = ~door & ~at_doors
        reward = (done & (action == self.sign)).float() - 0.05 * ~(done | forward)
        self.ahead -= forward.long()
        self.at_start &= ~forward
        self._start(done)
        return reward, done


class Agent(nn.Module):
    """Policy and value on one recurrent layer.

    cell is "ln-gru" or "plain-gru", which use resets, or "gru", which is torch.nn.GRU with a loop
    over steps instead.
    """

    def __init__(self, cell: str, hidden: int) -> None:
        super().__init__()
        if cell == "gru":
            self.gru: nn.Module = nn.GRU(OBSERVATION, hidden)
        else:
            self.gru = planish.nn.LayerNormGRU(
                OBSERVATION, hidden, variant="paper" if cell == "ln-gru" else "plain"
            )
        self.policy = nn.Linear(hidden, ACTIONS)
        self.value = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, starts: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns logits [T, B, ACTIONS], values [T, B] and the next state.

        x is [T, B, OBSERVATION]. starts [T, B] says whether an episode starts with the step. h
        [1, B, H] is the state before the first step.
        """
        if isinstance(self.gru, nn.GRU):
            steps = []
            for x_t, start in zip(x, starts, strict=True):
                y, h = self.gru(x_t.unsqueeze(0), h * ~start.unsqueeze(1))
                steps.append(y)
            y = torch.cat(steps)
        else:
            y, h = self.gru(x, h, resets=starts)
        return self.policy(y), self.value(y).squeeze(-1), h


@dataclasses.dataclass
class Rollout:
    """T steps of B environments, with the logits and values of the acting agent."""

    h0: Tensor  # [1, B, H], the state before the first step
    observations: Tensor  # [T, B, OBSERVATION]
    starts: Tensor  # [T, B], whether an episode starts with the step
    actions: Tensor
    rewards: Tensor
    dones: Tensor  # [T, B], whether an episode ends with the step
    logits: Tensor  # [T, B, ACTIONS]
    values: Tensor
    next_value: Tensor  # [B], the value after the last step


def advantages_of(rollout: Rollout, gamma: float = 0.98, decay: float = 0.95) -> Tensor:
    """Returns generalized advantage estimates (Schulman et al. 2016, Eq. 16), [T, B]."""
    advantages = torch.empty_like(rollout.rewards)
    after = torch.zeros_like(rollout.next_value)
    next_value = rollout.next_value
    for t in reversed(range(len(advantages))):
        goes_on = ~rollout.dones[t]
        delta = rollout.rewards[t] + gamma * next_value * goes_on - rollout.values[t]
        after = delta + gamma * decay * goes_on * after
        advantages[t], next_value = after, rollout.values[t]
    return advantages


class Learner:
    """Alternates between acting for T steps and learning from them.

    The environments, the recurrent state and the starts of episodes carry over to the next rollout.
    """

    def __init__(self, cell: str, seed: int, options: argparse.Namespace) -> None:
        torch.manual_seed(seed)
        self.agent = Agent(cell, options.hidden)
        self.adam = torch.optim.Adam(self.agent.parameters(), lr=options.lr)
        self.corridors = Corridors(options.batch, options.longest)
        self.steps = options.steps
        self.h = torch.zeros(1, options.batch, options.hidden)
        self.starts = torch.ones(options.batch, dtype=torch.bool)

    @torch.no_grad()
    def act(self) -> Rollout:
        """Returns a rollout, computed step by step; evaluation mode packs the parameters once."""
        self.agent.eval()
        h0, steps = self.h, []
        for _ in range(self.steps):
            x, starts = self.corridors.observe(), self.starts
            logits, value, self.h = self.agent(x[None], starts[None], self.h)
            action = torch.multinomial(logits[0].softmax(-1), 1).squeeze(1)
            reward, self.starts = self.corridors.step(action)
            steps.append((x, starts, action, reward, self.starts, logits[0], value[0]))
        x, starts, actions, rewards, dones, logits, values = (
            torch.stack(of_steps) for of_steps in zip(*steps, strict=True)
        )
        _, next_value, _ = self.agent(self.corridors.observe()[None], self.starts[None], self.h)
        return Rollout(h0, x, starts, actions, rewards, dones, logits, values, next_value[0])

    def learn(self, rollout: Rollout) -> None:
        """Learns from the whole rollout in one call, starting from the rollout's first state."""
        self.agent.train()
        logits, values, _ = self.agent(rollout.observations, rollout.starts, rollout.h0)
        advantages = advantages_of(rollout)
        chosen = logits.log_softmax(-1)
        entropy = -(chosen.exp() * chosen).sum(-1).mean()
        chosen = chosen.gather(-1, rollout.actions.unsqueeze(-1)).squeeze(-1)
        value_loss = (values - (rollout.values + advantages)).square().mean()
        loss = 0.5 * value_loss - (chosen * advantages).mean() - 0.01 * entropy
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
        self.adam.step()


class Run:
    """A learner, the success rate of its episodes and its run time."""

    def __init__(self, cell: str, seed: int, options: argparse.Namespace) -> None:
        self.cell, self.seed = cell, seed
        self.learner = Learner(cell, seed, options)
        self.generator = torch.get_rng_state()
        self.updates, self.acting, self.learning = 0, 0.0, 0.0
        self.curve: list[tuple[int, float]] = []  # updates, share of episodes with the right door

    def train(self, updates: int) -> None:
        torch.set_rng_state(self.generator)  # each run has its own random numbers
        episodes, right = 0, 0
        for _ in range(updates):
            begin = time.perf_counter()
            rollout = self.learner.act()
            between = time.perf_counter()
            self.learner.learn(rollout)
            self.learning += time.perf_counter() - between
            self.acting += between - begin
            episodes += int(rollout.dones.sum())
            right += int((rollout.rewards == 1).sum())
        self.generator = torch.get_rng_state()
        self.updates += updates
        self.curve.append((self.updates, right / max(episodes, 1)))

    def summary(self) -> str:
        reached = (f"{updates}" for updates, success in self.curve if success >= 0.9)
        return (
            f"{self.cell:<9}  {self.seed:>4}  {self.curve[-1][1]:>7.3f}  {next(reached, '-'):>13}  "
            f"{self.acting:>14.1f}  {self.learning:>16.1f}"
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="A recurrent actor-critic with resets, on a task that needs memory."
    )
    add, usual = parser.add_argument, "; %(default)s by default"
    # fmt: off
    add("--cell", choices=[*CELLS, "all"], default="all",
        help="ln-gru and plain-gru are LayerNormGRU's, gru is torch.nn.GRU step by step" + usual)
    add("--updates", type=at_least_one, default=400, metavar="N",
        help="rollouts to learn from" + usual)
    add("--every", type=at_least_one, metavar="N",
        help="updates from a line of success to the next; a twentieth of all by default")
    add("--seeds", type=at_least_one, nargs="+", default=[1], metavar="SEED",
        help="a run for each; 1 by default")
    add("--longest", type=at_least_one, default=10, metavar="N",
        help="steps of the longest corridor" + usual)
    add("--hidden", type=at_least_one, default=64, metavar="H",
        help="units of the recurrent layer" + usual)
    add("--batch", type=at_least_one, default=32, metavar="B",
        help="environments side by side" + usual)
    add("--steps", type=at_least_one, default=16, metavar="T",
        help="steps of a rollout" + usual)
    add("--lr", type=above_zero, default=1e-2, metavar="RATE",
        help="Adam's learning rate" + usual)
    # fmt: on
    options = parser.parse_args()
    options.every = options.every or max(1, options.updates // 20)
    return options


def main() -> None:
    options = parse()
    cells = CELLS if options.cell == "all" else (options.cell,)
    print(f"Success, the share of episodes that end with the right door; chance is {1 / DOORS}.")
    runs: list[Run] = []
    for seed in options.seeds:
        of_seed = [Run(cell, seed, options) for cell in cells]
        runs += of_seed
        print(f"\nseed {seed}: updates  " + "  ".join(f"{cell:>9}" for cell in cells))
        for updates in (*range(options.every, options.updates, options.every), options.updates):
            for run in of_seed:
                run.train(updates - run.updates)
            successes = "  ".join(f"{run.curve[-1][1]:>9.3f}" for run in of_seed)
            print(f"{updates:>{len(f'seed {seed}: updates')}}  {successes}", flush=True)
    print("\ncell       seed  success  updates to .9  seconds acting  seconds learning")
    for run in runs:
        print(run.summary())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the exit status after SIGINT
