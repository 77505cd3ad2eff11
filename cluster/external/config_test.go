package external

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/cluster"
)

func TestOnlyTestAddresses(t *testing.T) {
	for addr, safe := range map[string]bool{
		"127.0.0.1:6379": true, "localhost:6379": true, "10.1.2.3:6379": true, "192.168.0.9:6379": true, "[::1]:6379": true,
		"8.8.8.8:6379": false, "redis.example.com:6379": false, "[2001:db8::1]:6379": false,
	} {
		for _, sure := range []bool{false, true} {
			c := &Config{Nodes: []Node{{Endpoint: addr}}, IsATestCluster: sure}
			err := c.Settle(cluster.Redis)
			if refused := errors.Is(err, ErrNotATestCluster); refused == (safe || sure) {
				t.Errorf("%s, sure %v: %v", addr, sure, err)
			}
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	const secret = "hunter2"
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Config{Nodes: []Node{{Endpoint: "127.0.0.1:1"}}}
	c.Access.User, c.Access.PasswordFile = "me", file
	a, err := c.access()
	if err != nil || a.Password != secret {
		t.Fatalf("%v: %v", a, err)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%v %+v %#v %s %+v", a, a, a, b, c); strings.Contains(s, secret) {
		t.Error(s)
	}
}
