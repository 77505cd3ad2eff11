#!/bin/sh
# Installs what this machine lacks of the servers under test, and with the
# argument "test" of what the tests need beside them: Debian packages through
# apt-get, with sudo if not root. Prints what it does; does nothing when everything
# is there.
set -eu

need=""
have() { command -v "$1" >/dev/null 2>&1; }
have redis-server || need="$need redis-server"
have redis-sentinel || need="$need redis-sentinel"
have java || need="$need default-jre-headless"
[ -e /usr/share/java/zookeeper.jar ] || need="$need libzookeeper-java"
# The tests look at the pages in a browser.
if [ "${1:-}" = test ]; then
	have chromium || need="$need chromium"
fi

if ! have go; then
	echo "Go is missing: install Go 1.26 or later (https://go.dev/doc/install) and put it on the PATH" >&2
	exit 1
fi
[ -n "$need" ] || exit 0

if ! have apt-get; then
	echo "missing:$need; this is no Debian, so install what provides redis-server, redis-sentinel, java and ZooKeeper by hand" >&2
	exit 1
fi
sudo=""
if [ "$(id -u)" != 0 ]; then
	if ! have sudo; then
		echo "missing:$need; run as root: apt-get install$need" >&2
		exit 1
	fi
	sudo=sudo
fi
echo "installing:$need"
# The lab starts servers of its own, so the packages' services need not start.
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends $need
