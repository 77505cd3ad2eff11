package redisdb

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/clients"
)

// A stub takes commands, counts the one of that name and answers it as told; it
// refuses go-redis's greeting, as an old server does.
func stub(t *testing.T, command, answer string) (addr string, seen *atomic.Int32) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	seen = &atomic.Int32{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, command, answer, seen)
		}
	}()
	return l.Addr().String(), seen
}

func serve(c net.Conn, command, answer string, seen *atomic.Int32) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		switch strings.ToUpper(lines.Text()) {
		case "HELLO":
			c.Write([]byte("-ERR unknown command\r\n"))
		case command:
			seen.Add(1)
			if answer == "" {
				return // the connection ends instead
			}
			c.Write([]byte(answer))
		}
	}
}

// Whatever a server answers, a command is sent once, and an error reply is
// proof.
func TestSentOnce(t *testing.T) {
	for answer, definite := range map[string]bool{
		"": false, "-ERR no\r\n": true, "-LOADING wait\r\n": true, "-READONLY no\r\n": true, "-MASTERDOWN\r\n": true,
		"-BUSY script\r\n": true, "-OOM full\r\n": true, "-TRYAGAIN later\r\n": true, "-NOREPLICAS few\r\n": true,
		"-CLUSTERDOWN\r\n": true, "-MOVED 1 127.0.0.1:1\r\n": true, "-ERR max number of clients reached\r\n": true,
		"nonsense\r\n": false,
	} {
		for _, command := range []string{"SET", "EVAL"} {
			addr, seen := stub(t, command, answer)
			db := Single(addr, Auth{})
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			var err error
			if command == "SET" {
				_, err = db.Set(ctx, "k", "o", time.Second)
			} else {
				_, err = db.Delete(ctx, "k", "o")
			}
			cancel()
			db.Close()
			if err == nil || clients.Definite(err) != definite || seen.Load() != 1 {
				t.Errorf("%s answered with %q: sent %d times, %v", command, answer, seen.Load(), err)
			}
		}
	}
}

func TestValidity(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second:                        988 * time.Millisecond,
		time.Second + 999*time.Microsecond: 988 * time.Millisecond,
		100 * time.Millisecond:             97 * time.Millisecond,
		10 * time.Second:                   9898 * time.Millisecond,
		2 * time.Millisecond:               0,
		0:                                  0,
		-time.Second:                       0,
	} {
		got, err := Validity(ttl)
		if got != want || (err != nil) != (want == 0) || err != nil && !clients.Definite(err) {
			t.Errorf("%v: %v, %v", ttl, got, err)
		}
	}
}

func TestKeysNeverMeet(t *testing.T) {
	names := []string{"", "x", "lock/x", "token/x", "/", "lockcheck/token/x"}
	seen := map[string]bool{}
	for _, n := range names {
		for _, k := range []string{LockKey(n), CounterKey(n)} {
			if seen[k] {
				t.Errorf("%q is taken twice", k)
			}
			seen[k] = true
		}
	}
}
