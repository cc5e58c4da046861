"""Makes generated requests meet what is there: names that others claimed, handles and leases that were granted. Only
requests that are meant to be right are touched; what is meant to be wrong stays wrong."""

import itertools

import schemathesis
from schemathesis import GenerationMode

WATCHES = ["/v1/watch", "/v1/watch/instances"]
NAMES = ["a", "a/b", "jobs/nightly", "gpu"]
handles = ["a@1"]
leases = ["1"]
turns = itertools.count()


def chosen(things):
    """Every other time one of these."""
    turn = next(turns)
    return things[turn // 2 % len(things)] if turn % 2 else None


@schemathesis.hook
def filter_case(context, case):
    # A list in a query has no form that is not a list, and a watch that is let through stays open.
    return case.path not in WATCHES or is_meant_well(case)


def is_meant_well(case):
    return case.meta is not None and case.meta.generation.mode == GenerationMode.POSITIVE


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body if isinstance(case.body, dict) else {}
    if body.get("wait") is True:
        # A claim in line would keep its request open for as long as it waits.
        body["poll_ms"] = 5
    if case.path in WATCHES and isinstance(case.query, dict):
        case.query["for_ms"] = 5
    if isinstance(case.query, dict) and str(case.query.get("wait_ms", "")).isdecimal():
        # Whoever waits for something to happen to a service that nobody has would wait in vain.
        case.query["wait_ms"] = 5
    if not is_meant_well(case):
        return
    known = {"handle": handles, "lease": leases, "to": leases, "parent": leases, "resource": NAMES}
    for part in (body, case.query, case.path_parameters):
        if not isinstance(part, dict):
            continue
        for field, things in known.items():
            if field in part and (thing := chosen(things)) is not None:
                part[field] = thing
    if case.path in ("/v1/acquire", "/v1/leases") and body and (ttl := chosen([100, 5000, 60000])):
        body.setdefault("holder", "ann")
        body["ttl_ms"] = ttl


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code != 200 or not response.content:
        return
    try:
        answer = response.json()
    except ValueError:
        return
    if isinstance(answer, dict):
        handles.extend([answer["handle"]] if "handle" in answer else [])
        leases.extend([answer["lease"]] if "lease" in answer else [])
        del handles[:-20], leases[:-20]
