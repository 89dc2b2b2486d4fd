# Two commands matter: `make run` and `make test`. Both set up what they need.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.PHONY: run test test-differential check bench clean help
help:           ## show this
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,zookeeper]'
	touch $@

run: $(STAMP)   ## start a broker on 127.0.0.1:9092
	$(BIN)/barnabas start

test: $(STAMP)  ## run every test
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-differential: $(STAMP) ## compare every answer with Apache Kafka's (needs Java 17 and Maven)
	$(BIN)/python -m pytest -q --tb=line -r N tests/differential

check: $(STAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

clean:          ## remove everything that was made here
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
