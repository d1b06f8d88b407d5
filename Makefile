PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test test-page-proxy test-horovod test-hostile test-properties test-train test-mpi kubernetes test-kubernetes test-gangs test-faults test-nodes test-containers test-clients test-monitoring test-page page docs pictures test-conformance lint types bench wheel images release publish clean

run: $(STAMP)-run
	$(BIN)/gangline run --nodes 2 examples/01-digits/mpijob.yaml

test: $(STAMP)-dev
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile tests -m "not horovod and not train and not mpi and not slow and not kubernetes and not gangs and not nodes and not containers and not clients and not hostile and not browser and not monitoring"

# 50,000 cases of every property of placement: an hour of two cores. GANGLINE_PROPERTY_CASES asks for fewer,
# GANGLINE_PROPERTY_FIXED=1 for the same ones each time.
test-properties: $(STAMP)-dev
	GANGLINE_PROPERTY_CASES=$${GANGLINE_PROPERTY_CASES:-50000} $(BIN)/python -m pytest -q \
		-n auto --maxprocesses 4 --dist load --timeout 36000 tests/property/placement

test-train: $(STAMP)-dev
	python=$$($(BIN)/python tests/train_environment.py) && \
	GANGLINE_TRAIN_PYTHON=$$python $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests -m train

# Ranks as processes of this machine.
test-horovod: $(STAMP)-dev
	python=$$($(BIN)/python tests/train_environment.py) && overlay=$$($(BIN)/python tests/horovod/overlay.py) && \
	mpis=$$($(BIN)/python tests/mpi_environments.py) && \
	GANGLINE_TRAIN_PYTHON=$$python GANGLINE_HOROVOD_OVERLAY=$$overlay GANGLINE_MPI_ENVIRONMENTS=$$mpis \
		$(BIN)/python -m pytest -q tests/horovod -m horovod

# Horovod's own tests and examples, from a checkout that HOROVOD_SOURCE names, against tests/horovod/upstream_*.toml:
# 5 minutes.
.PHONY: test-horovod-upstream
test-horovod-upstream: $(STAMP)-dev
	test -d "$$HOROVOD_SOURCE/test/parallel" || { echo "HOROVOD_SOURCE names no checkout of Horovod" >&2; exit 1; }
	python=$$($(BIN)/python tests/train_environment.py) && overlay=$$($(BIN)/python tests/horovod/overlay.py) && \
	examples=$$($(BIN)/python tests/horovod/overlay.py examples) && \
	GANGLINE_TRAIN_PYTHON=$$python GANGLINE_HOROVOD_OVERLAY=$$overlay GANGLINE_HOROVOD_EXAMPLES=$$examples \
		$(BIN)/python -m pytest -q tests/horovod/test_upstream.py tests/horovod/test_examples.py

test-mpi: $(STAMP)-dev
	folder=$$($(BIN)/python tests/mpi_environments.py) && \
	GANGLINE_MPI_ENVIRONMENTS=$$folder $(BIN)/python -m pytest -q tests -m mpi

kubernetes:
	tests/kubernetes/build.sh

# KUBECONFIG or KUBEBUILDER_ASSETS stand in for what would be built.
test-kubernetes: $(STAMP)-dev
	test -n "$$KUBECONFIG$$KUBEBUILDER_ASSETS" || \
		tests/kubernetes/build.sh etcd kube-apiserver kube-controller-manager
	$(BIN)/python -m pytest -q tests -m "kubernetes and not slow"

# Kubernetes 1.37, the first release whose own scheduler starts gangs whole.
test-gangs: $(STAMP)-dev
	tests/kubernetes/build.sh v1.37.1
	$(BIN)/python -m pytest -q tests -m gangs

# Half a minute without a server, a hundred killed operators, ten thousand fuzzed jobs; a quarter of an hour.
test-faults: $(STAMP)-dev
	GANGLINE_FUZZ_EXAMPLES=10000 $(BIN)/python -m pytest -q tests/property/jobs/test_jobs_fuzz.py
	$(BIN)/python -m pytest -q tests -m "slow and not kubernetes"
	test -n "$$KUBECONFIG$$KUBEBUILDER_ASSETS" || \
		tests/kubernetes/build.sh etcd kube-apiserver kube-controller-manager
	$(BIN)/python -m pytest -q tests -m "slow and kubernetes"

# As root, on a machine with containerd, runc, CNI plugins and iproute2; skipped, with the reason, elsewhere.
test-nodes: $(STAMP)-dev
	tests/kubernetes/build.sh
	$(BIN)/python -m pytest -q tests -m nodes

# As root, on a machine with containerd and runc, and Debian's apt to make an image of; skipped elsewhere.
test-containers: $(STAMP)-dev
	$(BIN)/python -m pytest -q tests -m containers

# Others' clients and operators, built from Go modules (nine minutes, once) and fetched from PyPI.
test-clients: $(STAMP)-dev
	python=$$($(BIN)/python tests/clients_environment.py) && programs=$$(tests/e2e/clients/builds/build.sh) && \
	GANGLINE_CLIENTS_PYTHON=$$python GANGLINE_CLIENTS_PROGRAMS=$$programs $(BIN)/python -m pytest -q tests -m clients

# The dashboard of deploy/grafana against a real Prometheus, built from its Go module.
test-monitoring: $(STAMP)-dev
	programs=$$(tests/e2e/monitoring/build.sh) && \
	GANGLINE_PROMETHEUS=$$programs $(BIN)/python -m pytest -q tests -m monitoring

# The web page in a real browser: Debian's chromium, driven by playwright from PyPI (50 MB); skipped without it.
test-page: $(STAMP)-dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -r tests/requirements-page.txt
	$(BIN)/python -m pytest -q tests -m browser

# The page behind oauth2-proxy, built from its Go module (a minute, once); `test-page` skips it.
test-page-proxy: $(STAMP)-dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -r tests/requirements-page.txt
	folder=$$(tests/e2e/page/build.sh) && \
	GANGLINE_OAUTH2_PROXY=$$folder $(BIN)/python -m pytest -q tests/e2e/page/test_page_behind_a_proxy.py

# Builds the page from web/ with Node.js: what it makes is committed, so that nobody else needs that.
page:
	cd web && npm ci --silent && npm run --silent check && npm run --silent test && npm run --silent build

# The documentation as a site in dist/docs; fails where a link or an anchor leads nowhere.
docs: $(STAMP)-run
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[docs]'
	$(BIN)/python docs/build_site.py dist/docs

# Takes the pictures of README and docs again, from a live cluster; needs what `test-page` needs.
pictures: $(STAMP)-dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -r tests/requirements-page.txt
	$(BIN)/python tools/pictures.py

# As root, with Go, containerd and runc: an hour, and a quarter of one once to build the suite. CONFORMANCE="--area
# apps --list" chooses areas and prints what failed.
test-conformance: $(STAMP)-dev
	PYTHONPATH=tools/images $(BIN)/python tests/conformance/run.py "$$(tests/conformance/build.sh)" $(CONFORMANCE)

# GANGLINE_HOSTILE_CASES (3,000), _ROUNDS (50) and _SEED (1) choose the series, HOSTILE=FILE one file of them.
HOSTILE ?= tests/hostile
test-hostile: $(STAMP)-dev
	$(BIN)/python -m pytest -q -s $(HOSTILE) -m hostile

lint: $(STAMP)-dev
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/lint-imports

types: $(STAMP)-dev
	$(BIN)/mypy

bench: $(STAMP)-dev
	$(BIN)/python benchmarks/run.py

wheel: $(STAMP)-dev
	$(BIN)/python -m pip wheel -q --no-deps -w dist .

# Archives of the services' images and of `gangline/base` in dist/images: by docker, podman or buildah, or else without.
images: wheel
	$(BIN)/python tools/images/build.py dist/images $(IMAGES)

# Wheel, images, manifests to install, chart and their sums in dist, all of one version. With IMAGE_PREFIX=REGISTRY
# manifests and chart name the images there, by version and digest.
release: images
	$(BIN)/python tools/release.py dist $(if $(IMAGE_PREFIX),--image-prefix $(IMAGE_PREFIX))

# What a maintainer runs after `make release IMAGE_PREFIX=REGISTRY`, with the same IMAGE_PREFIX: to PyPI and the registry.
publish: $(STAMP)-dev
	test -n "$(IMAGE_PREFIX)"
	$(BIN)/python -m pip install -q 'twine>=6'
	version=$$($(BIN)/python -c 'import gangline; print(gangline.__version__)') && \
	$(BIN)/python -m twine upload dist/gangline-$$version-*.whl && \
	for image in gangline gangline-scheduler gangline-device-plugin gangline-page; do \
		$(BIN)/gangline image push dist/images/$$image-$$version.tar $(IMAGE_PREFIX)/$$image || exit; \
	done && \
	$(BIN)/gangline image push dist/images/gangline-base-$$version.tar $(IMAGE_PREFIX)/gangline/base

clean:
	rm -rf $(VENV) dist build

$(STAMP)-run: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[mpi]'
	touch $@

$(STAMP)-dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[mpi,dev]'
	touch $@ $(STAMP)-run
