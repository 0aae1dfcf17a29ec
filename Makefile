# The commands a person types. Each does its own set-up and does only what is missing.
#   PG=17                       builds for that PostgreSQL
#   PG_CONFIG=/path/pg_config   builds for that installation

.PHONY: help demo demo-stop install setup test test-long test-matrix bench lint hooks clean

help: ## Lists these commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: ## A private PostgreSQL that answers questions about its own manual
	@scripts/demo

demo-stop: ## Stops the demo's PostgreSQL
	@scripts/demo-stop

install: setup ## Builds the extension and installs it into a PostgreSQL
	@scripts/install

setup: ## Installs what building needs: PostgreSQL, pgvector, cargo-pgrx, the model
	@scripts/setup

test: ## All tests on one PostgreSQL
	@scripts/test

test-long: ## Random cases by the thousand (CASES=10000); `make test` runs a few hundred
	@scripts/test-long

test-matrix: ## Those that depend on PostgreSQL, in clean Debian roots with PostgreSQL 17 and 18
	@scripts/test-matrix

bench: ## Measures the extension against its baselines
	@bench/run

lint: ## Format, clippy, documentation, dependencies, shell scripts, the project's invariants
	@scripts/lint

hooks: ## Runs `make lint` before each commit in this checkout
	@git config core.hooksPath scripts/hooks

clean: ## Ends the demo and removes everything that was built
	@scripts/clean
