# make install, make test and make lint need Python 3.11 and nothing that is not in the lock.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test lint fix lock

install: $(BIN)/xidbot

$(BIN)/xidbot: requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: install
	$(BIN)/xidbot demo

test: install
	tests/run

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header pyproject.toml -o requirements.txt
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header pyproject.toml --group dev -o requirements-dev.txt
