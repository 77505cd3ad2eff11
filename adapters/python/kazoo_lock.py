"""kazoo's Lock (https://kazoo.readthedocs.io/en/latest/api/recipe/lock.html), which waits in its queue.

kazoo sends requests again by itself, and its release takes "no such node" for
success. What it says of the session (suspended, lost, connected) is passed on.
kazoo offers no token; the czxid of the contender's own node is taken for one.
A grant is proved, and later renewed, by a write to that node, which needs a
quorum and kazoo itself does not do.
"""

from typing import Any, List

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import LockTimeout, NoNodeError

from lockworker import Doubt, Grant, Held, Lock, NotDone, NotHeld, Request, Runner, Settings, serve


class Watched(KazooClient):
    """A client that remembers how its deletes ended, whatever the lock makes of it."""

    deletes: List[str] = []

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        self.deletes = self.deletes + ["?"]
        try:
            result = super().delete(*args, **kwargs)
        except Exception as e:
            self.deletes = self.deletes[:-1] + [type(e).__name__]
            raise
        self.deletes = self.deletes[:-1] + ["deleted"]
        return result


def released(deletes: List[str]) -> None:
    """Says what the deletes of one release prove: it went well if the last one did."""
    if deletes == ["NoNodeError"]:
        raise NotHeld
    if not deletes or deletes[-1] != "deleted":
        raise Doubt("deletes ended as: %s" % ", ".join(deletes))


class KazooLock(Lock):
    retries = True
    root = "/kazoo"

    def __init__(self, settings: Settings, runner: Runner) -> None:
        self.runner = runner
        self.client = Watched(",".join("%s:%d" % e for e in settings.endpoints), timeout=settings.ttl)
        self.client.add_listener(self.listen)
        self.client.start()

    def listen(self, state: str) -> None:
        names = {KazooState.SUSPENDED: "suspended", KazooState.LOST: "lost", KazooState.CONNECTED: "connected"}
        self.runner.tell(names[state])

    def acquire(self, request: Request) -> Grant:
        lock = self.client.Lock("%s/%s" % (self.root, request.key.replace("/", "%2F")))
        try:
            got = lock.acquire(timeout=request.wait) if request.wait else lock.acquire(blocking=False)
        except LockTimeout:
            self.left(lock)
            raise Held
        losses = self.runner.losses
        if not got:
            self.left(lock)
            raise NotDone("kazoo gave up") if request.wait else Held
        mark = self.runner.mark(request.key, request.grant)
        try:
            grant = self.renew(lock, request)
        except NotHeld:  # kazoo says that it has the lock, and its node is gone
            self.runner.log("kazoo granted a lock whose node is gone")
            return Grant(lock, session=True, losses=losses)
        grant.handle, grant.mark, grant.losses = lock, mark, losses
        return grant

    def left(self, lock: Any) -> None:
        """Fails unless it is certain that the lock has left the queue: kazoo swallows errors of its cleaning up."""
        if lock.node is None or any(c.startswith(lock.prefix) for c in self.client.get_children(lock.path)):
            raise Doubt("a node may have stayed in the queue")

    def renew(self, lock: Any, request: Request) -> Grant:
        try:
            stat = self.client.set("%s/%s" % (lock.path, lock.node), lock.data)
        except NoNodeError as e:
            raise NotHeld from e
        return Grant(session=True, token=stat.czxid)

    def check(self, lock: Any, request: Request) -> None:
        if not lock.is_acquired:
            raise NotDone("kazoo says that it does not hold the lock")

    def release(self, lock: Any, request: Request) -> None:
        self.client.deletes = []
        lock.release()
        released(self.client.deletes)

    def close(self) -> None:
        connected = self.client.connected
        self.client.remove_listener(self.listen)  # which takes the end that we ask for as a loss
        self.client.stop()
        self.client.close()
        if not connected:
            raise Doubt("not connected; the session ends with its time-out")


if __name__ == "__main__":
    serve(KazooLock)
