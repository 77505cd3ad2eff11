# lockcheck: `make demo` shows what it is for, `make test` proves it. Both bring
# what this machine lacks (see scripts/deps.sh).

GO ?= go
# cgo is not needed to run; -race needs it and asks for it by itself.
BUILD = CGO_ENABLED=0 $(GO) build

.PHONY: demo verify test race vet lint fuzz bench e2e soak build deps deps-test page-size clean

demo: build
	./bin/lockcheck demo

build: deps bin/lockcheck bin/etcd

deps:
	@./scripts/deps.sh

# What the tests need beside the servers.
deps-test:
	@./scripts/deps.sh test

.PHONY: bin/lockcheck
bin/lockcheck:
	$(BUILD) -buildvcs=auto -o $@ ./cmd/lockcheck

# The etcd server has replace lines in its module, so that it needs one of its own.
bin/etcd: tools/go.mod tools/go.sum
	cd tools && $(BUILD) -o ../bin/etcd go.etcd.io/etcd/server/v3

# The locks that are broken on purpose, each beside its honest twin.
verify: build
	./bin/lockcheck verify

test: deps-test build vet
	$(GO) test -race -timeout 15m ./...

race: test

vet:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...

lint: vet
	cd tools/lint && $(GO) build -o ../../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	./bin/staticcheck ./...

# A minute for each codec; more with FUZZTIME=10m.
FUZZTIME ?= 1m
fuzz:
	for f in FuzzReader FuzzLine FuzzConvert FuzzEDN FuzzLog; do $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) ./history || exit 1; done

bench: build
	$(GO) test -run '^$$' -bench . -benchmem -benchtime 3x ./history ./checker/... ./cmd/lockcheck ./experiment

# Size and opening time of report.html for 1e3, 1e5 and 1e6 events.
page-size: deps-test
	LOCKCHECK_MILLION=1 $(GO) test -count 1 -v -run TestPageSize ./report

# The command line and every backend, without the race detector and once more.
e2e: build
	$(GO) test -count 1 -timeout 15m ./cmd/lockcheck ./experiment ./cluster/... ./clients/...

# Ten runs without faults in a row on each backend, and millions of histories
# decided twice.
SOAK_HISTORIES ?= 3000000
soak: build
	$(GO) test -count 1 -timeout 2h -run TestDecisionAgreesWithSearch ./checker/linear -soak $(SOAK_HISTORIES)
	./scripts/soak.sh

clean:
	rm -rf bin store
