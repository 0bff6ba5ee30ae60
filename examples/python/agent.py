#!/usr/bin/env python3
"""An agent that publishes its run to Redis itself, with nothing but redis-py.

    python3 examples/python/agent.py --redis redis://127.0.0.1:6379 < input.json

The input is a RunAgentInput. What to copy is the class Run; what to replace is the function answer.
"""

import argparse
import json
import os
import socket
import sys
import threading
import time
import uuid

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:
    sys.exit("needs redis-py: pip install redis. Debian's python3-redis is for /usr/bin/python3, which may not be the first on the PATH")

WINDOW = 0.020  # seconds that an event may wait for others, which then share a round trip
LEASE = 30  # seconds without a sign of life after which a hub ends the run
RENEW = 10


class Cancelled(Exception):
    """Somebody who watches has asked the run to end."""


class Lost(Exception):
    """The run can't go on: Redis doesn't take its events, or a hub has ended it since it gave no sign of life."""


class Run:
    """One run. publish() never waits for Redis; a thread writes what has gathered, another hears of a cancel."""

    def __init__(self, url, run_input):
        self.id, self.thread, self.input = run_input["runId"], run_input["threadId"], run_input
        self.key = "agui:run:%s" % self.id
        self.control = "{agui:run:%s}:control" % self.id
        self.lease = "{agui:run:%s}:lease" % self.id
        self.producer = "%s-%d:0" % (socket.gethostname(), os.getpid())
        # A command whose answer was lost must not be repeated by itself: the event would be there twice.
        self.redis = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), decode_responses=True)
        self.events, self.ready = [], threading.Condition()
        self.closing, self.stop = threading.Event(), threading.Event()  # stop: the agent should
        self.cancelled, self.error, self.first = None, None, True

    def __enter__(self):
        self.redis.set(self.lease, self.producer, ex=LEASE)
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self._write, self._listen)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self.closing.set()
        with self.ready:
            self.ready.notify()
        for thread in self.threads:
            thread.join()
        if self.error and not kind:
            raise Lost(str(self.error))

    def publish(self, event):
        """Takes one event, a dict as AG-UI has it. Raises Cancelled or Lost when the agent should stop."""
        self.check()
        self.put(event)

    def check(self):
        if self.error:
            raise Lost(str(self.error))
        if self.cancelled is not None:
            raise Cancelled(self.cancelled)

    def put(self, event):
        """publish for what must go out although the run is to stop: what ends things."""
        with self.ready:
            self.events.append(json.dumps(event, ensure_ascii=False, separators=(",", ":")))
            self.ready.notify()

    def _write(self):
        while True:
            with self.ready:
                self.ready.wait_for(lambda: self.events or self.closing.is_set())
                if not self.events:
                    return
            self.closing.wait(WINDOW)
            with self.ready:
                batch, self.events = self.events, []
            pipe = self.redis.pipeline(transaction=False)
            for event in batch:
                fields = {"event": event}
                if self.first:  # the input goes with the first event: without it nobody would see what the user asked
                    fields["input"], self.first = json.dumps(self.input, ensure_ascii=False), False
                pipe.xadd(self.key, fields)
            pipe.publish("agui:wake", self.id)
            try:
                pipe.execute()
            except redis.RedisError as error:  # what arrived of it can't be known: stop here, and a hub will end the run
                self._fail(error)
                return

    def _fail(self, error):
        self.error = error
        self.stop.set()

    def _listen(self):
        last, renewed = "0", time.monotonic()
        while not self.closing.is_set():
            try:
                if time.monotonic() - renewed >= RENEW:
                    renewed = time.monotonic()
                    if not self.redis.set(self.lease, self.producer, ex=LEASE, xx=True):
                        self._fail("the lease had lapsed")
                        return
                for _, entries in self.redis.xread({self.control: last}, block=500) or []:
                    for last, fields in entries:
                        control = json.loads(fields.get("control", "{}"))
                        if control.get("type") == "cancel":
                            self.cancelled = control.get("reason") or ""
                            self.stop.set()
            except redis.RedisError:
                self.closing.wait(1)  # the lease outlives it


def answer(run, pause):
    """The agent itself: it says something, word by word."""
    said = [m["content"] for m in run.input["messages"] if m["role"] == "user" and isinstance(m["content"], str)]
    text = 'You said "%s". The rest comes word by word.' % (said[-1] if said else "")
    message = str(uuid.uuid4())
    run.publish({"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"})
    try:
        for word in text.split(" "):
            run.publish({"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": word + " "})
            run.stop.wait(pause)  # the model's work; it should hear of a stop, too
    finally:  # what was opened is closed, however it went
        run.put({"type": "TEXT_MESSAGE_END", "messageId": message})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--redis", default="redis://127.0.0.1:6379")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two words")
    arguments = parser.parse_args()
    run_input = json.load(sys.stdin)
    ids = {"threadId": run_input["threadId"], "runId": run_input["runId"]}

    with Run(arguments.redis, run_input) as run:
        end = {"type": "RUN_ERROR", "message": "The agent stopped.", "code": "stopped"}
        try:
            run.publish({"type": "RUN_STARTED", **ids})
            answer(run, arguments.pause)
            end = {"type": "RUN_FINISHED", **ids}
        except Cancelled:
            end = {"type": "RUN_FINISHED", **ids, "outcome": {"type": "cancelled"}}
        except Exception as error:
            end = {"type": "RUN_ERROR", "message": str(error), "code": type(error).__name__}
            raise
        finally:  # nobody waits for ever
            run.put(end)
    print("run %s: %s" % (run.id, end.get("outcome", {}).get("type", end["type"])))


if __name__ == "__main__":
    main()
