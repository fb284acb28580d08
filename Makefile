# Everything a person or CI runs. `make help` explains each target.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Pinned tools, built from the Go module proxy into .cache/bin.
TOOLS     := $(CURDIR)/.cache/bin
BUF       := github.com/bufbuild/buf/cmd/buf@v1.75.0
GOLANGCI  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOFUMPT   := mvdan.cc/gofumpt@v0.12.0
GENGO     := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GENGRPC   := google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -X github.com/weir-stream/weir/internal/version.Version=$(VERSION)
DURATION ?= 10m
SEED     ?= 0
# Rounds of stops and of rolling restarts in the robustness suite.
STOPS    ?= 20
ROLLS    ?= 3
# Rounds of 2 → 4 → 3 with kills in the robustness suite; empty leaves rescales out.
RESCALES ?= 10
# Numbers of keys with which a killed worker is restored in the robustness suite; empty leaves it out.
RESTORES ?= 1000000
# Ways besides kill -9 and the default client in which the crash table is walked.
CRASH    ?= freeze error confluent
# How long the robustness suite watches the number of clients and transactional ids; empty leaves it out.
WATCH    ?= 15m
# How long the robustness suite looks at what clean-up leaves while processes die and a file cannot be deleted; empty leaves it out.
CLEANUP  ?= 10m
# How long the robustness suite has one key with nine tenths of twice what can be worked off; draining takes as long again. Empty leaves it out.
HOTKEY   ?= 5m
# How many idle jobs the robustness suite starts to see what they cost; empty leaves it out.
IDLE     ?= 100
# How often the robustness suite moves the coordinators of transactions, every 10 s; empty leaves it out.
MOVES    ?= 18
# Tests of all packages: without debug information, which takes a third of the time to link, and without vet, which lint runs.
TESTFLAGS := -shuffle=on -vet=off -ldflags=-w
# Packages whose tests start processes and brokers; they run one after the other, after the rest.
E2E      := ./test/...

.PHONY: help build demo kafka test test-unit test-race test-explore test-e2e test-robustness mutations fuzz bench bench-growth bench-latency bench-control bench-state lint fix generate verify check-go check-test-tools

help: ## list the targets
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sort | awk -F ':.*?## ' '{printf "  %-17s %s\n", $$1, $$2}'

build: check-go ## build bin/weir (no C compiler needed)
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/weir ./cmd/weir

demo: build ## run the demo: a cluster of processes, kills, and an account of lost and duplicated results
	bin/weir demo $(DEMO_ARGS)

kafka: check-go ## run a real Kafka on 127.0.0.1:9092 for trying jobs, until Ctrl-C (Java 17 and Maven needed)
	go run ./internal/kafkatest/trial $(KAFKA_ARGS)

test: check-test-tools test-race test-explore test-e2e ## all tests with the race detector, end to end on a real Kafka included

test-unit: check-test-tools ## unit and component tests, without the race detector
	go test $(TESTFLAGS) $$(go list ./... | grep -v '/weir/test/')

test-race: check-test-tools ## unit and component tests with the race detector
	go test -race $(TESTFLAGS) -timeout 25m $$(go list ./... | grep -v '/weir/test/')

test-explore: check-test-tools ## every order of messages, failures and leader changes up to a bound; without the race detector, which would make it slow
	go test -count=1 -timeout 2h -run 'TestExplor' ./jobmanager/driver

test-e2e: check-test-tools ## tests with real processes and a real Kafka
	go test -race $(TESTFLAGS) -p 1 -parallel 3 -timeout 45m $(E2E)

test-robustness: check-test-tools ## random faults against a model: make test-robustness DURATION=10m SEED=7
	WEIR_ROBUSTNESS_DURATION=$(DURATION) WEIR_ROBUSTNESS_SEED=$(SEED) go test -count=1 -timeout 24h -run TestRobustness -v ./test/robustness
	$(if $(filter freeze,$(CRASH)),WEIR_CRASH_VERB=freeze go test -count=1 -timeout 30m -run 'TestCrashTable$$' ./test/e2e)
	$(if $(filter error,$(CRASH)),WEIR_CRASH_VERB=error go test -count=1 -timeout 20m -run 'TestCrashTable$$' ./test/e2e)
	$(if $(filter confluent,$(CRASH)),WEIR_CRASH_CLIENT=confluent go test -count=1 -timeout 30m -run 'TestCrashTable$$' ./test/e2e)
	WEIR_ROUNDS=$(STOPS) go test -count=1 -timeout 20m -run TestStopsInTheMiddleOfCheckpoints ./test/e2e
	WEIR_ROUNDS=$(ROLLS) go test -count=1 -timeout 20m -run TestRollingRestarts ./test/e2e
	$(if $(RESCALES),WEIR_RESCALE_ROUNDS=$(RESCALES) go test -count=1 -timeout 30m -run TestRescaleUnderLoadWithKills ./test/e2e)
	$(if $(RESCALES),WEIR_RESCALE_KEYS=1000000 go test -count=1 -timeout 10m -run TestRescaleOfManyKeys -v ./test/e2e)
	$(if $(HOTKEY),WEIR_HOT_KEY_DURATION=$(HOTKEY) go test -count=1 -timeout 1h -run TestCheckpointsGoOnWithOneHotKey -v ./test/e2e)
	$(if $(RESTORES),for n in $(RESTORES); do WEIR_RESTORE_KEYS=$$n go test -count=1 -timeout 30m -run TestRestoreDoesNotDependOnTheSizeOfState -v ./test/e2e || exit 1; done)
	$(if $(WATCH),WEIR_IDS_DURATION=$(WATCH) go test -count=1 -timeout 2h -run TestClientsAndIDsStayFew ./test/e2e)
	$(if $(CLEANUP),WEIR_CLEANUP_DURATION=$(CLEANUP) go test -count=1 -timeout 1h -run TestCleanUpGoesAroundWhatItCannotDelete -v ./test/e2e)
	$(if $(IDLE),WEIR_IDLE_JOBS=$(IDLE) go test -count=1 -timeout 20m -run TestIdleJobsCostLittle -v ./test/e2e)
	$(if $(MOVES),WEIR_COORDINATOR_MOVES=$(MOVES) WEIR_COORDINATOR_PAUSE=10s go test -count=1 -timeout 20m -run TestCoordinatorsMove ./test/e2e)

mutations: check-test-tools ## break the commit protocol in many places, and show that a test notices each
	go run ./test/robustness/mutations $(MUTATIONS_ARGS)

fuzz: check-go ## run each fuzz test for FUZZTIME (default 20s)
	@for p in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -hoE '^func (Fuzz[A-Za-z0-9_]*)' $$p/*_test.go | awk '{print $$2}'); do \
	    echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-20s} $$p; done; done

bench: check-test-tools ## measure against a hand-written program, and peers if asked for, see bench/README.md: make bench QUICK=1 PEERS=flink,kafka-streams OUT=figures.csv
	go run ./bench $(if $(QUICK),-quick) $(if $(OUT),-out $(OUT)) $(if $(PEERS),-peers $(PEERS)) $(if $(WORKLOADS),-workloads $(WORKLOADS)) \
		$(if $(RECORDS),-records $(RECORDS)) $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(INTERVAL),-interval $(INTERVAL))

bench-growth: check-test-tools ## measure how throughput changes with size and number of everything, and draw it: make bench-growth QUICK=1 OUT=growth.csv CURVES=keys,jobs
	go run ./bench -growth $(if $(QUICK),-quick,-pictures docs/growth) $(if $(PICTURES),-pictures $(PICTURES)) -out $(or $(OUT),$(if $(QUICK),growth.csv,docs/growth/growth.csv)) \
		$(if $(CURVES),-workloads $(CURVES)) $(if $(RECORDS),-records $(RECORDS))

bench-latency: check-test-tools ## measure how long records take until they are visible, and the first one of a new job: make bench-latency QUICK=1 OUT=figures.csv
	go run ./bench -latency $(if $(QUICK),-quick) $(if $(OUT),-out $(OUT))
	WEIR_FIRST_RECORD_ROUNDS=20 go test -count=1 -run TestFirstRecordComesSoonOnAWarmCluster -v ./test/e2e

bench-control: check-go ## measure the control plane with simulated TaskManagers: make bench-control CONTROL_ARGS="-taskmanagers 100 -jobs 50"
	go run ./bench/control $(CONTROL_ARGS)

bench-state: check-go ## measure large state: pauses, written bytes, restores, a memory budget; takes some minutes and 8 GB of disk
	go run ./bench/state

$(TOOLS)/.installed: Makefile
	@mkdir -p $(TOOLS)
	@for t in $(BUF) $(GOLANGCI) $(GOFUMPT) $(GENGO) $(GENGRPC); do echo "installing $$t"; GOBIN=$(TOOLS) go install $$t; done
	@touch $@

lint: check-go $(TOOLS)/.installed ## buf lint, golangci-lint
	PATH=$(TOOLS):$$PATH buf lint
	PATH=$(TOOLS):$$PATH buf breaking --against gen/protocol.binpb
	$(TOOLS)/golangci-lint run ./...

fix: check-go $(TOOLS)/.installed ## format the code
	$(TOOLS)/gofumpt -w $$(git ls-files '*.go' | grep -v '^gen/')
	$(TOOLS)/golangci-lint run --fix ./...

generate: check-go $(TOOLS)/.installed ## regenerate code and reference pages, unless a message changed in a way that other versions cannot read
	PATH=$(TOOLS):$$PATH buf breaking --against gen/protocol.binpb
	PATH=$(TOOLS):$$PATH buf generate
	PATH=$(TOOLS):$$PATH buf build --exclude-source-info -o gen/protocol.binpb
	go run ./internal/docgen docs/reference

verify: generate ## fail when generated files or go.mod are not up to date
	go mod tidy -diff
	@git diff --exit-code -- gen docs/reference || { echo "generated files are out of date: run make generate and commit"; exit 1; }
	@test -z "$$(git ls-files --others --exclude-standard gen docs/reference)" || { echo "generated files are not committed"; exit 1; }

check-go:
	@command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer (https://go.dev/dl)"; exit 1; }

check-test-tools: check-go
	@command -v $${CC:-gcc} >/dev/null || { echo "a C compiler is missing: the tests need one for the race detector and confluent-kafka-go (Debian: apt-get install gcc libc6-dev)"; exit 1; }
	@test -n "$${WEIR_TEST_KAFKA:-}" || command -v java >/dev/null || { echo "Java is missing: the tests start a real Kafka with it (Debian: apt-get install openjdk-17-jre-headless), or set WEIR_TEST_KAFKA=host:port"; exit 1; }
	@test -n "$${WEIR_TEST_KAFKA:-}" || command -v mvn >/dev/null || { echo "Maven is missing: the tests fetch Kafka with it (Debian: apt-get install maven), or set WEIR_TEST_KAFKA=host:port"; exit 1; }
	@test -n "$${WEIR_TEST_POSTGRES:-}" || command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { echo "PostgreSQL is missing: the tests start a real server (Debian: apt-get install postgresql), or set WEIR_TEST_POSTGRES=postgres://user:password@host/database"; exit 1; }
