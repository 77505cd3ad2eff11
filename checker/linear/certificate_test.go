package linear

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestVerifyRefuses damages certificates: what Verify accepts must be an order of
// all operations by the rules, or its word is worth nothing.
func TestVerifyRefuses(t *testing.T) {
	refused, tried := 0, 0
	for i := range histories / 20 {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		ops, grants := legalHistory(r, 3+r.IntN(6), randomStyle(r))
		steps := decide(listOf(ops), grants, testLimits(), true).certificate
		if len(steps) < 2 {
			continue
		}
		k := r.IntN(len(steps))
		s := steps[k]
		bad := slices.Clone(steps)
		certain := true
		switch r.IntN(5) {
		case 0: // a definite operation never happens
			bad = slices.Delete(bad, k, k+1)
			certain = s.Op != Expiry && ops[s.Op].Outcome != Info
		case 1: // it happens twice
			bad = slices.Insert(bad, k, s)
			certain = true
		case 2: // too early
			if s.Op == Expiry {
				continue
			}
			bad[k].At = ops[s.Op].Call - 1
		case 3: // too late
			if s.Op == Expiry || ops[s.Op].Return == Forever {
				continue
			}
			bad[k].At = ops[s.Op].Return + 1
		case 4: // an operation that is not there
			bad[k].Op = len(ops)
		}
		tried++
		switch err := Verify(ops, bad); {
		case err != nil:
			refused++
		case certain:
			t.Fatalf("history %d: accepted %+v\nfor %+v", i, bad, ops)
		}
	}
	t.Logf("%d of %d refused", refused, tried)
}

// TestVerifyKnowsTheModel holds each rule of the sequential model against a
// certificate that breaks it.
func TestVerifyKnowsTheModel(t *testing.T) {
	grant := func(g int32, token uint64, deadline int64) Op {
		return Op{Kind: Acquire, Outcome: OK, Call: 0, Return: 100, Grant: g, Token: token, HasToken: true, Deadline: deadline}
	}
	on := func(kind Kind, outcome Outcome, g int32) Op {
		return Op{Kind: kind, Outcome: outcome, Call: 0, Return: 100, Grant: g, Deadline: 50}
	}
	do := func(at int64, op int) Step { return Step{Op: op, At: at} }
	for name, c := range map[string]struct {
		ops   []Op
		steps []Step
	}{
		"a held lock is granted":           {[]Op{grant(0, 1, 10), grant(1, 2, 10)}, []Step{do(1, 0), do(2, 1)}},
		"a token goes back":                {[]Op{grant(0, 2, 10), grant(1, 1, 10)}, []Step{do(1, 0), {Expiry, 0, 10}, do(11, 1)}},
		"a token comes twice, and is zero": {[]Op{grant(0, 0, 10), grant(1, 0, 10)}, []Step{do(1, 0), {Expiry, 0, 10}, do(11, 1)}},
		"a lease ends early":               {[]Op{grant(0, 1, 10)}, []Step{do(1, 0), {Expiry, 0, 9}}},
		"a renewed lease ends early":       {[]Op{grant(0, 1, 10), on(Renew, OK, 0)}, []Step{do(1, 0), do(2, 1), {Expiry, 0, 49}}},
		"another's lease ends":             {[]Op{grant(0, 1, 10)}, []Step{do(1, 0), {Expiry, 1, 20}}},
		"held, and it is free":             {[]Op{on(Acquire, Denied, NoGrant)}, []Step{do(1, 0)}},
		"not-held, and it holds":           {[]Op{grant(0, 1, 10), on(Release, Denied, 0)}, []Step{do(1, 0), do(2, 1)}},
		"released, and it does not hold":   {[]Op{on(Release, OK, 0)}, []Step{do(1, 0)}},
		"renewed, and it does not hold":    {[]Op{on(Renew, OK, 0)}, []Step{do(1, 0)}},
		"time runs backwards":              {[]Op{grant(0, 1, 10), on(Release, OK, 0)}, []Step{do(2, 0), do(1, 1)}},
	} {
		if err := Verify(c.ops, c.steps); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
