# Two commands matter: `make run` and `make test`. Both set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || echo python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
CHAOS_SECONDS ?= 600
CHAOS_BROKERS ?= 3
CHAOS_OPTIONS ?=
CLIENT_FAULT_ROUNDS ?= 10
SECONDS ?= 60
SEED ?= 1
FUZZ_INPUTS ?= 2000000
FUZZ_REQUESTS ?= 20000
FUZZ_PROCESSES ?= 1
FUZZ_SIMULATED ?= 5000
FUZZ_GUIDED ?= 0
# An editable install is not compiled, and needs nothing to compile with.
PIP    := BARNABAS_COMPILE=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# The source as it is, or compiled once that has been done: tools/compiled_tree.py.
RUN    := PYTHONPATH="$$($(BIN)/python tools/compiled_tree.py $(VENV)/compiled)" $(BIN)/barnabas

.PHONY: help run cluster demo test test-all test-clients test-differential client-faults chaos kill-matrix check diagrams site codecs coverage
.PHONY: simulate simulate-bugs fuzz fuzz-bugs fuzz-sweep wheel unpacked-wheel test-compiled
.PHONY: bench bench-quick bench-cluster bench-cluster-quick bench-partitions bench-headline bench-growth bench-spark bench-tables release-check clean
help:              ## show this
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What a broker needs is little; what the tests need comes on top.
$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what a broker needs into $(VENV): less than a minute on a fast line …"
	$(PIP) -e '.[console]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing Spark and what the tests need into $(VENV): 500 MB, some minutes the first time …"
	$(PIP) -e '.[console,dev,security,zookeeper,spark,declarative,formats,postgres,mysql,delta,iceberg,site]'
	@if command -v krb5-config >/dev/null; then $(PIP) -e '.[gssapi]' || echo "gssapi cannot be compiled: the tests of Kerberos skip"; fi
	touch $@ $(VENV)/.run $(VENV)/.site

run: $(VENV)/.run  ## start a broker on 127.0.0.1:9092, and its page on http://127.0.0.1:8080
	@ls src/barnabas/__pycache__ >/dev/null 2>&1 || echo "compiling the sources, once: some seconds …"
	@$(BIN)/python -m compileall -q src
	@$(RUN) start --console 127.0.0.1:8080

$(VENV)/.spark: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing Spark into $(VENV): 400 MB, two minutes or more the first time …"
	$(PIP) -e '.[console,spark,zookeeper]'
	touch $@ $(VENV)/.run

cluster: $(VENV)/.run ## start three brokers on 127.0.0.1:9092 to 9094, and their page on http://127.0.0.1:8080
	@ls src/barnabas/__pycache__ >/dev/null 2>&1 || echo "compiling the sources, once: some seconds …"
	@$(BIN)/python -m compileall -q src
	@$(RUN) start --brokers 3

demo: $(VENV)/.spark ## a clickstream through two pipelines on Spark (needs Java 17); DEMO_SECONDS=60
	$(BIN)/python examples/demo.py

# Tests wait for sockets, disks and JVMs half of their time: four workers keep two cores busy. More tests of
# `make test-all` start a JVM each, which computes and takes memory.
WORKERS ?= 4
test-all: WORKERS = 3
# tests/conftest.py orders the files: xdist would put those with few tests last, which take longest.
# Compiled sources save each broker process half a second, and pytest keeps the test modules that it rewrites.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev ## run a slice of everything, in five minutes; `make test-all` runs the rest
	@$(BIN)/python -m compileall -q -j 0 src
	$(PYTEST) -m "not rest and not compatibility and not kill_matrix and not client_faults"

test-all: $(VENV)/.dev ## run the tests that `make test` leaves out (half an hour)
	@$(BIN)/python -m compileall -q -j 0 src
	$(PYTEST) -m "rest and not compatibility and not kill_matrix and not client_faults"

test-clients: $(VENV)/.dev ## every client and tool against the broker, write docs/COMPATIBILITY.md
	$(BIN)/python -m pytest tests/clients --compatibility docs/COMPATIBILITY.md --comparison docs/CLIENT.md

test-differential: $(VENV)/.dev ## compare every answer with Apache Kafka's (needs Java and Maven)
	$(BIN)/python -m pytest -q --tb=line -r N tests/differential

chaos: $(VENV)/.dev ## break a cluster under load for CHAOS_SECONDS (600) and check what clients saw; CHAOS_OPTIONS='--secure --store shared'
	PYTHONPATH=src $(BIN)/python -m tests.chaos.run --seconds $(CHAOS_SECONDS) --brokers $(CHAOS_BROKERS) $(CHAOS_OPTIONS)

client-faults: $(VENV)/.dev ## the client library under faults for CLIENT_FAULT_ROUNDS (10) rounds, on three Barnabas and three Apache Kafka brokers
	CLIENT_FAULT_ROUNDS=$(CLIENT_FAULT_ROUNDS) $(BIN)/python -m pytest -v tests/scenario/client_faults

simulate: $(VENV)/.dev ## whole brokers in a simulated world for SECONDS (60) from SEED (1): docs/SIMULATION.md
	PYTHONPATH=src $(BIN)/python -m tests.simulation.run --seconds $(SECONDS) --seed $(SEED)

simulate-bugs: $(VENV)/.dev ## plant bugs one by one, and see after how many seeds the simulator finds each
	PYTHONPATH=src $(BIN)/python -m tests.simulation.bugs

$(VENV)/.fuzz: pyproject.toml constraints.txt | $(VENV)/.dev
	$(PIP) -e '.[fuzz]' || echo "no Atheris for this Python: the fuzzer runs without coverage"
	touch $@

fuzz: $(VENV)/.fuzz ## bytes and requests that no client sends, judged, from SEED (1): docs/FUZZING.md
	PYTHONPATH=src $(BIN)/python -m tests.fuzz.run --inputs $(FUZZ_INPUTS) --guided $(FUZZ_GUIDED) --simulated $(FUZZ_SIMULATED) --requests $(FUZZ_REQUESTS) --processes $(FUZZ_PROCESSES) --seed $(SEED)

fuzz-sweep: $(VENV)/.dev ## single requests of every API and version, sequences of ten, and HTTP, from SEED (1): longest turn and memory
	PYTHONPATH=src $(BIN)/python -m tests.fuzz.sweep --seed $(SEED)

fuzz-bugs: $(VENV)/.dev ## plant bugs one by one, and write into docs/FUZZING.md how soon the fuzzer catches each
	PYTHONPATH=src $(BIN)/python -m tests.fuzz.hunt

kill-matrix: $(VENV)/.dev ## kill drivers, executors and brokers under pipelines: into topics, on Barnabas and on Apache Kafka, and into every other sink
	$(BIN)/python -m pytest -v tests/spark/kill_matrix --broker barnabas
	$(BIN)/python -m pytest -v tests/spark/kill_matrix --broker kafka
	$(BIN)/python -m pytest -v -m kill_matrix tests/contract/tables tests/scenario/pipelines tests/spark/pipelines

check: $(VENV)/.dev ## ruff, mypy --strict over src and tests, import-linter
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

diagrams: $(VENV)/.dev ## draw and render what the pages in docs/ show of the code
	PYTHONPATH=src $(BIN)/python tools/draw_architecture.py
	PYTHONPATH=src $(BIN)/python tools/render_security.py
	PYTHONPATH=src $(BIN)/python tools/render_metrics.py
	PYTHONPATH=src $(BIN)/python tools/render_reference.py
	PYTHONPATH=src $(BIN)/python -m barnabas.pipelines.spec.schema > docs/pipeline.schema.json
	PYTHONPATH=src $(BIN)/python -m barnabas.config.render_docs > docs/CONFIG.md

$(VENV)/.site: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[site]'
	touch $@

site: $(VENV)/.site ## build the pages of docs/ with search into build/site, and check every link
	$(BIN)/python tools/build_site.py

codecs: $(VENV)/.run ## write the codecs of the hot APIs into build/codecs, to be read
	PYTHONPATH=src $(BIN)/python -m barnabas.protocol.codecs.writing build/codecs

coverage: $(VENV)/.dev ## how much of each package the unit and contract tests run
	$(BIN)/python -m pytest -q -n 2 tests/unit tests/contract --cov --cov-report=
	$(BIN)/python tools/coverage_by_package.py

bench: $(VENV)/.dev unpacked-wheel ## measure the source and the compiled wheel beside Apache Kafka (needs Java, Maven and a C compiler), write bench/RESULTS.md
	PYTHONPATH=src:. $(BIN)/python bench/run.py --subjects barnabas,compiled,kafka

bench-quick: $(VENV)/.dev ## the same, source only, one small round, printed only
	PYTHONPATH=src:. $(BIN)/python bench/run.py --quick

bench-cluster: $(VENV)/.dev unpacked-wheel ## three brokers, source and compiled, beside three of Apache Kafka's, write bench/RESULTS.md
	PYTHONPATH=src:. $(BIN)/python bench/cluster.py --subjects barnabas,compiled,kafka

bench-cluster-quick: $(VENV)/.dev ## the same, source only, one small round, printed only
	PYTHONPATH=src:. $(BIN)/python bench/cluster.py --quick

bench-headline: $(VENV)/.dev ## the table of "two million writes a second", beside three brokers of Apache Kafka, write bench/RESULTS.md (60 GB of disk)
	PYTHONPATH=src:. $(BIN)/python bench/headline.py --rounds 2

bench-growth: $(VENV)/.dev ## what should not grow with size, at two sizes, beside Apache Kafka, write bench/RESULTS.md (25 GB of disk)
	PYTHONPATH=src:. $(BIN)/python bench/growth.py

bench-spark: $(VENV)/.dev ## format("barnabas") beside Spark's JVM connector (needs Java and Maven), write bench/RESULTS.md
	PYTHONPATH=src:. $(BIN)/python bench/spark_source.py

bench-tables: $(VENV)/.dev ## topics into tables, files and topics, beside plain Spark (needs Java and Maven), write bench/RESULTS.md (10 GB of disk)
	PYTHONPATH=src:. $(BIN)/python bench/tables.py

bench-partitions: $(VENV)/.dev ## ten thousand partitions on three brokers: create, hold, kill one, restart it; ours alone, printed only
	PYTHONPATH=src:. $(BIN)/python bench/cluster.py --only partitions --subjects barnabas --rounds 1 --print

$(VENV)/.release: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[release]'
	touch $@

wheel: $(VENV)/.release ## build the compiled wheel of this platform into dist (needs a C compiler; a minute or two)
	rm -f dist/*-cp3*.whl
	BARNABAS_COMPILE=1 $(BIN)/python -m build --wheel

unpacked-wheel: wheel
	rm -rf build/wheel && $(BIN)/python -m zipfile -e dist/*-cp3*.whl build/wheel

test-compiled: $(VENV)/.dev unpacked-wheel ## run the unit and contract tests, and the scenarios of brokers, on the compiled wheel
	PYTHONPATH=build/wheel $(BIN)/python -m pytest -n 2 --dist loadfile -o pythonpath="build/wheel ." tests/unit tests/contract $(addprefix tests/scenario/,broker groups network quotas replication transactions)

release-check: $(VENV)/.release ## build sdist and both wheels, check them, run each wheel in an environment of its own
	$(BIN)/python tools/release_check.py

clean:             ## remove everything that was made here
	rm -rf $(VENV) build dist .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .cache
