# make install, make test and make lint need Python 3.11 and nothing that is not in the lock.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test test-slow lint fix lock bench guest-kernel

install: $(BIN)/xidbot

$(BIN)/xidbot: requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: install
	$(BIN)/xidbot demo

# The wheel as a stranger installs it: its own virtual environment, from the lock. tests/real/test_wheel.py runs it.
WHEEL := .work/wheel

$(WHEEL)/bin/xidbot: requirements.txt pyproject.toml $(shell git ls-files bot commands playbooks store templates)
	rm -rf $(WHEEL) .work/dist
	$(BIN)/hatchling build -t wheel -d .work/dist
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/pip install --quiet --require-hashes -r requirements.txt
	$(WHEEL)/bin/pip install --quiet --no-deps .work/dist/*.whl

# Debian's kernel with its NFS modules, unpacked and not installed: the guest boots it.
GUEST_KERNEL := .work/kernel/boot

guest-kernel: $(GUEST_KERNEL)

$(GUEST_KERNEL):
	rm -rf .work/kernel
	mkdir -p .work/kernel
	-cd .work/kernel && apt-get download -qq \
		"$$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $$2; exit}')" && \
		dpkg-deb -x linux-image-*.deb . && rm linux-image-*.deb

test: install $(WHEEL)/bin/xidbot
	tests/run

# What takes hours: 55 days through a server, 20 seeds in memory. And a real NFS server that hangs or is slow, under an
# emulated guest: it needs prometheus-node-exporter, qemu-system-x86, nfs-ganesha, nfs-ganesha-vfs, busybox-static, cpio
# and kmod, and is skipped without them.
test-slow: install $(GUEST_KERNEL)
	tests/run -m slow --timeout=0

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	@$(BIN)/python -m bench.run

fix: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header pyproject.toml -o requirements.txt
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header pyproject.toml --group dev -o requirements-dev.txt
