package skew

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// BenchmarkNow reads the clock in other programs, with a control and without.
func BenchmarkNow(b *testing.B) {
	for _, program := range []struct {
		name string
		path func(testing.TB) string
	}{{"C", dynamicC}, {"Go", staticGo}} {
		b.Run(program.name+"/plain", func(b *testing.B) {
			benchNow(b, talk(b, exec.Command(program.path(b)), (*exec.Cmd).Start))
		})
		b.Run(program.name+"/unmoved", func(b *testing.B) {
			benchNow(b, launched(b, control(b), Options{}, program.path(b)))
		})
		b.Run(program.name+"/moved", func(b *testing.B) {
			c := control(b)
			mustSet(b, c, Realtime, time.Hour)
			benchNow(b, launched(b, c, Options{}, program.path(b)))
		})
	}
}

func benchNow(b *testing.B, k *talker) {
	b.Helper()
	var ns float64
	b.ResetTimer()
	if _, err := fmt.Sscan(k.ask(fmt.Sprintf("bench %d", b.N))[0], &ns); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(ns, "ns/reading")
}

// BenchmarkLaunch compares with a start: of true, to its end.
func BenchmarkLaunch(b *testing.B) {
	for name, start := range map[string]func(*exec.Cmd) error{"plain": (*exec.Cmd).Start, "control": byControl(control(b))} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				cmd := exec.Command("/bin/true")
				if err := start(cmd); err != nil {
					b.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkControl is what a change and its evidence cost.
func BenchmarkControl(b *testing.B) {
	c := control(b)
	k := launched(b, c, Options{}, staticGo(b))
	b.Run("set", func(b *testing.B) {
		for i := range b.N {
			mustSet(b, c, Realtime, time.Duration(i))
		}
	})
	b.Run("read-back", func(b *testing.B) {
		for range b.N {
			if _, err := c.ReadBack(k.pid()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

const (
	pipeline = 16 // commands
	batch    = 500
)

// BenchmarkRedisSet writes to two servers in turn, of which one has its clock
// moved, and reports the ratio of their speeds: the median of pairs, so that what
// else the machine does falls on both.
func BenchmarkRedisSet(b *testing.B) {
	c := control(b)
	mustSet(b, c, Realtime, time.Hour)
	plain, _ := startRedis(b, (*exec.Cmd).Start)
	moved, _ := startRedis(b, byControl(c))
	write := func(r *redis.Client) time.Duration {
		begun := time.Now()
		for range batch {
			_, err := r.Pipelined(context.Background(), func(p redis.Pipeliner) error {
				for range pipeline {
					p.Set(context.Background(), "k", "v", time.Minute)
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(begun)
	}
	var ratios []float64
	b.ResetTimer()
	for i := range b.N {
		var x, y time.Duration
		if i%2 == 0 {
			x, y = write(plain), write(moved)
		} else {
			y, x = write(moved), write(plain)
		}
		ratios = append(ratios, x.Seconds()/y.Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "speed-ratio")
	b.ReportMetric(0, "ns/op")
}
