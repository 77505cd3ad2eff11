"""python-etcd3's Lock (https://python-etcd3.readthedocs.io/en/latest/usage.html), which waits by a watch.

Its client knows one server; each session takes the next one. The lock has no
token ("TODO" in its source), and its refresh says nothing when the lease is
gone: the time to live in the answer is looked at here. The lease of a try that
was refused is left to expire by the library, and so is that of a release.
"""

from typing import Any, List

import etcd3

from lockworker import Grant, Held, Lock, NotHeld, Request, Runner, Settings, serve


class Marked(etcd3.Etcd3Client):
    """A client that marks the beginning of each lease, from which its time to live counts."""

    def begin(self, runner: Runner, request: Request) -> None:
        self.runner, self.request, self.mark = runner, request, 0

    def lease(self, *args: Any, **kwargs: Any) -> Any:
        self.mark = self.runner.mark(self.request.key, self.request.grant)
        return super().lease(*args, **kwargs)


def kept_alive(answers: List[Any]) -> int:
    """Gives the time to live that a refresh brought, in ns. 0 means that the server knows no such lease."""
    if not answers or answers[0].TTL <= 0:
        raise NotHeld
    return int(answers[0].TTL * 1e9)


class Etcd3Lock(Lock):
    def __init__(self, settings: Settings, runner: Runner) -> None:
        self.runner = runner
        host, port = settings.endpoints[settings.process % len(settings.endpoints)]
        self.client = Marked(host, port, timeout=settings.ttl)
        self.outside = etcd3.client(host, port, timeout=settings.ttl)
        self.client.status()

    def acquire(self, request: Request) -> Grant:
        self.client.begin(self.runner, request)
        lock = self.client.lock(request.key, ttl=int(request.ttl))
        if not lock.acquire(timeout=request.wait):
            raise Held
        return Grant(lock, valid=int(lock.lease.ttl * 1e9), mark=self.client.mark)

    def renew(self, lock: Any, request: Request) -> Grant:
        return Grant(valid=kept_alive(lock.refresh()))

    def gone(self, lock: Any) -> bool:
        info = self.outside.get_lease_info(lock.lease.id)
        return info.TTL == -1 and info.grantedTTL == 0

    def check(self, lock: Any, request: Request) -> None:
        if not lock.is_acquired():
            raise NotHeld

    def release(self, lock: Any, request: Request) -> None:
        if not lock.release():
            raise NotHeld

    def close(self) -> None:
        self.client.close()
        self.outside.close()


if __name__ == "__main__":
    serve(Etcd3Lock)
