"""A draft of the files that deploy a service, joined with one of the service as it runs."""

from dataclasses import replace

from auditor.init.draft import Draft, merged

__all__ = ["with_endpoint"]


def with_endpoint(deployed: Draft, live: Draft) -> Draft:
    """Files say what is deployed, the endpoint where it is and who uses it.

    Settings that a launch line may set are left to it: the endpoint's own are compared with them in an audit.
    """
    own = dict(live.deployment)
    if "launch" in deployed.deployment:
        own = {name: own[name] for name in ("accelerator", "engine_version") if name in own}
    joined = merged(deployed, replace(live, deployment=own))
    return replace(joined, endpoint={**deployed.endpoint, **live.endpoint})
