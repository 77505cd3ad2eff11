#!/bin/sh
# The same experiments on servers of this machine and in containers: the verdicts
# have to be the same. Needs a Docker engine and `make image`. SECONDS_EACH, SEED and
# OUT change it.
set -eu
cd "$(dirname "$0")/.."
out=${OUT:-store/providers}
each=${SECONDS_EACH:-15}
seed=${SEED:-1}
trap 'exit 130' INT TERM
mkdir -p "$out"
differ=0
# verdict PROVIDER ARGS...: what a command comes to in a word, or why it is refused.
verdict() {
	provider=$1
	shift
	log="$out/$name.$provider.txt"
	code=0
	./bin/lockcheck "$@" --provider "$provider" --seed "$seed" --out "$out/$name.$provider" >"$log" 2>&1 || code=$?
	case $code in
	0 | 1 | 2) sed -n 's/^verdict: //p' "$log" | paste -sd ' ' - ;;
	254) sed -n 's/^lockcheck: *//p' "$log" | tail -n 1 ;;
	*) echo "exit $code" ;;
	esac
}
same() { # fault, backend, command...
	fault=$1
	backend=$2
	shift 2
	name=$(echo "$fault-$backend" | tr ':' '-')
	here=$(verdict local "$@" --backend "$backend")
	there=$(verdict docker "$@" --backend "$backend")
	mark=same
	if [ "$here" != "$there" ]; then
		mark=DIFFER
		differ=$((differ + 1))
	fi
	printf '%-12s %-15s %-7s local: %s; docker: %s\n' "$fault" "$backend" "$mark" "$here" "$there"
}
story() { scenario=$1; shift; same "$scenario" "$1" scenario "$scenario"; }
faults() { same "$1" "$2" run --nemesis "$1" --duration "${each}s" --interval 2s; }

for backend in redis redis-sentinel redlock zookeeper etcd; do
	story gc-pause $backend
done
story failover redis-sentinel
faults failover zookeeper
faults failover etcd
faults failover redis
faults failover redlock
faults partition redis-sentinel
story minority-leader zookeeper
story minority-leader etcd
faults partition zookeeper
faults partition etcd
faults partition redis
faults partition redlock
story restart-empty redis
story restart-empty redlock
faults server-kill:lose redis-sentinel
faults server-kill zookeeper
faults server-kill etcd
[ "$differ" = 0 ]
