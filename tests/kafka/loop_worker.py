"""A loop in a process of its own: told by one JSON argument what to run, it says as JSON lines what happens.

Ends with 0 when `run()` returned and with 3 after an EosError, which it names.
"""

import json
import os
import sys
import time

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.errors import EosError
from eos_client.observe import TransactionCommitted

STUCK_S = 600.0


def say(said, **details):
    print(json.dumps({"said": said, **details}), flush=True)


def copy(record):
    return [record.value()]


def slow(record):
    time.sleep(0.005)
    return [record.value()]


def stuck(record):
    say("stuck")
    deadline = time.monotonic() + STUCK_S
    while time.monotonic() < deadline:
        time.sleep(STUCK_S)
    return [record.value()]


def say_event(event):
    if not isinstance(event, TransactionCommitted) or event.inside_revoke:
        say(event.name, **{key: value for key, value in event.as_dict().items() if isinstance(value, (str, int, bool))})


class SpokenLoop(ExactlyOnceLoop):
    """Says when it has been asked to stop: the first signal has arrived."""

    def stop(self, reason="stop() was called"):
        super().stop(reason)
        os.write(1, b'{"said": "stopping"}\n')


def main():
    told = json.loads(sys.argv[1])
    config = EosConfig({"bootstrap.servers": told["bootstrap"], "log_level": 0, **told["kafka"]}, **told["options"])
    transform = {"copy": copy, "slow": slow, "stuck": stuck}[told["transform"]]
    loop = SpokenLoop(config, [told["source"]], transform, output_topic=told["sink"], hook=say_event)
    try:
        loop.run()
    except EosError as error:
        names = [each.__name__ for each in type(error).__mro__]
        say("failed", error=names, message=str(error))
        sys.exit(3)
    say("returned", records_in=loop.counters.records_in)


if __name__ == "__main__":
    main()
