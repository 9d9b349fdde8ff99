# `make demo` runs the main job from end to end, `make test` the tests, `make benchmark` times it and
# its peers; `make check` runs what must hold before a change lands, `make test-all` all tests but
# `make test-matrix`. `make test-long` runs the long trials and the cases that `make test` leaves
# out, `make test-tfr` the tests of the second stack, `make demo-tfx` and `make test-tfx` are for the
# TFX pipeline. Each sets up all it needs. PYTHON names the interpreter: 3.11 to 3.13 for the default
# stack, 3.11 for the second and for TFX.
PYTHON ?= python3.11
# a local TensorFlow has no GPU to greet, and no news to tell
export TF_CPP_MIN_LOG_LEVEL ?= 3
# compiling TensorFlow anew in each process takes longer than most tests, where a machine asks for it
unexport PYTHONDONTWRITEBYTECODE

DEMO = runs/demo
TFX_DEMO = runs/demo-tfx
# the files of `make demo`, e.g. DATA="--train a.txt --validation b.txt --test c.txt"
DATA = --synthetic
# which tests `make test` runs; TESTS= for all
TESTS = -m not(long)
# options of `make benchmark`, e.g. BENCHMARK="--only losses metrics"
BENCHMARK =
# folders of the public data sets and of results for `make evidence`, and which numbers are made
EVIDENCE = --data data --results build/evidence
# what `make check` and `make test-all` run, one after the other
CHECKS = lint test test-wheel test-tfr-sample test-tfx-run test-engine
ALL = lint test ratios test-long test-mutants test-roads test-wheel test-tfr test-jax test-tfx demo-tfx test-engines \
	$(if $(shell command -v go),test-kubernetes)
# the second stack's tests but its contracts
TFR_TESTS = tests/golden tests/ops tests/links tests/data tests/models tests/tfr \
	$(wildcard tests/migration tfrank_sel/migration tfrank_sel/presets) \
	tfrank_sel/data tfrank_sel/links tfrank_sel/losses tfrank_sel/metrics tfrank_sel/ops

.PHONY: check coverage demo demo-tfx requirements test test-all test-engine test-engines test-jax test-kubernetes \
	test-long test-matrix test-mutants test-roads test-tfr test-tfr-sample test-tfx test-tfx-run test-wheel \
	benchmark evidence ratios lint exports docs serving clean

demo: .venv/installed
	rm -rf $(DEMO)
	.venv/bin/tfrank-sel-pipelines run $(DATA) --output $(DEMO)
	$(call serve_and_rank,.venv,$(DEMO),export/)

demo-tfx: .venv-tfx/installed
	rm -rf $(TFX_DEMO)
	.venv-tfx/bin/python -m tfrank_sel.pipelines.tfx run --synthetic --output $(TFX_DEMO) --epochs 10
	$(call serve_and_rank,.venv-tfx,$(TFX_DEMO),)

# the environment, the folder of the run, and that of the query in it
define serve_and_rank
@echo; echo "Serving it, and ranking one query:"
@$(1)/bin/tfrank-sel-serving serve --model-base-path $(2)/serving/ranker \
	--grpc-port 0 --rest-port 0 > $(2)/serving.log & server=$$!; trap "kill $$server" EXIT; \
until grep -q ^Serving $(2)/serving.log; do kill -0 $$server && sleep 0.5 || exit 1; done; \
address=$$(sed -n 's/^Serving .*: gRPC \([^,]*\),.*/\1/p' $(2)/serving.log); \
$(1)/bin/tfrank-sel-serving rank --file $(2)/$(3)one_query.txt --address $$address
endef

check:
	$(call run_parts,$(CHECKS))

test-all: export ROADS = --whole
test-all:
	$(call run_parts,$(ALL))

# targets; goes on after one that fails, and counts the tests of all
define run_parts
@rm -f build/*.xml; status=0; \
for part in $(1); do $(MAKE) $$part || status=1; done; \
$(PYTHON) tests/closing_line.py build/*.xml || status=1; \
exit $$status
endef

# XLA compiles a sixth faster without LLVM's optimisations, which the second stack runs with
test test-jax test-long test-mutants: export XLA_FLAGS ?= --xla_backend_optimization_level=0
# each worker has one core: more threads would wait for each other at work
test test-jax test-long test-mutants: export OMP_NUM_THREADS ?= 1
test test-jax test-long test-mutants: export OPENBLAS_NUM_THREADS ?= 1
test: .venv/installed
	$(call run_tests,.venv,default,"tests tfrank_sel",$(TESTS))

# the long trials and the cases beyond samples, which `make test` leaves out
test-long: .venv/installed
	$(call run_tests,.venv,long,"tests tfrank_sel",-m long)

# each road beside the core is deleted in a copy, e.g. ROADS="onnx --part without"; `make test-all`
# runs all tests of the core, without roads
test-roads: ROADS ?=
test-roads: .venv/installed
	.venv/bin/python tests/roads.py $(ROADS)
# faults of one expression, each of which a test of `make test` must find
test-mutants: .venv/installed
	.venv/bin/python tests/mutants.py

test-tfr: .venv-tfr/installed
	$(call run_tests,.venv-tfr,tfr,"tests/contracts" "$(TFR_TESTS)",)

# links, losses and metrics on JAX and on NumPy, where TensorFlow is not installed
test-jax: .venv-jax/installed
	mkdir -p build
	KERAS_BACKEND=jax .venv-jax/bin/python -m pytest -n 2 --junit-xml=build/jax-1.xml tests/backends
	KERAS_BACKEND=numpy .venv-jax/bin/python -W error -m pytest --junit-xml=build/jax-2.xml tests/backends
	.venv-jax/bin/python tests/closing_line.py build/jax-*.xml

test-tfr-sample: .venv-tfr/installed
	$(call run_tests,.venv-tfr,tfr,"tests/contracts" "tests/golden",$(TESTS))

# The environment, the name of the reports, groups of tests, options. Each group has processes of its
# own, since TensorFlow never frees the memory of what a process has compiled. `worksteal` leaves the
# tests of a file together, which share fixtures, until a process has nothing else to do.
define run_tests
@mkdir -p build; rm -f build/$(2)-*.xml; status=0; count=0; \
run="$(1)/bin/python -m pytest -n 2 --dist worksteal $(4)"; \
for group in $(3); do \
	count=$$((count + 1)); \
	$$run --junit-xml=build/$(2)-$$count.xml $$group || status=1; \
done; \
times > build/$(2).times; \
$(1)/bin/python tests/closing_line.py build/$(2)-*.xml || status=1; \
exit $$status
endef

test-tfx: TFX_TESTS = tests/tfx tfrank_sel/pipelines/tfx
# one run of the pipeline
test-tfx-run: TFX_TESTS = tests/tfx/test_run.py
test-tfx test-tfx-run: .venv-tfx/installed
	mkdir -p build
	.venv-tfx/bin/python -m pytest -W ignore::DeprecationWarning --junit-xml=build/tfx.xml $(TFX_TESTS)
	.venv-tfx/bin/python tests/closing_line.py build/tfx.xml

# the Beam steps on Flink and Spark of this machine, trees in Solr, and ONNX Runtime for Java; needs
# a JDK, 17, and Maven
test-engines: ENGINE_TESTS =
test-engines: $(foreach x,flink solr onnx,build/engines/$(x)/installed)
# two steps on one of them
test-engine: ENGINE_TESTS = -k "ingest_and_analyze and spark"
test-engines test-engine: .venv/installed build/engines/spark/installed
	mkdir -p build
	.venv/bin/python -m pytest --junit-xml=build/engines.xml $(ENGINE_TESTS) tests/engines
	.venv/bin/python tests/closing_line.py build/engines.xml

build/engines/%/installed: tests/engines/%.xml
	rm -rf $(@D)
	mvn --batch-mode --quiet --file $< dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(@D)
	touch $@

# a deployment on an API server of Kubernetes; needs Go, which builds it in some ten minutes
test-kubernetes: .venv/installed build/kubernetes/installed
	.venv/bin/python -m pytest --junit-xml=build/kubernetes.xml tests/kubernetes
	.venv/bin/python tests/closing_line.py build/kubernetes.xml

PROMETHEUS_OPERATOR = github.com/prometheus-operator/prometheus-operator@v0.85.0
KSERVE = github.com/kserve/kserve@v0.15.2

build/kubernetes/installed: tests/kubernetes/go.mod
	rm -rf build/kubernetes
	mkdir -p build/kubernetes
	cp tests/kubernetes/go.mod build/kubernetes
	cd build/kubernetes && export GOFLAGS="-mod=mod -p=1 -ldflags=-s" && \
		go build -o etcd go.etcd.io/etcd/server/v3 && \
		go build -o . k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl && \
		go mod download $(PROMETHEUS_OPERATOR) $(KSERVE)
	modules=$$(go env GOMODCACHE); install --mode=644 --target-directory=build/kubernetes \
		$$modules/$(PROMETHEUS_OPERATOR)/example/prometheus-operator-crd/*_prometheusrules.yaml \
		$$modules/$(PROMETHEUS_OPERATOR)/example/prometheus-operator-crd/*_servicemonitors.yaml \
		$$modules/$(KSERVE)/config/crd/full/*_inferenceservices.yaml
	touch $@

# TensorFlow from 2.16 on, and the Pythons, each in an environment of its own; takes hours
test-matrix: .venv/installed
	.venv/bin/python tests/matrix.py

# README's commands from a wheel, in a fresh environment, on a Parquet file
test-wheel: .venv/installed
	.venv/bin/python -m benchmarks.first_ranker --limit 3600

coverage: .venv/installed
	.venv/bin/python -m pytest -n 2 --cov=tfrank_sel --cov-report=
	.venv/bin/coverage json -q -o - | .venv/bin/python tests/coverage_by_package.py

# goes on without a peer that cannot be installed, and names it
benchmark: .venv/installed
	-$(MAKE) --keep-going .venv/benchmarks .venv-tfr/installed
	.venv/bin/python -m benchmarks.speed --output build/benchmark $(BENCHMARK)

# CPU ratios beside their recorded values, among them that of the last `make test`
ratios: .venv/installed
	-$(MAKE) --keep-going .venv/benchmarks
	.venv/bin/python -m benchmarks.speed.ratios

evidence: .venv/installed
	-$(MAKE) --keep-going .venv/benchmarks .venv-tfr/installed
	.venv/bin/python -m benchmarks.evidence run $(EVIDENCE)

docs: .venv/installed
	PYTHONPATH=. .venv/bin/python docs/site.py
	.venv/bin/zensical build --strict
	@echo "The site is in build/site."

# the deployment of the demo's ranker, anew
serving: .venv/installed
	rm -rf serving
	.venv/bin/python -c "from pathlib import Path; from tfrank_sel.serving.deployment import folder; \
	folder.render(Path('serving'), 'ranker')"

lint: .venv/installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/basedpyright --level error --pythonpath .venv/bin/python
	.venv/bin/lint-imports
	.venv/bin/python tests/exports.py --check
	.venv/bin/python tests/structure.py

# what is made of the code: the tables of names that packages export and that Keras loads, and the
# default configuration
exports: .venv/installed
	.venv/bin/python tests/exports.py
	.venv/bin/tfrank-sel-pipelines config --all > pipelines/default.toml

# the versions that are installed, with the hashes of their files; those of the image of Dataflow
FREEZE = .venv/bin/uv pip freeze --quiet --exclude-editable --python
HASH = .venv/bin/uv pip compile --quiet --no-header --no-annotate --generate-hashes --python-version 3.11.7
requirements: .venv/installed .venv-tfr/installed
	$(FREEZE) .venv/bin/python --exclude pip | $(HASH) --no-deps - --output-file requirements/default.txt
	$(FREEZE) .venv-tfr/bin/python --exclude pip | $(HASH) --no-deps - --output-file requirements/tfr.txt
	$(HASH) setup.cfg --extra pipelines --extra beam --constraint requirements/default.txt \
		--output-file requirements/dataflow.txt

.venv/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet uv
	.venv/bin/uv pip install --quiet --python .venv/bin/python \
		--editable '.[pipelines,tune,mlflow,serving,plots,als,ann,migrate,sklearn,lightgbm,xgboost,catboost,onnx,test,stores,lint,docs]'
	touch $@

.venv/benchmarks: .venv/installed
	.venv/bin/uv pip install --quiet --python .venv/bin/python --editable '.[benchmarks]'
	touch $@

.venv-tfr/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv .venv-tfr
	.venv-tfr/bin/pip install --quiet uv
	# the last pyarrow that runs with the NumPy of TensorFlow 2.15
	.venv-tfr/bin/uv pip install --quiet --python .venv-tfr/bin/python \
		--editable '.[tfr,migrate,test]' 'pyarrow<24'
	touch $@

.venv-jax/installed: setup.cfg
	$(PYTHON) -m venv .venv-jax
	.venv-jax/bin/pip install --quiet uv
	# the package itself, which needs TensorFlow on this Python, is that of this folder
	.venv-jax/bin/uv pip install --quiet --python .venv-jax/bin/python \
		'jax>=0.10' 'keras>=3.15' 'keras-rs>=0.4' 'rax>=0.4' \
		'pytest>=8' 'pytest-xdist>=3.6' 'hypothesis>=6.100' 'scipy>=1.13'
	touch $@

.venv-tfx/installed: setup.cfg pyproject.toml pipelines/tfx/environment.sh
	pipelines/tfx/environment.sh .venv-tfx $(PYTHON) --editable '.[tfx,serving,test]'
	touch $@

clean:
	rm -rf .venv .venv-tfr .venv-jax .venv-tfx build runs
