# The two that matter: `make run` and `make test`. Everything else is for those who change the hub.
SHELL      := /usr/bin/env bash
GO         ?= go
LINT       := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME   ?= 10s
VERSION    ?= dev
TESTFLAGS  ?=
# Half of the tests' time is waiting: three packages at once are what two cores can do. Those that take longest come first,
# so that none of them goes on alone.
LONGEST    := ./agui ./clients/typescript ./transport/console ./cmd/aguihub ./e2e ./stream

.PHONY: run build console setup test charts examples lint fuzz chaos bench benchmarks sweep clean

run: ## the hub with an embedded Redis, the demo agent and the page
	$(GO) run ./cmd/aguihub

build: ## bin/aguihub
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/aguihub ./cmd/aguihub

console: ## transport/console/dist, of its sources and the TypeScript client's
	cd transport/console/ui && npm ci --no-audit --no-fund --ignore-scripts && npm run build

setup: ## redis-server and the official client, where missing
	@scripts/setup

test: setup ## all tests, with the race detector
	$(GO) vet ./...
	$(GO) test -race -p 3 -timeout 40m $(TESTFLAGS) $(LONGEST) ./...

examples: setup ## the examples with CopilotKit and assistant-ui alone, in a browser
	$(GO) test -count 1 -v -run '^TestExamples$$' ./clients/typescript

charts: ## the chart, the manifests, the Dockerfile and the compose file: a module of its own, slow to build at first
	cd k8s/check && $(GO) test .

lint: ## the linters; the first build of them takes about ten minutes
	$(LINT) run ./...

fuzz: ## every fuzz target for FUZZTIME
	@set -euo pipefail; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for target in $$($(GO) test -list '^Fuzz' "$$dir" | grep '^Fuzz'); do \
	    echo "$$dir $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir"; \
	  done; \
	done

chaos: ## half an hour of faults with a fixed seed, judged by the checker
	$(GO) run ./loadtest chaos -seed 1 -duration 30m

bench: setup bin/centrifugo ## the hub beside Centrifugo and physical bounds, into docs/benchmarks.md: a quarter of an hour, on a quiet machine
	$(GO) build -o bin/loadtest ./loadtest
	timeout -k 10 15m bin/loadtest compare -centrifugo bin/centrifugo -out docs/benchmarks.md -json bin/benchmarks.json

# The peer that the comparison runs; the first build of it takes minutes.
bin/centrifugo: loadtest/peers/go.mod
	cd loadtest/peers && $(GO) build -o ../../$@ github.com/centrifugal/centrifugo/v6

benchmarks: ## the benchmarks of the code
	$(GO) test -run '^$$' -bench . -benchmem ./...

sweep: setup ## the measure in full: every k of every stream and of 200 generated ones, in process and over the network
	AGUIHUB_SWEEP=1 $(GO) test -p 1 -timeout 120m -count 1 -v -run '^TestAttach' ./agui ./e2e
	AGUIHUB_SWEEP=1 $(GO) test -timeout 30m -count 1 -v -run '^Test(Bridged|TheRunGoesOn|BrokenAgents)' ./transport/agents

clean:
	rm -rf bin
