package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"
)

// service gives the events of an honest lock: workers that take it in turns,
// read, write and release, others that are refused, and the store's entries.
// About 128 bytes an event.
func service(events int) []byte {
	var b []byte
	at, index, seq, grant := int64(0), 0, uint64(0), uint64(0)
	put := func(o Op) {
		at += 137_913
		o.Index, o.Time = index, at
		index++
		b = append(AppendJSON(b, &o), '\n')
	}
	keys := []string{"orders/99999", "orders/10007", "invoices/424242", "customers/7"}
	values := map[string]int64{}
	for index < events {
		key := keys[int(grant)%len(keys)]
		p, other := Process(grant%20), Process((grant+7)%20)
		grant++
		g, token := Some(grant), Some(grant)
		put(Op{Process: p, Type: Invoke, F: Acquire, Key: key, TTL: Some(int64(time.Second))})
		put(Op{Process: p, Type: OK, F: Acquire, Key: key, Grant: g, Token: token, Valid: Some(int64(time.Second) - 12_000_000)})
		put(Op{Process: other, Type: Invoke, F: Acquire, Key: key, TTL: Some(int64(time.Second))})
		put(Op{Process: other, Type: Fail, F: Acquire, Key: key, Error: ErrHeld})
		for _, f := range []string{Read, Write} {
			v := values[key]
			if f == Write {
				v++
				values[key] = v
			}
			seq++
			value, _ := json.Marshal(v)
			o := Op{Process: p, Type: Invoke, F: f, Key: key, Grant: g, Token: token}
			if f == Write {
				o.Value = value
			}
			put(o)
			put(Op{Process: Store, Type: OK, F: f, Key: key, Grant: g, Token: token, Value: value, Seq: Some(seq)})
			put(Op{Process: p, Type: OK, F: f, Key: key, Grant: g, Token: token, Value: value})
		}
		put(Op{Process: p, Type: Invoke, F: Release, Key: key, Grant: g})
		put(Op{Process: p, Type: OK, F: Release, Key: key, Grant: g})
	}
	return b
}

// naive is the struct that one would write for encoding/json.
type naive struct {
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

func encodingJSON(b *testing.B, data []byte) (lines int, took time.Duration) {
	start := time.Now()
	in := bufio.NewScanner(bytes.NewReader(data))
	for in.Scan() {
		var n naive
		if err := json.Unmarshal(in.Bytes(), &n); err != nil {
			b.Fatal(err)
		}
		lines++
	}
	return lines, time.Since(start)
}

// BenchmarkReadJSONL reads the same lines with encoding/json and with the
// Reader, in turns; "of-json" is the Reader's share of the other's time.
func BenchmarkReadJSONL(b *testing.B) {
	data := service(100_000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var general, own time.Duration
	n := 0
	for b.Loop() {
		lines, took := encodingJSON(b, data)
		general += took
		start := time.Now()
		rd := NewReader(bytes.NewReader(data), "bench")
		var o Op
		for n = 0; ; n++ {
			if err := rd.Read(&o); err != nil {
				if !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
				break
			}
		}
		own += time.Since(start)
		if n != lines {
			b.Fatal(n, lines)
		}
	}
	b.ReportMetric(float64(own.Nanoseconds())/float64(b.N*n), "ns/event")
	b.ReportMetric(float64(general.Nanoseconds())/float64(b.N*n), "json-ns/event")
	b.ReportMetric(own.Seconds()/general.Seconds(), "of-json")
	b.ReportMetric(float64(len(data))/float64(n), "B/event")
}

// BenchmarkReadEDN reads the same events from EDN, and from both when packed.
func BenchmarkReadEDN(b *testing.B) {
	lines := service(100_000)
	edn := mustConvert(b, lines, JSONL, EDN)
	for _, c := range []struct {
		name string
		data []byte
	}{{"edn", edn}, {"edn.gz", gz(b, edn)}, {"edn.zst", zst(b, edn)}, {"jsonl.gz", gz(b, lines)}, {"jsonl.zst", zst(b, lines)}} {
		b.Run(c.name, func(b *testing.B) {
			var general, own time.Duration
			for b.Loop() {
				n, took := encodingJSON(b, lines)
				general += took
				start := time.Now()
				if got, _, err := openAll(c.data, "h"); err != nil || got != n {
					b.Fatal(got, err)
				}
				own += time.Since(start)
			}
			b.ReportMetric(own.Seconds()/general.Seconds(), "of-json")
		})
	}
}
