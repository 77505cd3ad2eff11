"""The article's lock on one Redis: SET NX PX with a UUID, three tries 200 ms apart, Lua compare-and-delete."""

import sys
import time
import uuid
from pathlib import Path
from typing import Any

import redis
from redis.sentinel import Sentinel

sys.path.insert(0, str(Path(__file__).parent.parent))
from lockworker import Grant, Held, Lock, NotHeld, Request, Runner, Settings, lease, serve  # noqa: E402

TRIES, PAUSE = 3, 0.2
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"


class SimpleLock:
    """The lock as the article has it: the owner's UUID belongs to the object. before is called before each try."""

    def __init__(self, client: Any, name: str, ttl_ms: int, before: Any) -> None:
        self.client, self.name, self.ttl_ms, self.before = client, name, ttl_ms, before
        self.owner = str(uuid.uuid4())

    def acquire(self) -> bool:
        for _ in range(TRIES):
            self.before()
            if self.client.set(self.name, self.owner, nx=True, px=self.ttl_ms):
                return True
            time.sleep(PAUSE)
        return False

    def release(self) -> bool:
        return bool(self.client.eval(RELEASE, 1, self.name, self.owner) == 1)


class ArticleRedis(Lock):
    def __init__(self, settings: Settings, runner: Runner) -> None:
        self.runner = runner
        if settings.backend == "redis-sentinel":
            self.client = Sentinel(settings.endpoints, socket_timeout=settings.ttl).master_for(settings.master, socket_timeout=settings.ttl)
        else:
            self.client = redis.Redis(*settings.endpoints[0], socket_timeout=settings.ttl)
        self.client.ping()

    def acquire(self, request: Request) -> Grant:
        grant = Grant(valid=lease(request.ttl))

        def before() -> None:
            grant.mark = self.runner.mark(request.key, request.grant)

        grant.handle = SimpleLock(self.client, request.key, int(request.ttl * 1000), before)
        if not grant.handle.acquire():
            raise Held
        return grant

    def release(self, lock: SimpleLock, request: Request) -> None:
        if not lock.release():
            raise NotHeld

    def close(self) -> None:
        self.client.close()


if __name__ == "__main__":
    serve(ArticleRedis)
