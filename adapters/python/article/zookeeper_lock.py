"""The article's lock on kazoo's Lock, whose "fencing token" is the czxid of the lock's parent path.

It has no listener, so that its user is never told of a lost session, and it
turns every error into a line of its log.
"""

import logging
import sys
from pathlib import Path
from typing import Any

from kazoo.recipe.lock import Lock as Recipe

sys.path.insert(0, str(Path(__file__).parent.parent))
from kazoo_lock import Watched, released  # noqa: E402
from lockworker import Doubt, Grant, Lock, NotDone, Request, Runner, Settings, serve  # noqa: E402


class ZooKeeperLock:
    """The lock as the article has it, on a client that is handed to it."""

    def __init__(self, client: Any, path: str) -> None:
        self.client, self.path = client, path
        self.lock = Recipe(client, path)

    def acquire(self, timeout: float) -> bool:
        try:
            return bool(self.lock.acquire(timeout=timeout))
        except Exception as e:
            logging.error("acquire: %r", e)
            return False

    def release(self) -> None:
        try:
            self.lock.release()
        except Exception as e:
            logging.error("release: %r", e)

    def get_fencing_token(self) -> int:
        _, stat = self.client.get(self.path)
        return int(stat.czxid)


class ArticleZooKeeper(Lock):
    retries = True

    def __init__(self, settings: Settings, runner: Runner) -> None:
        self.runner = runner
        self.client = Watched(",".join("%s:%d" % e for e in settings.endpoints), timeout=settings.ttl)
        self.client.start()

    def acquire(self, request: Request) -> Grant:
        lock = ZooKeeperLock(self.client, "/article/" + request.key.replace("/", "%2F"))
        if not lock.acquire(request.wait or 0.01):
            recipe = lock.lock
            if recipe.node is None or any(c.startswith(recipe.prefix) for c in self.client.get_children(lock.path)):
                raise Doubt("a node may have stayed in the queue")
            raise NotDone("not within %g s" % request.wait)
        return Grant(lock, session=True, token=lock.get_fencing_token())

    def release(self, lock: ZooKeeperLock, request: Request) -> None:
        self.client.deletes = []
        lock.release()
        released(self.client.deletes)

    def close(self) -> None:
        connected = self.client.connected
        self.client.stop()
        self.client.close()
        if not connected:
            raise Doubt("not connected; the session ends with its time-out")


if __name__ == "__main__":
    serve(ArticleZooKeeper)
