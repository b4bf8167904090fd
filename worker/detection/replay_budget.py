"""What a night may spend on replays, in launches: a share of its own, and a few nights' worth saved.

It counts; who asks and why is known elsewhere.
"""

from dataclasses import dataclass, field

from tilewatch.worker.detection.policy import Policy


@dataclass
class Budget:
    policy: Policy  # of tonight
    left: float | None = None  # unknown until the first night has a size
    unanswered: dict[int, int] = field(default_factory=dict)
    rounds: int = 0

    def new_night(self, nightly_launches: int, policy: Policy) -> None:
        """What was asked for and never given was not spent."""
        self.policy = policy
        most = max(self.policy.saved_nights * nightly_launches, float(self.policy.most_launches))
        earned = self.policy.budget * nightly_launches + sum(self.unanswered.values())
        self.left = most if self.left is None else min(self.left + earned, most)
        self.unanswered.clear()
        self.rounds = 0

    def allows(self, launches: int) -> bool:
        return (self.left or 0.0) >= launches

    @property
    def rounds_left(self) -> bool:
        return self.rounds < self.policy.rounds

    def spend(self, series: int, launches: int) -> None:
        self.left = (self.left or 0.0) - launches
        self.unanswered[series] = self.unanswered.get(series, 0) + launches

    def answered(self, series: int) -> None:
        self.unanswered.pop(series, None)
