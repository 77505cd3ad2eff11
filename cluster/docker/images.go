package docker

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/lockcheck/lockcheck/cluster"
)

// LocalImage is what `make image` makes: every server, and toxiproxy.
const LocalImage = "lockcheck/servers:local"

// An imageOf is one kind of program: the variable that says which image has it,
// as for the files in compose/, and the official one.
type imageOf struct{ variable, official string }

// Official images, pinned; compose/ has the same.
var (
	redisImage     = imageOf{"LOCKCHECK_REDIS_IMAGE", "redis:7.4.2"}
	zookeeperImage = imageOf{"LOCKCHECK_ZOOKEEPER_IMAGE", "zookeeper:3.9.3"}
	etcdImage      = imageOf{"LOCKCHECK_ETCD_IMAGE", "gcr.io/etcd-development/etcd:v3.5.17"}
	proxyImage     = imageOf{"LOCKCHECK_TOXIPROXY_IMAGE", "ghcr.io/shopify/toxiproxy:2.12.0"}
)

// images are those of one run.
type images struct{ servers, proxy string }

func (i images) all() map[string]string {
	return map[string]string{"servers": i.servers, "toxiproxy": i.proxy}
}

// chooseImages takes the one that is given, else those of the environment, else
// the local one if it is there, else the official ones, which are pulled.
func (e *engine) chooseImages(ctx context.Context, given string) (images, error) {
	of := map[string]imageOf{
		cluster.Redis: redisImage, cluster.Sentinel: redisImage, cluster.Redlock: redisImage,
		cluster.ZooKeeper: zookeeperImage, cluster.Etcd: etcdImage,
	}[e.spec.Backend]
	if of.official == "" {
		return images{}, fmt.Errorf("no such backend %q", e.spec.Backend)
	}
	local := ""
	if _, err := e.cli.ImageInspect(ctx, LocalImage); err == nil {
		local = LocalImage
	}
	choose := func(of imageOf) string {
		for _, name := range []string{given, os.Getenv(of.variable), local} {
			if name != "" {
				return name
			}
		}
		return of.official
	}
	return images{servers: choose(of), proxy: choose(proxyImage)}, nil
}

// zookeeperClasses is where Debian's packages have ZooKeeper and a logger.
const zookeeperClasses = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"

// Programs implements local.Engine: each is on its image's path.
func (e *engine) Programs(string) map[string]string {
	return map[string]string{
		"redis-server": "redis-server", "redis-sentinel": "redis-sentinel",
		"java": "java", "zookeeper.jar": zookeeperClasses, "etcd": "etcd",
	}
}

// officialClasses puts the class path of the official image, which has its version
// in a directory's name, in the place of Debian's.
func officialClasses(args []string, workingDir string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if a == zookeeperClasses && strings.HasPrefix(workingDir, "/apache-zookeeper") {
			a = workingDir + "/lib/*"
		}
		out[i] = a
	}
	return out
}
