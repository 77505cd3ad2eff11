"""redis-py's Lock (https://redis-py.readthedocs.io/en/stable/lock.html), one try an acquire.

redis-py sends nothing twice by default. Its lock has no token, and tells a loss
by an exception of release, extend and reacquire only.
"""

from typing import Any

import redis
from redis.exceptions import LockNotOwnedError
from redis.sentinel import Sentinel

from lockworker import Grant, Held, Lock, NotHeld, Request, Runner, Settings, lease, serve


class RedisLock(Lock):
    def __init__(self, settings: Settings, runner: Runner) -> None:
        if settings.backend == "redis-sentinel":
            sentinels = Sentinel(settings.endpoints, socket_timeout=settings.ttl)
            self.client = sentinels.master_for(settings.master, socket_timeout=settings.ttl)
        else:
            self.client = redis.Redis(*settings.endpoints[0], socket_timeout=settings.ttl)
        self.client.ping()

    def acquire(self, request: Request) -> Grant:
        lock = self.client.lock(request.key, timeout=request.ttl, thread_local=False)
        if not lock.acquire(blocking=False):
            raise Held
        return Grant(lock, lease(request.ttl))

    def release(self, lock: Any, request: Request) -> None:
        try:
            lock.release()
        except LockNotOwnedError as e:
            raise NotHeld from e

    def check(self, lock: Any, request: Request) -> None:
        if not lock.owned():
            raise NotHeld

    def renew(self, lock: Any, request: Request) -> Grant:
        try:
            lock.reacquire()
        except LockNotOwnedError as e:
            raise NotHeld from e
        return Grant(valid=lease(lock.timeout))

    def close(self) -> None:
        self.client.close()


if __name__ == "__main__":
    serve(RedisLock)
