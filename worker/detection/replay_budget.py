"""Limits the replay launches of a night. Launches that earlier nights did not use are added."""

from dataclasses import dataclass, field

from tilewatch.worker.detection.policy import Policy


@dataclass
class ReplayBudget:
    policy: Policy  # tonight's
    left: float = 0.0  # launches
    unanswered: dict[int, int] = field(default_factory=dict)  # launches asked for and not yet answered, by series
    rounds: int = 0
    unspent: float = 0.0  # launches of tonight's own share

    def start_night(self, nightly_launches: int, policy: Policy) -> None:
        """Adds this night's launches to the budget, and the launches of replays that gave no result."""
        self.policy = policy
        budget = self.policy.budget * nightly_launches
        earned = budget + sum(self.unanswered.values())
        self.left = min(self.left + earned, max(float(self.policy.most_launches), budget))
        self.unanswered.clear()
        self.rounds, self.unspent = 0, budget

    def allows(self, launches: int) -> bool:
        return self.left >= launches

    def allows_tonight(self, launches: int) -> bool:
        """Returns whether the budget allows these launches without launches left from earlier nights."""
        return min(self.unspent, self.left) >= launches

    @property
    def rounds_left(self) -> bool:
        return self.rounds < self.policy.rounds

    def spend(self, series: int, launches: int) -> None:
        self.left -= launches
        self.unspent -= launches
        self.unanswered[series] = self.unanswered.get(series, 0) + launches

    def note_answer(self, series: int) -> None:
        self.unanswered.pop(series, None)
