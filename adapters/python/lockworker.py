"""The worker protocol of lockcheck (docs/protocol.md), so that an adapter is its lock and nothing else.

An adapter is a subclass of Lock and a call of serve:

    class Mine(Lock):
        def __init__(self, settings, runner):
            self.client = mylib.connect(*settings.endpoints[settings.worker % len(settings.endpoints)])

        def acquire(self, request):
            handle = self.client.lock(request.key, ttl=request.ttl)
            if not handle.try_acquire():
                raise Held
            return Grant(handle, valid=lease(request.ttl))

        def release(self, handle, request):
            handle.release()

        def close(self):
            self.client.close()

    serve(Mine)

What a method raises decides what the history says. Held, NotHeld, NoQuorum and
NotDone are proofs that nothing happened; so is a refused connection, unless the
library tries again inside (then say `retries = True`). Every other exception
leaves it open: the operation is recorded as info, and the session is given up.

Durations are seconds here, as Python's libraries have them. The operations of
one session run in one thread, one after the other; a session that is given up
may leave a thread that hangs, which cannot speak any more. Nothing that is
printed reaches the protocol.
"""

import json
import os
import queue
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

PROTOCOL = 1
MARK_WITHIN = 5.0  # s to wait for the stamp of a mark when no operation says how long there is


class Held(Exception):
    """Somebody holds the lock, as the server said."""


class NotHeld(Exception):
    """The grant does not hold the lock, as the server said to a request that was sent once."""


class NoQuorum(Exception):
    """A round over several servers, given up by the client itself."""


class NotDone(Exception):
    """It did not happen and never will; the text says why."""


class Doubt(Exception):
    """It may have happened; the text says why that is not known."""


@dataclass
class Settings:
    """What init says (docs/protocol.md)."""

    worker: int
    process: int
    backend: str
    client: str
    endpoints: List[Tuple[str, int]]
    ttl: float  # s
    retry_delay: float  # s
    renew: bool
    seed: int
    master: str = ""
    options: Optional[Dict[str, str]] = None


@dataclass
class Request:
    """One command to the lock. Durations are seconds; wait is 0 for a single try."""

    key: str
    grant: int
    ttl: float
    wait: float
    timeout: float


@dataclass
class Grant:
    """What an acquire or a renewal brought.

    handle is whatever release, check and renew need. valid is the length of the
    lease in ns, counted from before the request (see lease); a grant that lives
    with a session says session instead. losses is what Runner.losses was when the
    library gave the lock: if the session is lost between that and the answer,
    the answer is info, for nobody may use what is lost on arrival.
    """

    handle: Any = None
    valid: Optional[int] = None
    session: bool = False
    token: Optional[int] = None
    mark: int = 0
    losses: Optional[int] = None


def lease(ttl: float) -> int:
    """Gives what a holder may rely on of a Redis key's time to live, in ns: 1 % and 2 ms less."""
    return int(ttl * 1e9 * 0.99) - 2_000_000


class Lock:
    """One worker's view of the locks. An adapter may have more methods:

    check(handle, request)         the library says that it still holds, or NotHeld
    renew(handle, request)         extends once; gives a Grant. Called in the background
                                   too, with a mark before it, if --renew or the
                                   client's own algorithm asks for it
    gone(handle)                   True once the servers say that it is lost for good:
                                   asked by a watcher all the time, over connections
                                   that are not the lock's
    """

    retries = False  # whether the library sends requests again by itself

    def __init__(self, settings: Settings, runner: "Runner") -> None:
        raise NotImplementedError

    def acquire(self, request: Request) -> Grant:
        """Takes the lock: one try if the library polls, else waiting for up to request.wait."""
        raise NotImplementedError

    def release(self, handle: Any, request: Request) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Ends the session. It may be called beside an operation that hangs."""


class Runner:
    """The runner, as one session of a lock may speak to it."""

    def __init__(self, wire: "_Wire") -> None:
        self._wire = wire
        self._early: Optional[List[Dict[str, Any]]] = []  # told before init was answered
        self._over = False
        self.deadline = 0.0  # of the operation under way, on the monotonic clock
        self.losses = 0  # how often the session was lost

    def mark(self, key: str, grant: int, within: Optional[float] = None) -> int:
        """Has the runner stamp "now" and gives the mark's number. Send the request only after that.

        A lease that is claimed with that number counts from the stamp.
        """
        if within is None:
            within = max(0.0, self.deadline - time.monotonic()) or MARK_WITHIN
        number, stamped = self._wire.new_mark()
        if not self.tell("mark", key=key, grant=grant, mark=number) or not stamped.wait(within):
            raise NotDone("the runner stamped no mark: nothing was sent")
        if self._over:
            raise NotDone("the session is over: nothing was sent")
        return number

    def tell(self, event: str, **fields: Any) -> bool:
        """Tells an event: renewed, renew-failed, suspended, lost or connected. False if nobody listens any more."""
        with self._wire.lock:
            if self._over:
                return False
            if event == "lost":
                self.losses += 1
            message = dict(event=event, **{k: v for k, v in fields.items() if v})
            if self._early is not None:
                self._early.append(message)
            else:
                self._wire.put(message)
            return True

    def log(self, text: str) -> None:
        """Puts a line into lockcheck's log of the run."""
        self._wire.send(log=text)

    def begun(self, answer: Dict[str, Any]) -> None:
        """Answers init; what was told meanwhile follows."""
        with self._wire.lock:
            self._wire.put(answer)
            if not self._over and answer["type"] == "ok":
                for message in self._early or []:
                    self._wire.put(message)
                self._early = None

    def end(self) -> None:
        with self._wire.lock:
            self._over = True


class _Wire:
    """Standard output, which nobody else may write to, and the marks that wait for their stamps."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self.lock = threading.RLock()
        self._mark = 0
        self._waiting: Dict[int, threading.Event] = {}

    def put(self, message: Dict[str, Any]) -> None:
        """Writes one line; the caller has the lock."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def send(self, **message: Any) -> None:
        with self.lock:
            self.put(message)

    def new_mark(self) -> Tuple[int, threading.Event]:
        with self.lock:
            self._mark += 1
            event = self._waiting[self._mark] = threading.Event()
            return self._mark, event

    def stamped(self, mark: int) -> None:
        with self.lock:
            event = self._waiting.pop(mark, None)
        if event:
            event.set()


class _Store:
    """The fenced store, by HTTP without redirects, proxies and second tries."""

    class _Plain(urllib.request.HTTPErrorProcessor):
        def http_response(self, request: Any, response: Any) -> Any:
            return response

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = urllib.request.build_opener(urllib.request.ProxyHandler({}), self._Plain)

    def do(self, command: Dict[str, Any]) -> Dict[str, Any]:
        body = {k: command[k] for k in ("key", "grant", "token", "value") if k in command}
        request = urllib.request.Request(
            self._url + "/" + command["op"], json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with self._http.open(request, timeout=command["timeout"] / 1e9) as response:
                status, reply = response.status, json.load(response)
        except urllib.error.URLError as e:
            return dict(type="fail" if isinstance(e.reason, ConnectionRefusedError) else "info", error=str(e))
        except Exception as e:  # a reply that broke off: nobody knows
            return dict(type="info", error=repr(e))
        if status == 200:
            return dict(type="ok", value=reply["value"])
        return dict(type="fail" if status in (400, 409) else "info", error=reply.get("error", str(status)))


@dataclass
class _Hold:
    """A grant that the worker has, with what goes on for it in the background."""

    handle: Any
    over: threading.Event


class _Session:
    """One life of a lock, from init to the next one."""

    def __init__(self, wire: _Wire, make: Callable[[Settings, Runner], Lock], command: Dict[str, Any]) -> None:
        self._make, self._init = make, command
        self.runner = Runner(wire)
        self._wire = wire
        self._commands: "queue.Queue[Dict[str, Any]]" = queue.Queue()
        self._lock: Optional[Lock] = None
        self._holds: Dict[int, _Hold] = {}
        self._settings = _settings(command["init"])
        self._store = _Store(command["init"]["store"])
        threading.Thread(target=self._work, daemon=True).start()

    def put(self, command: Dict[str, Any]) -> None:
        self._commands.put(command)

    def abandon(self) -> None:
        """Silences the session at once and closes it when that is possible."""
        self.runner.end()
        threading.Thread(target=self._forget, daemon=True).start()

    def _forget(self) -> None:
        for hold in list(self._holds.values()):
            hold.over.set()
        if self._lock is not None:
            try:
                self._lock.close()
            except Exception as e:  # nothing depends on it
                print("closing an old session:", repr(e), file=sys.stderr)

    def _work(self) -> None:
        answer: Dict[str, Any] = dict(id=self._init["id"], type="ok")
        try:
            lock = self._lock = self._make(self._settings, self.runner)
            answer["can"] = [a for a in ("renew", "check") if hasattr(lock, a)]
        except Exception as e:
            answer.update(type="fail", error=_text(e))
        self.runner.begun(answer)
        while True:
            command = self._commands.get()
            reply = self._do(command)
            losses = reply.pop("losses", None)
            with self._wire.lock:
                if losses is not None and losses != self.runner.losses:
                    reply = dict(type="info", error="the session was lost before the answer could be given")
                self._wire.put(dict(id=command["id"], **reply))
                if reply["type"] == "ok" and command["op"] == "acquire":
                    self._accompany(command, self._holds[command["grant"]], reply)

    def _do(self, command: Dict[str, Any]) -> Dict[str, Any]:
        if self._lock is None:
            return dict(type="fail", error="no session: init comes first")
        self.runner.deadline = time.monotonic() + command["timeout"] / 1e9
        try:
            if command["op"] in ("read", "write"):
                return self._store.do(command)
            if command["op"] == "close":
                self._forget_holds()
                self._lock.close()
                return dict(type="ok")
            return self._about_a_grant(command["op"], command)
        except Held:
            return dict(type="fail", error="held")
        except NotHeld:
            return dict(type="fail", error="not-held")
        except NoQuorum:
            return dict(type="fail", error="no-quorum")
        except NotDone as e:
            return dict(type="fail", error=str(e))
        except Exception as e:
            return dict(type="fail" if never_sent(e) and not self._lock.retries else "info", error=_text(e))

    def _about_a_grant(self, op: str, command: Dict[str, Any]) -> Dict[str, Any]:
        request = _request(command)
        if op == "acquire":
            grant = self._lock.acquire(request)
            self._holds[request.grant] = _Hold(grant.handle, threading.Event())
            return _promise(grant)
        method = getattr(self._lock, op, None)
        hold = self._holds.get(request.grant)
        if method is None or hold is None:
            raise NotDone("cannot " + op if method is None else "no such grant in this session")
        if op == "release":
            hold.over.set()
            del self._holds[request.grant]
        return _promise(method(hold.handle, request) or Grant())

    def _forget_holds(self) -> None:
        while self._holds:
            self._holds.popitem()[1].over.set()

    def _accompany(self, command: Dict[str, Any], hold: _Hold, reply: Dict[str, Any]) -> None:
        """Renews and watches a grant in threads of their own, until its release begins."""
        span = reply.get("valid", 0) / 1e9 or self._settings.ttl
        request = _request(command)
        request.timeout = span / 3
        for wanted, each, every in (
            (self._settings.renew and hasattr(self._lock, "renew"), self._renew, span / 3),
            (hasattr(self._lock, "gone"), self._look, span / 4),
        ):
            if wanted:
                threading.Thread(target=self._every, args=(every, hold, each, request), daemon=True).start()

    def _every(self, seconds: float, hold: _Hold, each: Callable[[_Hold, Request], bool], request: Request) -> None:
        while not hold.over.wait(seconds) and each(hold, request):
            pass

    def _renew(self, hold: _Hold, request: Request) -> bool:
        message: Dict[str, Any] = dict(key=request.key, grant=request.grant)
        goes_on = True
        try:
            mark = self.runner.mark(request.key, request.grant, request.timeout)
            promise = _promise(self._lock.renew(hold.handle, request))
            message.update(event="renewed", valid=promise.get("valid"), session=promise.get("session"), mark=mark)
        except Exception as e:
            goes_on = not isinstance(e, NotHeld)
            message.update(event="renew-failed", error=_text(e) if goes_on else "not-held")
        with self._wire.lock:  # so that nothing is told once the release has begun
            if not hold.over.is_set():
                self.runner.tell(**message)
        return goes_on

    def _look(self, hold: _Hold, request: Request) -> bool:
        try:
            gone = self._lock.gone(hold.handle)
        except Exception:  # who cannot be asked has not said that it is gone
            return True
        with self._wire.lock:
            if gone and not hold.over.is_set():
                self.runner.tell("lost", key=request.key, grant=request.grant, error="the servers have let it go")
        return not gone


def never_sent(e: BaseException) -> bool:
    """Says whether an exception proves, by the ones that it came of, that no connection could be made."""
    network = []
    seen: Optional[BaseException] = e
    while seen is not None:
        if isinstance(seen, OSError):
            network.append(seen)
        seen = seen.__cause__ or seen.__context__
    return bool(network) and all(isinstance(n, ConnectionRefusedError) for n in network)


def _text(e: BaseException) -> str:
    return str(e) if isinstance(e, (Doubt, NotDone)) else repr(e)


def _settings(init: Dict[str, Any]) -> Settings:
    endpoints = []
    for e in init["endpoints"]:
        host, _, port = e.rpartition(":")
        endpoints.append((host.strip("[]"), int(port)))
    return Settings(
        init["worker"], init["process"], init["backend"], init["client"], endpoints, init["ttl"] / 1e9,
        init["retry_delay"] / 1e9, init.get("renew", False), init["seed"], init.get("master", ""), init.get("options"),
    )  # fmt: skip


def _request(command: Dict[str, Any]) -> Request:
    seconds = {k: command.get(k, 0) / 1e9 for k in ("ttl", "wait", "timeout")}
    return Request(command["key"], command["grant"], **seconds)


def _promise(grant: Grant) -> Dict[str, Any]:
    if grant.valid is not None and grant.valid <= 0:
        raise Doubt("nothing was left of the lease when the answer came")
    answer: Dict[str, Any] = dict(type="ok")
    for name in ("valid", "session", "mark"):
        if getattr(grant, name):
            answer[name] = getattr(grant, name)
    for name in ("token", "losses"):  # 0 is one like any other
        if getattr(grant, name) is not None:
            answer[name] = getattr(grant, name)
    return answer


def serve(make: Callable[[Settings, Runner], Lock]) -> None:
    """Speaks the protocol on standard input and output until the input ends."""
    wire = _Wire()
    session: Optional[_Session] = None
    for line in sys.stdin:
        command = json.loads(line)
        if command["op"] == "ack":
            wire.stamped(command["mark"])
        elif command["op"] == "init":
            if session is not None:
                session.abandon()
                session = None
            if command["init"]["protocol"] != PROTOCOL:
                wire.send(id=command["id"], type="fail", error="this worker speaks protocol %d" % PROTOCOL)
            else:
                session = _Session(wire, make, command)
        elif session is None:
            wire.send(id=command["id"], type="fail", error="no session: init comes first")
        else:
            session.put(command)
    os._exit(0)  # libraries have threads that would keep us
