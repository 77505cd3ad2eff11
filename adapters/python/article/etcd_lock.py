"""The article's lock on etcd: a lease, a transaction on create revision 0, the revision as the token.

A thread keeps the lease alive at a third of its time to live. When a refresh
fails, it writes a line to the log and ends: the holder is never told.
"""

import logging
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Optional, Tuple

import etcd3

sys.path.insert(0, str(Path(__file__).parent.parent))
from lockworker import Doubt, Grant, Held, Lock, NotHeld, Request, Runner, Settings, serve  # noqa: E402


def revision(responses: Any) -> int:
    """Reads the revision from where python-etcd3 has it, in a ResponseOp's put."""
    return int(responses[0].response_put.header.revision)


class EtcdLock:
    """The lock as the article has it; reading says where the revision is looked for."""

    def __init__(self, client: Any, ttl: int, reading: Callable[[Any], int]) -> None:
        self.client, self.ttl, self.reading = client, ttl, reading
        self.lease: Any = None
        self.stop = threading.Event()

    def acquire(self, key: str) -> Optional[Tuple[int, int]]:
        self.lease = self.client.lease(self.ttl)
        success, responses = self.client.transaction(
            compare=[self.client.transactions.create(key) == 0],
            success=[self.client.transactions.put(key, "locked", lease=self.lease)],
            failure=[],
        )
        if success:
            token = self.reading(responses)
            threading.Thread(target=self._keep_alive, daemon=True).start()
            return token, self.lease.id
        self.lease.revoke()
        return None

    def _keep_alive(self) -> None:
        while not self.stop.is_set():
            try:
                self.lease.refresh()
            except Exception as e:
                logging.error("refresh: %r", e)
                break
            self.stop.wait(self.ttl / 3.0)

    def release(self) -> None:
        self.stop.set()
        if self.lease:
            try:
                self.lease.revoke()
            except Exception as e:
                logging.error("release: %r", e)


class Watched(etcd3.Etcd3Client):
    """A client that marks and tells what the lock does with its lease, and how its revoke ended."""

    runner: Runner
    request: Request
    told: threading.Event  # set when nothing is told of the grant any more
    mark = 0
    revoked = ""

    def begin(self, runner: Runner, request: Request) -> None:
        self.runner, self.request, self.told = runner, request, threading.Event()

    def lease(self, *args: Any, **kwargs: Any) -> Any:
        self.mark = self.runner.mark(self.request.key, self.request.grant)
        return super().lease(*args, **kwargs)

    def refresh_lease(self, lease_id: int) -> Any:
        request, over = self.request, self.told
        who = dict(key=request.key, grant=request.grant)
        mark = self.runner.mark(request.key, request.grant, request.timeout)
        try:
            answers = list(super().refresh_lease(lease_id))
        except Exception as e:
            self.tell(over, event="renew-failed", error=repr(e), **who)
            raise
        ttl = answers[0].TTL if answers else 0
        if ttl > 0:
            self.tell(over, event="renewed", valid=int(ttl * 1e9), mark=mark, **who)
        else:  # the lock takes this for success
            self.tell(over, event="renew-failed", error="the server knows no such lease", **who)
        return answers

    def tell(self, over: threading.Event, **event: Any) -> None:
        if not over.is_set():
            self.runner.tell(**event)

    def revoke_lease(self, lease_id: int) -> Any:
        self.revoked = "?"
        try:
            result = super().revoke_lease(lease_id)
        except Exception as e:
            self.revoked = repr(e)
            raise
        self.revoked = "done"
        return result


class ArticleEtcd(Lock):
    reading = staticmethod(revision)

    def __init__(self, settings: Settings, runner: Runner) -> None:
        self.runner = runner
        host, port = settings.endpoints[settings.process % len(settings.endpoints)]
        self.client = Watched(host, port, timeout=settings.ttl)
        self.client.status()

    def acquire(self, request: Request) -> Grant:
        self.client.begin(self.runner, request)
        lock = EtcdLock(self.client, int(request.ttl), self.reading)
        got = lock.acquire("lockcheck/" + request.key)
        if got is None:
            raise Held
        return Grant(lock, valid=int(lock.lease.ttl * 1e9), token=got[0], mark=self.client.mark)

    def release(self, lock: EtcdLock, request: Request) -> None:
        self.client.told.set()
        self.client.revoked = ""
        lock.release()
        if "NOT_FOUND" in self.client.revoked:
            raise NotHeld
        if self.client.revoked != "done":
            raise Doubt("revoking the lease ended as: %s" % self.client.revoked)

    def close(self) -> None:
        self.client.close()


if __name__ == "__main__":
    serve(ArticleEtcd)
