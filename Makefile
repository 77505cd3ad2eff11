# lockcheck: `make demo` shows what it is for, `make test` proves it. Both bring
# what this machine lacks (see scripts/deps.sh).

GO ?= go
# cgo is not needed to run; -race needs it and asks for it by itself.
BUILD = CGO_ENABLED=0 $(GO) build

# make image makes one image with every server and toxiproxy, for engines that can
# pull none; make test-docker needs it.
.PHONY: demo verify matrix-small matrix-faults reports test test-docker providers image race vet lint fuzz bench page-size e2e soak build deps deps-test clean

demo: build
	./bin/lockcheck demo

build: deps bin/lockcheck bin/etcd bin/lockcheck-adapters

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

bin/toxiproxy-server: go.mod go.sum
	$(BUILD) -o $@ github.com/Shopify/toxiproxy/v2/cmd/server

image: bin/etcd bin/toxiproxy-server
	./compose/image/build.sh

# Needs a Docker engine; it makes the image if that is not there.
.PHONY: have-image
have-image:
	@docker image inspect lockcheck/servers:local >/dev/null 2>&1 || $(MAKE) image

test-docker: build bin/toxiproxy-server have-image
	$(GO) test -count 1 -timeout 15m -tags docker ./cluster/docker ./cluster/external
	./scripts/compose.sh

# The same experiments on this machine and in containers: the same verdicts.
providers: build have-image
	./scripts/providers.sh

# The libraries under test are no part of lockcheck: a module of their own.
.PHONY: bin/lockcheck-adapters
bin/lockcheck-adapters:
	cd adapters/go && $(BUILD) -o ../../bin/lockcheck-adapters .

# The locks in Java that others publish, as programs (adapters/java). The Python
# ones need no building.
JARS = /usr/share/java
.PHONY: adapters adapter-deps
adapters: bin/curator-adapter.jar

adapter-deps:
	@./scripts/deps.sh adapters

bin/curator-adapter.jar: $(wildcard adapters/java/*.java) | adapter-deps
	@mkdir -p bin/adapters-java
	javac -Xlint:all,-path,-serial -Werror --release 11 -d bin/adapters-java -cp $(JARS)/curator-recipes.jar:$(JARS)/curator-framework.jar:$(JARS)/curator-client.jar:$(JARS)/zookeeper.jar:$(JARS)/jackson-databind.jar:$(JARS)/jackson-core.jar adapters/java/*.java
	jar --create --file $@ -C bin/adapters-java .

# The demo's story with a lock in Python: redis-py's, which has no token, so that
# its data is damaged; and kazoo's, whose token lets the store refuse the late write.
.PHONY: demo-python
demo-python: build adapter-deps
	./bin/lockcheck scenario gc-pause --backend redis --client redis-py --store none || [ $$? = 1 ]
	./bin/lockcheck scenario gc-pause --backend zookeeper --client kazoo --store monotonic

# The locks that are broken on purpose, each beside its honest twin.
verify: build
	./bin/lockcheck verify

# Every backend, and on Redis the lock with tokens too, under four kinds of faults,
# without and with a fence: a table with theory beside it. Under fifteen minutes.
MATRIX ?= store/matrix-small
matrix-small: build
	rm -rf $(MATRIX)
	./bin/lockcheck matrix --clients default,redis/set-nx-incr --faults pause,partition,server-kill,clock-jump \
		--duration 15s --seed 1 --out $(MATRIX) --summary-file $(MATRIX)/table.md; test $$? -le 2

# The faults that matrix-small leaves out, with a store that fences: a quarter of an hour.
FAULTS_MATRIX ?= store/matrix-faults
matrix-faults: build
	rm -rf $(FAULTS_MATRIX)
	./bin/lockcheck matrix --clients default,redis/set-nx-incr --stores monotonic \
		--faults kill,server-pause,server-kill:lose,server-kill:lose@majority,failover,client-cut,late,slow,jitter,bandwidth,slicer,reset,down,clock-drift,clock-strobe \
		--duration 15s --seed 1 --out $(FAULTS_MATRIX) --summary-file $(FAULTS_MATRIX)/table.md; test $$? -le 2

# The public reports, each row as theory says.
reports: build
	for d in D1 D2 D3 D4 D5 D6 D7 D8 D9 D10 D11 D12; do ./bin/lockcheck scenario $$d || exit 1; done

test: deps-test build adapters vet
	$(GO) test -race -parallel 3 -timeout 15m ./... # the tests wait more than they compute
	$(GO) test -run TestDecisionAgreesWithSearch ./checker/linear # 200,000 histories; 10,000 with -race
	cd adapters/go && $(GO) vet . && $(GO) test -race -timeout 15m .

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
	$(GO) test -run '^$$' -bench . -benchmem -benchtime 3x ./history ./checker/... ./cmd/lockcheck
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 1h ./experiment ./cluster/local
	$(GO) test -run '^$$' -bench 'RedisSet|Launch|Now' -benchtime 300x ./nemesis/skew

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
	$(GO) test -race -count 1 -timeout 30m ./nemesis/skew -soak
	$(GO) test -race -count 1 -timeout 30m -run "TestForeign|TestStandings" ./experiment -long
	./scripts/soak.sh
	./scripts/soak-faults.sh
	./bin/lockcheck verify --seeds 5

clean:
	rm -rf bin store
