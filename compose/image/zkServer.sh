#!/bin/sh
# Starts ZooKeeper from the same variables as the official image's script does, so
# that one compose file serves both: zkServer.sh start-foreground.
set -eu
dir=${ZOO_DATA_DIR:-/data}
conf=${ZOO_CONF_DIR:-/conf}
mkdir -p "$dir" "$conf"
echo "${ZOO_MY_ID:-1}" >"$dir/myid"
{
	echo "dataDir=$dir"
	echo "tickTime=${ZOO_TICK_TIME:-2000}"
	echo "initLimit=${ZOO_INIT_LIMIT:-5}"
	echo "syncLimit=${ZOO_SYNC_LIMIT:-2}"
	echo "maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}"
	echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
	echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
	for line in ${ZOO_CFG_EXTRA:-}; do
		echo "$line"
	done
	for server in ${ZOO_SERVERS:-}; do
		echo "$server"
	done
} >"$conf/zoo.cfg"
exec java -Xmx96m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true \
	-Dzookeeper.jmx.log4j.disable=true -Dorg.slf4j.simpleLogger.showDateTime=true ${JVMFLAGS:-} \
	-cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
	org.apache.zookeeper.server.quorum.QuorumPeerMain "$conf/zoo.cfg"
