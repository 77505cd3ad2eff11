#!/bin/sh
# Honest locks under every fault that their backend knows, drawn at random: what
# is found has to be what theory lets happen there, else the round is printed and
# the exit code is 1. ROUNDS, SECONDS_EACH, PARALLEL, SEED and OUT change it; as
# it is, it plays an hour of faults.
set -eu
trap 'exit 130' INT TERM # the round that runs writes what it has
rounds=${ROUNDS:-5}
each=${SECONDS_EACH:-60}
parallel=${PARALLEL:-1}
seed=${SEED:-1}
out=${OUT:-store/soak-faults}
everywhere=pause+kill+server-pause+server-kill+client-cut+late+slow+jitter+bandwidth+slicer+reset+down+clock-jump+clock-drift+clock-strobe
between=$everywhere+partition+failover
surprises=0
part() { # backends, clients, faults, folder
	code=0
	./bin/lockcheck matrix --backends "$1" --clients "$2" --faults "$3" --duration "${each}s" \
		--parallel "$parallel" --seed "$seed" --out "$4" >"$4.txt" || code=$?
	n=$(sed -n 's/^\([0-9]*\) against theory$/\1/p' "$4.txt")
	if [ -z "$n" ]; then
		cat "$4.txt"
		echo "$4 did not come to its end: exit $code" >&2
		exit 255
	fi
	echo "round $round, $1: $n against theory, $4/matrix.html"
	surprises=$((surprises + n))
}
mkdir -p "$out"
round=1
while [ "$round" -le "$rounds" ]; do
	part redis,redlock default,redis/set-nx-incr "$everywhere" "$out/$round-alone"
	part redis-sentinel,zookeeper,etcd default "$between" "$out/$round-together"
	seed=$((seed + 1))
	round=$((round + 1))
done
cat "$out"/*.txt
echo "all rounds: $surprises against theory"
[ "$surprises" = 0 ]
