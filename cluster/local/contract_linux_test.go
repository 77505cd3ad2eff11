package local_test

import (
	"context"
	"testing"

	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/contract"
	"github.com/lockcheck/lockcheck/cluster/local"
)

// What containers and existing clusters have to pass, the lab has to pass too.
func TestLabPassesTheContract(t *testing.T) {
	contract.Run(t, contract.Provider{
		Backends: cluster.Backends,
		Start:    func(ctx context.Context, s cluster.Spec) (cluster.Cluster, error) { return local.Lab(ctx, s) },
	})
}
