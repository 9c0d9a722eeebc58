"""Measurement validity: could the measurement have faked a verdict? Judged before the checks, belongs to no question.

Each rule names the outcomes that it could have faked (`voids`: "W110:pass", "K305:fail") and voids only those. What
makes a service look better than it is voids passes; what makes it look worse voids failures. A rule never hides a
failure that is real all the same: a queue that grows under a healthy client, a stream buffered on the users' own path,
an SLO that is missed even if each doubtful request is judged in the service's favour (`slo.outcomes`).

| rule | what could have gone wrong | voids |
|---|---|---|
| T501 | prompts came from a cache | passes |
| T502 | replies or prompts were not as long as asked | passes; failures where prompts were longer |
| T503 | the concurrency of a closed loop was not reached | passes |
| T504 | the client was the bottleneck | failures of latency |
| T505 | a rate limit in front of the engine | failures of latency and errors, passes of KV |
| T506 | faster than physics | passes that rest on the phase |
| T507 | the stream was buffered | passes that need gaps |
| T508 | others used the service | failures |
| T509 | no steady state | passes while it warms up, failures while it cools down |
| T510 | tokens were estimated | TPS either way |
| T511 | speculation on synthetic text | TPS and E2E passes |
| T512 | stopped early, or beyond the budget | passes |
| T513 | the client adds too much to a first token by itself | failures of latency that it explains |
| T514 | the requests of an open loop were not sent on time | failures that lateness explains, passes if much |
| T515 | what comes does not go (Little's law) | passes of latency |
| T516 | requests fare like their neighbours | nothing: each SLO counts them for less |
| T517 | replies ended within their reasoning | failures of the first answer that they make |
"""

from auditor.evidence import Check, Evidence, Finding, Rule
from auditor.validity import client, ended, others, replies, steady
from auditor.validity.findings import TITLES

__all__ = ["FAMILY", "judge"]

_RULES = (
    replies.t501_cached,
    replies.t502_lengths,
    client.t503_concurrency,
    client.t504_client,
    others.t505_rate_limit,
    replies.t506_physics,
    replies.t507_buffered,
    others.t508_foreign,
    steady.t509_steady,
    replies.t510_estimated,
    replies.t511_speculation,
    ended.t512_stopped,
    client.t513_floor,
    client.t514_schedule,
    steady.t515_balance,
    steady.t516_dependence,
    replies.t517_answer,
)

FAMILY = Check(
    question="T",
    title="Measurement validity",
    rules=tuple(Rule(id, TITLES[id], rule) for rule in _RULES for id in [rule.__name__[:4].upper()]),
)


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """All T findings. Evidence without measurements gives none: there is nothing that could be invalid."""
    rules = FAMILY.rules if evidence.measurements else ()
    return tuple(found for rule in rules for found in rule.judge(evidence))
