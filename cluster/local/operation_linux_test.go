package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/lockcheck/lockcheck/cluster"
)

// helperArg as the first argument makes this binary a helper process.
const helperArg = "-local-helper"

// patience is the deadline of everything that a test waits for. Only a failing
// test takes that long.
const patience = time.Minute

func helper(name string, args []string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	switch name {
	case "op":
		err = oneOperation(ctx, args[0], args[1:])
	case "refused":
		err = refused(ctx, args)
	case "get":
		err = get(args[0])
	default:
		if code, known := namespaceHelper(ctx, name, args); known {
			return code
		}
		err = fmt.Errorf("no helper %q", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// oneOperation does what a worker's client does first: it writes something to
// the backend, through the endpoints that it was given.
func oneOperation(ctx context.Context, backend string, endpoints []string) error {
	if v, ok := os.LookupEnv(stageEnv); ok {
		return fmt.Errorf("%s=%s leaked into a worker", stageEnv, v)
	}
	switch backend {
	case cluster.Redis, cluster.Redlock:
		for _, e := range endpoints {
			if err := setOnce(ctx, e); err != nil {
				return err
			}
		}
		return nil
	case cluster.Sentinel:
		v, err := askRedis(ctx, endpoints[0], "SENTINEL", "get-master-addr-by-name", cluster.MasterName)
		if err != nil {
			return err
		}
		a, _ := v.([]any)
		if len(a) != 2 {
			return fmt.Errorf("sentinel says %v", v)
		}
		return setOnce(ctx, fmt.Sprintf("%s:%s", a...))
	case cluster.ZooKeeper:
		return createNode(ctx, endpoints)
	case cluster.Etcd:
		return putOnce(ctx, endpoints)
	}
	return fmt.Errorf("no backend %q", backend)
}

func setOnce(ctx context.Context, addr string) error {
	_, err := askRedis(ctx, addr, "SET", "k", "v", "NX", "PX", "50")
	if errors.Is(err, errNil) {
		return nil
	}
	return err
}

func putOnce(ctx context.Context, endpoints []string) error {
	c, err := etcdClient(endpoints...)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Put(ctx, "k", "v")
	return err
}

// refused checks that no endpoint answers anything.
func refused(ctx context.Context, endpoints []string) error {
	for _, e := range endpoints {
		conn, err := dial(ctx, e)
		if err != nil {
			continue
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
			continue
		}
		if n, _ := conn.Read(make([]byte, 1)); n > 0 {
			return fmt.Errorf("%s answers", e)
		}
	}
	return nil
}

func get(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// eventually is the tests' only way to wait.
func eventually(what string, f func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return poll(ctx, what, func(context.Context) error { return f() })
}
