#!/bin/sh
# Honest locks without faults: not one anomaly may be found. Prints how many
# grants were judged. ROUNDS and SECONDS_EACH make it longer.
set -eu
rounds=${ROUNDS:-10}
each=${SECONDS_EACH:-20}
out=${OUT:-store/soak}
total=0
for backend in redis redis-sentinel redlock zookeeper etcd; do
	grants=0
	round=1
	while [ "$round" -le "$rounds" ]; do
		result=$(mktemp)
		code=0
		./bin/lockcheck run --backend "$backend" --duration "${each}s" --seed "$round" --out "$out" --json >"$result" 2>"$result.err" || code=$?
		if [ "$code" != 0 ]; then
			echo "$backend, round $round: exit $code"
			cat "$result.err" "$result"
			exit 1
		fi
		n=$(sed -n 's/.*"acquires_ok": \([0-9]*\).*/\1/p' "$result")
		rm -f "$result" "$result.err"
		grants=$((grants + n))
		round=$((round + 1))
	done
	echo "$backend: $rounds runs, $grants grants, no anomaly"
	total=$((total + grants))
done
echo "all: $total grants, no anomaly"
