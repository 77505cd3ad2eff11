"""A lock that does what the key says, to try lockworker with."""

import sys
import time

sys.path.insert(0, sys.argv[1])
from lockworker import Grant, Held, Lock, NotHeld, serve  # noqa: E402


class Scripted(Lock):
    def __init__(self, settings, runner):
        self.runner = runner
        self.name = settings.process
        runner.tell("connected")
        print("this goes to standard error")

    def acquire(self, request):
        if request.key == "held":
            raise Held
        if request.key == "doubt":
            raise OSError("broken off")
        if request.key == "refused":
            raise ConnectionRefusedError("nobody there")
        if request.key == "hang":
            time.sleep(0.5)
            self.runner.tell("lost")
        if request.key == "lost-on-arrival":
            losses = self.runner.losses
            self.runner.tell("lost")
            return Grant("h", session=True, losses=losses)
        if request.key == "over":
            return Grant("h", valid=0)
        return Grant("h", valid=5, token=0, mark=self.runner.mark(request.key, request.grant))

    def release(self, handle, request):
        raise NotHeld

    def close(self):
        pass


serve(Scripted)
