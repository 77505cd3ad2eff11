"""The article's Redlock: 100 ms for a node, a quorum, validity = ttl - elapsed - (1 % + 2 ms), three tries 200 ms apart.

It returns the validity, and nobody looks at it. Its release swallows every
error and says nothing: what the nodes answered is counted here.
"""

import sys
import time
import uuid
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple

import redis

sys.path.insert(0, str(Path(__file__).parent.parent))
from lockworker import Doubt, Grant, Lock, NoQuorum, NotHeld, Request, Runner, Settings, serve  # noqa: E402

TRIES, PAUSE, NODE_TIMEOUT, DRIFT = 3, 0.2, 0.1, 0.01
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"


class Node(redis.Redis):
    """A client that remembers what its node said to the latest release: 1, 0, or None for nothing."""

    said: Any = None

    def eval(self, *args: Any) -> Any:
        self.said = None
        self.said = super().eval(*args)
        return self.said


class Redlock:
    """The lock as the article has it. before is called before each round."""

    def __init__(self, nodes: List[Node], ttl_ms: int, before: Callable[[], None]) -> None:
        self.nodes, self.ttl_ms, self.before = nodes, ttl_ms, before
        self.quorum = len(nodes) // 2 + 1

    def _set(self, node: Node, name: str, owner: str) -> bool:
        try:
            return bool(node.set(name, owner, nx=True, px=self.ttl_ms))
        except redis.RedisError:
            return False

    def acquire(self, name: str) -> Optional[Tuple[str, float]]:
        for _ in range(TRIES):
            self.before()
            owner, begun = str(uuid.uuid4()), time.monotonic()
            taken = [self._set(node, name, owner) for node in self.nodes]
            validity = self.ttl_ms - (time.monotonic() - begun) * 1000 - (self.ttl_ms * DRIFT + 2)
            if sum(taken) >= self.quorum and validity > 0:
                return owner, validity
            self.release(name, owner)
            time.sleep(PAUSE)
        return None

    def release(self, name: str, owner: str) -> None:
        for node in self.nodes:
            try:
                node.eval(RELEASE, 1, name, owner)
            except redis.RedisError:
                pass


class ArticleRedlock(Lock):
    def __init__(self, settings: Settings, runner: Runner) -> None:
        self.runner = runner
        self.nodes = [Node(host, port, socket_timeout=NODE_TIMEOUT) for host, port in settings.endpoints]

    def acquire(self, request: Request) -> Grant:
        # The article's validity counts from the end of the round; from its beginning it is this.
        grant = Grant(valid=int(request.ttl * 1e9 * (1 - DRIFT)) - 2_000_000)

        def before() -> None:
            grant.mark = self.runner.mark(request.key, request.grant)

        lock = Redlock(self.nodes, int(request.ttl * 1000), before)
        got = lock.acquire(request.key)
        if got is None:
            raise NoQuorum
        grant.handle = (lock, got[0])
        return grant

    def release(self, handle: Tuple[Redlock, str], request: Request) -> None:
        lock, owner = handle
        lock.release(request.key, owner)
        said = [node.said for node in self.nodes]
        if said.count(0) >= lock.quorum:
            raise NotHeld
        if said.count(1) < lock.quorum:
            raise Doubt("the nodes said %s" % said)

    def close(self) -> None:
        for node in self.nodes:
            node.close()


if __name__ == "__main__":
    serve(ArticleRedlock)
