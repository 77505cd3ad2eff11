#!/bin/sh
# Each file in compose/ is brought up, and lockcheck runs against it as against any
# cluster that exists: with faults on workers and on their links. The images are
# those that the variables name, or the local one that `make image` makes.
set -eu
cd "$(dirname "$0")/.."
out=${OUT:-store/compose}
if docker compose version >/dev/null 2>&1; then
	compose="docker compose"
elif command -v docker-compose >/dev/null 2>&1; then
	compose=docker-compose
else
	echo "compose.sh: neither docker-compose nor docker compose is here: apt-get install docker-compose" >&2
	exit 1
fi
if docker image inspect lockcheck/servers:local >/dev/null 2>&1; then
	for of in REDIS ZOOKEEPER ETCD TOXIPROXY; do
		eval ": \${LOCKCHECK_${of}_IMAGE:=lockcheck/servers:local}"
		export "LOCKCHECK_${of}_IMAGE"
	done
fi
up=
down() {
	[ -z "$up" ] || $compose -p lockcheck-compose -f "compose/$up.yml" down -v --timeout 1 >"$out/down.log" 2>&1 || cat "$out/down.log"
	up=
}
trap 'down' EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$out"
try() { # backend, client, faults
	up=$1
	if ! $compose -p lockcheck-compose -f "compose/$1.yml" up -d >"$out/up.log" 2>&1; then
		cat "$out/up.log" >&2
		$compose -p lockcheck-compose -f "compose/$1.yml" ps >&2
		exit 1
	fi
	./bin/lockcheck run --backend "$1" --client "$2" --provider external --external "compose/$1.lockcheck.yml" \
		--nemesis "$3" --duration 20s --interval 1s --seed 1 --out "$out/$1" >"$out/$1.txt" 2>&1 || {
		code=$?
		cat "$out/$1.txt"
		echo "compose.sh: $1: exit $code" >&2
		exit 1
	}
	echo "$1: $(sed -n 's/^ *faults in force: //p' "$out/$1.txt"): $(sed -n 's/^verdict: //p' "$out/$1.txt")"
	down
}
# Locks without tokens are not tried with late writes, which nothing can fence.
try redis redis/set-nx-incr kill,client-cut
try redis-sentinel redis/set-nx-incr kill
try redlock redlock/redlock kill
try zookeeper zookeeper/ephemeral kill,client-cut
try etcd etcd/lease kill,client-cut
left=$(docker ps -aq --filter label=com.docker.compose.project=lockcheck-compose | wc -l)
if [ "$left" != 0 ]; then
	echo "compose.sh: $left containers are left" >&2
	exit 1
fi
