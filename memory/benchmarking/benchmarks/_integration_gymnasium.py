"""CartPole-v1, learned by random search over linear policies, by an agent without and one with a memory.

Both play the same episodes if the memory returns what was stored. The first agent keeps the best policy in
a variable; the second stores it as a memory and reads it back before each episode. At every tenth step it
also searches for similar situations. After an episode it stores every step as one batch, and replays
some of all its steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from memory.benchmarking.targets.base import Item, Target

AGENT = "cart pole"
_LOOK_EVERY = 10
_NEIGHBOURS = 5
_REPLAYED = 32
_SPREAD = 0.2
_NAMES = ("position", "velocity", "angle", "turning")
_BOUNDS = (
    ((-1.0, "cart far left"), (-0.3, "cart left"), (0.3, "cart in the middle"), (1.0, "cart right")),
    ((-0.4, "moving left"), (0.4, "nearly standing")),
    ((-0.05, "pole leaning left"), (0.05, "pole upright")),
    ((-0.4, "falling left"), (0.4, "hardly turning")),
)
_ELSE = ("cart far right", "moving right", "pole leaning right", "falling right")

Weights = Sequence[float]
_FIRST: tuple[Weights, float] = ((0.0, 0.0, 1.0, 0.5), -1.0)
"""Push in the direction in which the pole leans and turns."""
Look = Callable[[list[float], int], None]


def situation(values: Sequence[float]) -> str:
    """Return a coarse description of a state in words."""
    return ", ".join(
        next((words for bound, words in bounds if value < bound), otherwise)
        for value, bounds, otherwise in zip(values, _BOUNDS, _ELSE, strict=True)
    )


class Player:
    """Plays episodes and keeps its best policy in a variable."""

    def __init__(self, seed: int) -> None:
        self._env = gymnasium.make("CartPole-v1")
        self._seed = seed
        self.rewards: list[float] = []
        self.steps = 0
        self._best = _FIRST

    def close(self) -> None:
        self._env.close()

    def iterate(self, number: int) -> None:
        """Play one episode with a policy near the best one, and keep the better of the two."""
        weights, best = self._best
        tried = self._near(weights, number)
        reward = self._play(tried, number)
        if reward > best:
            self._best = (tried, reward)

    def _near(self, weights: Weights, number: int) -> list[float]:
        rng = random.Random(f"policy {self._seed} {number}")
        return [weight + rng.gauss(0, _SPREAD) for weight in weights]

    def _play(self, weights: Weights, number: int, look: Look | None = None) -> float:
        observation, _ = self._env.reset(seed=self._seed * 1000 + number)
        reward, over = 0.0, False
        while not over:
            values = observation.tolist()
            action = int(sum(weight * value for weight, value in zip(weights, values, strict=True)) > 0)
            observation, gained, terminated, truncated, _ = self._env.step(action)
            reward += float(gained)
            over = terminated or truncated
            self.steps += 1
            if look is not None:
                look(values, action)
        self.rewards.append(reward)
        return reward


class RememberingPlayer(Player):
    """The same player with a memory."""

    def __init__(self, seed: int, target: Target) -> None:
        super().__init__(seed)
        self._target = target
        self._best_id: str | None = None
        self._step_ids: list[str] = []
        self._steps: list[Item] = []
        self.reads = self.writes = 0
        """Memories read and written; one that a batch names twice is read once."""

    def iterate(self, number: int) -> None:
        weights, best = self._remembered()
        tried = self._near(weights, number)
        steps: list[Item] = []

        def look(values: list[float], action: int) -> None:
            present = situation(values)
            if len(steps) % _LOOK_EVERY == 0 and self._target.capabilities.search:
                self.reads += len(self._target.search(AGENT, present, _NEIGHBOURS))
            state = dict(zip(_NAMES, values, strict=True))
            content = {"situation": present, "state": state, "action": action}
            steps.append(Item(AGENT, content, step=len(steps), kind="state"))

        reward = self._play(tried, number, look)
        steps.append(
            Item(AGENT, {"policy": tried, "reward": reward}, importance=1 + reward / 100, kind="policy")
        )
        ids = self._target.add(steps)
        self.writes += len(ids)
        if reward > best:
            self._best_id = ids[-1]
        self._step_ids += ids
        self._steps += steps
        replayed = random.Random(f"replay {self._seed} {number}").choices(self._step_ids, k=_REPLAYED)
        self._target.get(AGENT, replayed)
        self.reads += len(set(replayed))

    def stored(self) -> tuple[list[str], list[Item]]:
        """Return ids and items of everything that it has stored."""
        return self._step_ids, self._steps

    def _remembered(self) -> tuple[Weights, float]:
        if self._best_id is None:
            return _FIRST
        content: Any = self._target.get_one(AGENT, self._best_id)
        self.reads += 1
        return content["policy"], content["reward"]
