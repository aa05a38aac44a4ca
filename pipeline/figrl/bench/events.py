"""A discrete-event simulation: what happens when, and resources that those at work share."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Action = Callable[[], None]

_ROUNDING = 1e-12


class Clock:
    """Does actions at points in time; those of one time in the order in which they were asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self._coming: list[tuple[float, int, Action]] = []
        self._asked = 0

    def after(self, seconds: float, action: Action) -> None:
        """Do something some seconds from now."""
        heapq.heappush(self._coming, (self.now + seconds, self._asked, action))
        self._asked += 1

    def run(self) -> float:
        """Do everything that is to come; return the time of the last action."""
        while self._coming:
            self.now, _, action = heapq.heappop(self._coming)
            action()
        return self.now


class Shared:
    """A resource that those who use it at the same time share, in proportion to their weights.

    `rate`: units a second, of all together. `most`: units a second of a user of weight 1, however
    few there are: a thread does not take more than one core.
    """

    def __init__(self, clock: Clock, rate: float, most: float = math.inf) -> None:
        self._clock, self._rate, self._most = clock, rate, most
        # Users of weight 1 all move at the same speed, so one position serves for all of them.
        self._position, self._seen, self._weights = 0.0, clock.now, 0.0
        self._users: list[tuple[float, int, float, Action]] = []
        self._count = self._version = 0

    def use(self, amount: float, done: Action, weight: float = 1.0) -> None:
        """Take an amount of it, and do something when that is complete."""
        if amount <= 0 or math.isinf(self._rate):
            self._clock.after(0.0, done)
            return
        self._move()
        self._count += 1
        end = self._position + amount / weight
        heapq.heappush(self._users, (end, self._count, weight, done))
        self._weights += weight
        self._wait_for_next()

    def _speed(self) -> float:
        return min(self._rate / self._weights, self._most)

    def _move(self) -> None:
        if self._users:
            self._position += (self._clock.now - self._seen) * self._speed()
        self._seen = self._clock.now

    def _wait_for_next(self) -> None:
        self._version += 1
        version, end = self._version, self._users[0][0]
        seconds = max(end - self._position, 0.0) / self._speed()
        self._clock.after(seconds, lambda: self._complete(version))

    def _complete(self, version: int) -> None:
        """End the next user, and those that end with it, unless others came or went meanwhile."""
        if version != self._version:
            return
        self._position, self._seen = self._users[0][0], self._clock.now
        complete: list[Action] = []
        while self._users and self._users[0][0] <= self._position * (1 + _ROUNDING):
            _, _, weight, done = heapq.heappop(self._users)
            self._weights -= weight
            complete.append(done)
        if self._users:
            self._wait_for_next()
        else:
            # Nothing that was rounded is carried on.
            self._position = self._weights = 0.0
        for done in complete:
            done()


def when_all(count: int, done: Action) -> Action:
    """An action that does something the last of so many times that it is done."""
    left = count

    def one_less() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done()

    return one_less
