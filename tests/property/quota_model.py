"""What a group has to pay for: the oracle of the quota machine.

Written from correctness H17 and the services' own contract: charged when a URL is issued, only the
growth when it is issued again; what a newer attempt supersedes is given back; what is deleted is
given back; refused exactly when the charge would pass the quota.
"""

from dataclasses import dataclass, field

QUOTA = 100
USER_UPLOAD = 0


class OverQuota(Exception):
    """Nothing has changed."""


@dataclass(eq=False)
class File:
    """An attachment. While its last URL may be used, a smaller one still costs the larger."""

    size: int = 0
    reserved: int = 0
    is_young: bool = True

    @property
    def cost(self) -> int:
        return self.size + self.reserved


@dataclass(eq=False)
class Archive:
    """What one attempt uploaded of one type."""

    size: int = 0
    is_young: bool = True


@dataclass(eq=False)
class Job:
    """A task; `attempt` is the newest one's number, `attempt_id` the one that is held or lost."""

    id: int
    attempt: int = 0
    attempt_id: int | None = None
    is_ended: bool = False
    archives: dict[tuple[int, int], Archive] = field(default_factory=dict)  # by attempt, type

    def counting(self, kind: int) -> int:
        """Under which attempt a user's upload of this type goes."""
        is_newest = self.attempt > 0 and (self.attempt, kind) in self.archives
        return self.attempt if is_newest else USER_UPLOAD


class Ledger:
    def __init__(self) -> None:
        self.quota = QUOTA
        self.files: dict[str, File] = {}
        self.jobs: dict[int, Job] = {}

    @property
    def used(self) -> int:
        archives = [one.size for job in self.jobs.values() for one in job.archives.values()]
        return sum(archives) + sum(one.cost for one in self.files.values())

    def _check(self, refund: int, growth: int) -> None:
        if growth > 0 and self.used - refund + growth > self.quota:
            raise OverQuota

    def attach(self, key: str, size: int) -> bool:
        """Whether it was there before."""
        present = self.files.get(key)
        before = present or File()
        cost = max(size, before.cost) if before.is_young else size
        self._check(0, cost - before.cost)
        self.files[key] = File(size, cost - size)
        return present is not None

    def detach(self, key: str, *, young: bool) -> bool:
        present = self.files.get(key)
        if present is None or (present.is_young and not young):
            return False
        del self.files[key]
        return True

    def upload(self, job: Job, attempt: int, kind: int, size: int) -> bool:
        older = [one for (number, _), one in job.archives.items() if USER_UPLOAD < number < attempt]
        present = job.archives.get((attempt, kind))
        before = 0 if present is None else present.size
        self._check(sum(one.size for one in older), max(0, size - before))
        for one in older:
            one.size = 0
        job.archives[attempt, kind] = Archive(max(size, before))
        return present is not None

    def delete(self, job: Job, kind: int, *, young: bool) -> bool:
        found = [place for place in job.archives if place[1] == kind]
        if not found or (any(job.archives[place].is_young for place in found) and not young):
            return False
        for place in found:
            del job.archives[place]
        return True

    def sweep(self) -> int:
        """What attempts left behind that were claimed anew."""
        count = 0
        for job in self.jobs.values():
            old = [
                place
                for place, one in job.archives.items()
                if USER_UPLOAD < place[0] < job.attempt and not one.is_young
            ]
            for place in old:
                del job.archives[place]
            count += len(old)
        return count

    def grow_old(self) -> None:
        for one in self.files.values():
            one.is_young = False
        for job in self.jobs.values():
            for archive in job.archives.values():
                archive.is_young = False
