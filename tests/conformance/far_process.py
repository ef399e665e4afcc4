"""The program of a `FarMember`'s process: it does what it is told, line by line."""

from __future__ import annotations

import json
import sys

from tests.conformance.backends import RealBackend
from tests.conformance.members import BackendMember


def serve(given: str) -> None:
    """Be the process of a `FarMember`."""
    bootstrap, commit_validation, arguments, settings = json.loads(given)
    member = BackendMember(RealBackend(bootstrap, commit_validation), *arguments, **settings)
    for line in sys.stdin:
        name, *values = json.loads(line)
        found = getattr(member, name)
        print(json.dumps(found(*values) if callable(found) else found), flush=True)
