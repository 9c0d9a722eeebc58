"""SGLang's scheduler: requests wait until their future tokens, by its estimate, will fit."""

from auditor.emulator.blocks import Pool
from auditor.emulator.scheduler import Batching, Job, Limits, Step

__all__ = ["SglangScheduler"]

# Constants of SGLang 0.5's scheduler (managers/schedule_policy.py, global_config.py, environ.py).
CLIP_MAX_NEW_TOKENS = 4096  # no request is expected to add more than this
INIT_NEW_TOKEN_RATIO = 0.7  # share of their allowed tokens that running requests are expected to use at first
MIN_RATIO_FACTOR = 0.14
DECAY_STEPS = 600
RETRACT_STEPS = 20  # decode steps that a retraction makes room for in the estimate
MAX_PREFILL_TOKENS = 16384


class SglangScheduler(Batching):
    """First come first served with an estimate of future tokens; prefill steps go before and never with decodes."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        super().__init__(pool, limits)
        self.first_ratio = min(INIT_NEW_TOKEN_RATIO * limits.conservativeness, 1.0)
        self.least_ratio = self.first_ratio * MIN_RATIO_FACTOR
        self.ratio = self.first_ratio
        self.full = False
        self.chunked: Job | None = None

    def abort(self, job: Job) -> None:
        """Forget a job wherever it is."""
        if job is self.chunked:
            self.chunked = None
        self.full = False
        super().abort(job)

    def plan(self) -> Step:
        """A prefill step if anything may be admitted, else a decode step."""
        step = self._prefill()
        return step if step.chunks else self._decode()

    # ------------------------------------------------------------------------------------------------------- prefill

    def _prefill(self) -> Step:
        step = Step()
        if self.chunked is None and (self.full or not self.waiting):
            return step
        chunk = self.limits.max_num_batched_tokens
        rest = MAX_PREFILL_TOKENS
        available = self.pool.available
        future = sum(self._future(job) + job.length - job.computed - 1 for job in self.running)
        if self.chunked is not None:
            taken = self._continue(step, self.chunked, chunk)
            chunk -= taken
            rest -= taken
        while self.waiting and chunk > 0 and rest > 0:
            if len(self.running) >= self.limits.max_num_seqs:
                self.full = True
                break
            job = self.waiting[0]
            cached = self._cached(job)
            new = job.length - cached
            taken = min(new, chunk)
            pinned = self._pinned(job, cached)
            if not self._fits(job, new + pinned, available - future) or not self._enter(job, cached, taken):
                self.full = bool(self.running) and len(step.admitted) < len(self.running)
                break
            self.waiting.popleft()
            self.running.append(job)
            step.admitted.append(job)
            step.chunks.append((job, taken, cached))
            future += new + pinned + min(job.limit - job.output, CLIP_MAX_NEW_TOKENS)
            chunk -= taken
            rest -= taken
            if taken < new:
                self.chunked = job
        return step

    def _continue(self, step: Step, job: Job, chunk: int) -> int:
        taken = min(job.length - job.computed, chunk)
        self.pool.grow(job.sequence, job.computed + taken)  # admission saw to it that there is room
        step.chunks.append((job, taken, job.computed))
        if job.computed + taken == job.length:
            self.chunked = None
        return taken

    def _pinned(self, job: Job, cached: int) -> int:
        """Slots of the cached prefix that could be given out now and cannot any more once this job runs."""
        if self.limits.prefix_cached:
            return cached
        return self.pool.unit * self.pool.unused(job.keys[: cached // self.pool.unit])

    def _future(self, job: Job) -> float:
        ratio = 1.0 if job.ignore_eos else self.ratio
        return min(job.limit - job.output, CLIP_MAX_NEW_TOKENS) * ratio

    def _fits(self, job: Job, new: int, rest: float) -> bool:
        if not self.running:
            return True  # alone, it fits by the limits checked on arrival
        if job.ignore_eos:
            return self._fits_to_the_end(job, new)
        return new + min(job.limit - job.output, CLIP_MAX_NEW_TOKENS) < rest

    def _fits_to_the_end(self, job: Job, new: int) -> bool:
        """Replay how the batch would end, shortest rest first: at no point may the slots run out."""
        rests = []
        for other in (*self.running, job):
            ratio = 1.0 if other.ignore_eos else self.ratio
            left = other.limit * ratio - other.output
            if left > 0:
                rests.append((left, other.length))
        unheld = self.chunked.length - self.chunked.computed if self.chunked else 0
        free = self.pool.available - new - unheld
        freed = 0
        for index, (left, occupied) in enumerate(sorted(rests)):
            still = len(rests) - index
            if free + freed - left * still <= still:
                return False
            freed += occupied
        return True

    # -------------------------------------------------------------------------------------------------------- decode

    def _decode(self) -> Step:
        step = Step()
        wanted = [(job, self._accept(job)) for job in self.running if job is not self.chunked]
        while len(wanted) > 1 and self._missing(wanted) > self.pool.available:
            victim = min(wanted, key=lambda pair: (pair[0].output, -pair[0].prompt))
            wanted.remove(victim)
            self.running.remove(victim[0])
            self._evict(victim[0])
            step.preempted.append(victim[0])
        if step.preempted:
            self.full = False
            self._raise_ratio([job for job, _ in wanted])
        else:
            self.ratio = max(self.least_ratio, self.ratio - (self.first_ratio - self.least_ratio) / DECAY_STEPS)
        step.decodes = [pair for pair in wanted if self.pool.grow(pair[0].sequence, pair[0].computed + pair[1])]
        return step

    def _missing(self, wanted: list[tuple[Job, int]]) -> int:
        return sum(self.pool.wanted(job.sequence, job.computed + count) for job, count in wanted)

    def _raise_ratio(self, jobs: list[Job]) -> None:
        decoded = sum(job.output for job in jobs)
        allowed = sum(job.limit for job in jobs)
        self.ratio = min(1.0, (decoded + RETRACT_STEPS * len(jobs)) / (allowed + 1))

    def complete(self, step: Step) -> list[tuple[Job, int]]:
        """As the base; a finished request reopens admission."""
        given = super().complete(step)
        if any(job.done for job, _ in given):
            self.full = False
        return given
