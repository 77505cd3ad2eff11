#!/bin/sh
# Makes one local image with every server that lockcheck tests, and toxiproxy, for
# machines where no image can be pulled: Debian packages by debootstrap, and the
# programs in bin/ that were built from Go modules. It answers to the same commands
# and variables as the official images do. The package mirror is the one that this
# machine's apt is configured for.
set -eu
cd "$(dirname "$0")/../.."
image=${LOCKCHECK_IMAGE:-lockcheck/servers:local}

if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "compose/image: debootstrap needs root; run as root: make image" >&2
		exit 1
	fi
	exec sudo env LOCKCHECK_IMAGE="$image" "$0"
fi
if ! command -v debootstrap >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; then
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap
fi
for need in docker debootstrap tar; do
	if ! command -v $need >/dev/null 2>&1; then
		echo "compose/image: $need is missing: apt-get install docker.io debootstrap tar" >&2
		exit 1
	fi
done
if ! docker version >/dev/null 2>&1; then
	echo "compose/image: no Docker engine answers: start one, or set DOCKER_HOST" >&2
	exit 1
fi
for need in etcd toxiproxy-server; do
	if [ ! -x bin/$need ]; then
		echo "compose/image: bin/$need is missing: make bin/$need" >&2
		exit 1
	fi
done

# One "label mirror suite component" a line, from apt's own configuration.
indexes() {
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)' 'Created-By: Packages' |
		sed -n 's/^Debian|//p' | grep '|main$'
}
mirror=$(indexes | sed -n 's/^Debian|\([^|]*\)|\([^|]*\)|main$/\1 \2/p' | head -n 1)
if [ -z "$mirror" ]; then
	echo "compose/image: apt knows no Debian mirror: this needs Debian, with apt-get update done" >&2
	exit 1
fi
suite=${mirror#* }
mirror=${mirror% *}
# A proxy that apt was told of is for debootstrap too.
eval "$(apt-config shell proxy Acquire::http::Proxy)"
if [ -n "${proxy:-}" ]; then
	export http_proxy="$proxy"
fi

root=$(mktemp -d)
trap 'umount -q "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT INT TERM HUP
debootstrap --variant=minbase "$suite" "$root" "$mirror"
indexes | while IFS='|' read -r _ uri release component; do
	echo "deb $uri $release $component"
done >"$root/etc/apt/sources.list"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# The packages' services are not to be started.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
# Java's package needs /proc.
mount -t proc proc "$root/proc"
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive http_proxy="${http_proxy:-}" "$@"; }
inside apt-get update -qq
inside apt-get install -y -qq --no-install-recommends redis-server redis-sentinel etcd-client libzookeeper-java libslf4j-java default-jre-headless
# Nothing of this is needed to run servers.
inside apt-get clean
umount "$root/proc"
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/* "$root"/usr/share/doc/* "$root"/usr/share/man/* \
	"$root"/usr/share/locale/* "$root"/var/log/*.log "$root/etc/resolv.conf" "$root/etc/apt/sources.list"
cp bin/etcd bin/toxiproxy-server compose/image/zkServer.sh "$root/usr/local/bin/"
ln -s usr/local/bin/toxiproxy-server "$root/toxiproxy"
tar -C "$root" -c . | docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
	--change 'CMD ["sh"]' --message 'servers under test of lockcheck' - "$image"
docker image inspect --format "$image: {{.Size}} bytes" "$image"
