//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// plainEvent is the struct that one would write for encoding/json.
type plainEvent struct {
	Index   int             `json:"index"`
	Time    int64           `json:"time"`
	Process any             `json:"process"`
	Type    string          `json:"type"`
	F       string          `json:"f"`
	Key     string          `json:"key"`
	Grant   uint64          `json:"grant"`
	Token   uint64          `json:"token"`
	TTL     int64           `json:"ttl"`
	Valid   int64           `json:"valid"`
	From    int64           `json:"from"`
	Session bool            `json:"session"`
	Value   json.RawMessage `json:"value"`
	Seq     uint64          `json:"seq"`
	Error   string          `json:"error"`
}

func parseOnly(b *testing.B, data []byte) (lines int, took time.Duration) {
	start := time.Now()
	in := bufio.NewScanner(bytes.NewReader(data))
	for in.Scan() {
		var e plainEvent
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			b.Fatal(err)
		}
		lines++
	}
	return lines, time.Since(start)
}

// BenchmarkCheckFile judges a million events by all seven properties, and in the
// same run lets encoding/json only parse them: "of-json" is the share of that
// time, and "of-json-cpu" the share of the processors' time, which says more on
// a machine that has other things to do. "peak-MB" is the heap at its largest.
func BenchmarkCheckFile(b *testing.B) {
	data := service(1_000_000)
	var z bytes.Buffer
	gw := gzip.NewWriter(&z)
	gw.Write(data)
	gw.Close()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
	}{{"jsonl", data}, {"gzip", z.Bytes()}, {"zstd", enc.EncodeAll(data, nil)}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			var general, own, generalCPU, ownCPU time.Duration
			var peak uint64
			lines := 0
			for b.Loop() {
				var took time.Duration
				cpu := spentCPU()
				lines, took = parseOnly(b, data)
				general += took
				generalCPU += spentCPU() - cpu
				runtime.GC()
				stop := watchHeap(&peak)
				start := time.Now()
				cpu = spentCPU()
				r, code := judgeFile(b, c.data)
				own += time.Since(start)
				ownCPU += spentCPU() - cpu
				stop()
				if code != exitValid {
					b.Fatal(r.Error, r.Results)
				}
			}
			n := float64(b.N * lines)
			b.ReportMetric(float64(own.Nanoseconds())/n, "ns/event")
			b.ReportMetric(float64(general.Nanoseconds())/n, "json-ns/event")
			b.ReportMetric(own.Seconds()/general.Seconds(), "of-json")
			b.ReportMetric(ownCPU.Seconds()/generalCPU.Seconds(), "of-json-cpu")
			b.ReportMetric(float64(peak-uint64(len(data)))/(1<<20), "peak-MB")
		})
	}
}

// BenchmarkCheckGrowth judges a file of so many events, and one of ten times as
// many: "times-10" is the time for these by the time for the others.
func BenchmarkCheckGrowth(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			few, many := service(n), service(10*n)
			var short, long time.Duration
			var shortPeak, longPeak uint64
			for b.Loop() {
				short += timeCheck(b, few, &shortPeak)
				long += timeCheck(b, many, &longPeak)
			}
			b.ReportMetric(long.Seconds()/short.Seconds(), "times-10")
			b.ReportMetric(float64(longPeak-uint64(len(few)+len(many)))/float64(10*n), "peak-B/event")
		})
	}
}

func timeCheck(b *testing.B, data []byte, peak *uint64) time.Duration {
	runtime.GC()
	stop := watchHeap(peak)
	defer stop()
	start := time.Now()
	if r, code := judgeFile(b, data); code != exitValid {
		b.Fatal(r.Error, r.Results)
	}
	return time.Since(start)
}

// watchHeap keeps the largest heap that it sees until it is stopped. It asks the
// runtime's metrics, since runtime.ReadMemStats stops the world each time.
func watchHeap(peak *uint64) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for {
			metrics.Read(sample)
			*peak = max(*peak, sample[0].Value.Uint64())
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() { close(done); <-ended }
}

// spentCPU is the processor time of this process so far.
func spentCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
