package local

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/lockcheck/lockcheck/cluster"
)

// BenchmarkStart measures from the call to the first operation, with five
// workers behind proxies.
func BenchmarkStart(b *testing.B) {
	ctx := context.Background()
	firstStart.Store(true) // what counts here is the call, not the command
	for _, backend := range cluster.Backends {
		b.Run(backend, func(b *testing.B) {
			need(b, backend)
			dir := b.TempDir()
			for i := range b.N {
				c, err := Lab(ctx, cluster.Spec{Backend: backend, Workers: 5, Proxy: true, Dir: filepath.Join(dir, strconv.Itoa(i))})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := c.Close(ctx); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
