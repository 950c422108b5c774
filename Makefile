# offwind: `make run` profiles this system, `make check` runs every test.
# Both install what is missing first.  Everything built lies under build/.

SHELL := /bin/bash
.DEFAULT_GOAL := all
VERSION := 0.1.0

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
BUILD ?= build
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
CLANG ?= clang
BPFTOOL ?= $(shell command -v bpftool || echo /usr/sbin/bpftool)

comma := ,

# What the program loads when it needs it (dlopen), as Debian packages: it is not linked with them.
LOADED_PACKAGES := libdebuginfod1 libmicrohttpd12
# The Debian packages that building and running need, and those that the tests and benchmarks need beside them.
PACKAGES := $(LOADED_PACKAGES) \
	gcc libc6-dev linux-libc-dev make pkg-config clang llvm bpftool \
	libbpf-dev libelf-dev libdw-dev zlib1g-dev libdeflate-dev libzstd-dev liblzma-dev libiberty-dev \
	libsqlite3-dev nettle-dev libseccomp-dev libinih-dev libmicrohttpd-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler \
	nodejs python3
# npm fetches what the flame graph's page embeds; some packages of nodejs bring it along.
PACKAGES += $(if $(shell command -v npm),,npm)
TEST_PACKAGES := \
	g++ libclang-rt-14-dev clang-format libc6-dev-i386 lib32gcc-12-dev \
	linux-perf golang-go binutils elfutils gdb sqlite3 git openssl procps \
	libunwind-dev lld gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static xz-utils zstd gzip man-db groff-base util-linux valgrind \
	pigz pbzip2 lbzip2 plzip pixz 7zip squashfs-tools ripgrep sysbench primesieve-bin mbuffer minimap2 redis-tools \
	swi-prolog-core perl php-cli ruby chromium curl graphviz llvm-runtime default-jdk-headless rustc dwz debuginfod zsh fish systemd \
	build-essential debhelper dpkg-dev lintian python3-yaml prometheus clickhouse-server

# The two commands that do it all use every CPU, unless they were told how many.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

# One short line a step; V=1 shows the commands.
say = @$(if $(V),set -x;,printf '  %-5s %s\n' '$(1)' '$(2)';)

# ---- what there is --------------------------------------------------------

LIBRARY := base unwinder symbolizer proto agent compat
GEN := $(BUILD)/gen
PROTOS := $(wildcard proto/*.proto)
PROTO_C := $(PROTOS:%.proto=$(GEN)/%.pb-c.c)
PROTO_H := $(PROTOS:%.proto=$(GEN)/%.pb-c.h)
BPF_C := $(wildcard bpf/*.bpf.c)
SKELETONS := $(BPF_C:%.bpf.c=$(GEN)/%.skel.h)
SQL_H := $(GEN)/schema/store_sql.h $(GEN)/schema/history_sql.h $(GEN)/schema/fleet_sql.h
PAGE := agent/export/page
PAGE_H := $(GEN)/$(PAGE)/parts.h
DAEMON_PAGE := agent/http/page
DAEMON_PAGE_H := $(GEN)/$(DAEMON_PAGE)/page.h
OPENAPI_H := $(GEN)/agent/http/openapi.h
FILTERS_H := $(GEN)/agent/role/filters.h
GENERATED := $(PROTO_H) $(SKELETONS) $(SQL_H) $(PAGE_H) $(DAEMON_PAGE_H) $(OPENAPI_H) $(FILTERS_H)

UNWINDER_C := $(wildcard base/*.c unwinder/*/*.c)
AGENT_C := $(filter-out agent/cmd/main.c agent/role/filters.c,$(wildcard agent/*.c agent/*/*.c agent/*/*/*.c))
REST_C := $(wildcard symbolizer/*.c symbolizer/*/*.c proto/*.c) $(AGENT_C)
ALL_C := $(UNWINDER_C) $(REST_C) $(wildcard agent/cmd/main.c)

WARN := -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
ifdef WERROR
WARN += -Werror
endif
CPPFLAGS += -I. -I$(GEN) -D_GNU_SOURCE -DOFFWIND_VERSION='"$(VERSION)"'
CFLAGS ?= -O2 -g
OUR_CFLAGS := -std=c17 $(WARN) -fno-omit-frame-pointer
LDLIBS += -lsqlite3 -lbpf -ldw -lelf -lprotobuf-c -lnettle -linih -lzstd -llzma -lz -ldeflate -liberty -lm -lpthread
# The program itself carries them: finding and relocating nine libraries takes as long as all that a
# run does of its own until the first stack is out.  STATIC= (empty) links it like the rest.
STATIC ?= -lsqlite3 -lbpf -lelf -lprotobuf-c -lnettle -linih -lzstd -llzma -lz -ldeflate -liberty
PROGRAM_LDLIBS := $(if $(STATIC),-Wl$(comma)-Bstatic $(STATIC) -Wl$(comma)-Bdynamic -lm -lpthread,$(LDLIBS))

# ---- set-up ---------------------------------------------------------------

.PHONY: all deps test-deps run deb check check-corpus check-faults check-kernels check-soak fuzz bench bench-capture install uninstall clean format man tests

# A mirror that fails once is asked again; who else installs is waited for.
APT := apt-get -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300

# Installs what is missing of the packages $(1).  Asks dpkg only; apt is called just for what is missing.
define install-packages
	@missing=; for p in $(1); do \
	  dpkg-query -W -f='$${db:Status-Status}\n' $$p 2>/dev/null | grep -qx installed || missing="$$missing $$p"; \
	done; \
	if [ -n "$$missing" ]; then \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  echo "installing:$$missing"; \
	  $$sudo $(APT) update -qq && \
	  DEBIAN_FRONTEND=noninteractive $$sudo $(APT) install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
endef
deps:
	$(call install-packages,$(PACKAGES))
test-deps:
	$(call install-packages,$(PACKAGES) $(TEST_PACKAGES))

all: $(BUILD)/offwind $(BUILD)/offwind_sqlite.so library

# ---- one build: a directory and its flags; called for the program and for the sanitizers ----

# $(1) directory, $(2) variable holding the flags, $(3) variable holding what libagent.a has
define build-in
$(1)/%.o: %.c | $$(GENERATED)
	@mkdir -p $$(@D)
	$$(call say,CC,$$@)$$(CC) $$(CPPFLAGS) $$(OUR_CFLAGS) $$($(2)) -MMD -MP -c -o $$@ $$<
$(1)/%.pb-c.o: $$(GEN)/%.pb-c.c | $$(GENERATED)
	@mkdir -p $$(@D)
	$$(call say,CC,$$@)$$(CC) $$(CPPFLAGS) -std=c17 $$($(2)) -MMD -MP -c -o $$@ $$<
$(1)/liboffwind.a: $$(UNWINDER_C:%.c=$(1)/%.o)
	@rm -f $$@; ar rcs $$@ $$^
$(1)/libagent.a: $$($(3):%.c=$(1)/%.o) $$(PROTOS:%.proto=$(1)/%.pb-c.o)
	@rm -f $$@; ar rcs $$@ $$^
$(1)/offwind: $(1)/agent/cmd/main.o $(1)/libagent.a $(1)/liboffwind.a
	$$(call say,LD,$$@)$$(CC) $$($(2)) $$(LDFLAGS) -o $$@ $$^ $$(PROGRAM_LDLIBS)
$(1)/tests/%: $(1)/tests/%.o $(1)/libagent.a $(1)/liboffwind.a
	$$(call say,LD,$$@)$$(CC) $$($(2)) $$(LDFLAGS) -o $$@ $$^ $$(LDLIBS)
endef

# What compares and times other unwinders: tests/peers/ and the libraries they stand for.
PEERS_C := $(wildcard tests/peers/*.c)
PEERS := tests/bench/walks tests/diff/peers tests/diff/walk_allocations
# $(1) directory, $(2) variable holding the flags
define build-peers
$(PEERS:%=$(1)/%): $(1)/%: $(1)/%.o $(PEERS_C:%.c=$(1)/%.o) $(1)/libagent.a $(1)/liboffwind.a
	$$(call say,LD,$$@)$$(CC) $$($(2)) $$(LDFLAGS) -o $$@ $$^ -lunwind-$$(shell uname -m) -lunwind $$(LDLIBS) -lm
endef

# What fuzz targets, which are libFuzzer programs of clang's, and all other tests with sanitizers link.
# The calls that tell libFuzzer which values are compared take half of the time of code that computes. They guide
# only searches: make fuzz COMPARES=1 BUILD=build-compares.
ASAN_FLAGS := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
	$(if $(COMPARES),,-fno-sanitize-coverage=trace-cmp)
$(BUILD)/asan/%: override CC := $(CLANG)
# Optimising a unit test takes longer than running it does.
$(BUILD)/asan/tests/unit/%.o: ASAN_FLAGS += -O0
$(BUILD)/asan/tests/fuzz/fuzz_%: LDFLAGS += -fsanitize=fuzzer
# They are many, and lld takes a third of the time that ld takes. A test knows the length of its own build-id.
$(BUILD)/asan/tests/fuzz/fuzz_% $(BUILD)/asan/tests/unit/test_%: LDFLAGS += -fuse-ld=lld -Wl,--build-id=sha1
$(eval $(call build-in,$(BUILD),CFLAGS,REST_C))
$(eval $(call build-in,$(BUILD)/asan,ASAN_FLAGS,REST_C))
$(eval $(call build-peers,$(BUILD),CFLAGS))
$(eval $(call build-peers,$(BUILD)/asan,ASAN_FLAGS))

# TSan is for one program (tests/diff/walk_ways.c), so only these parts of the agent are compiled for it.
TSAN_FLAGS := -O1 -g -fsanitize=thread
TSAN_C := agent/cli/input.c $(filter-out agent/role/filters.c,$(wildcard agent/*.c proto/*.c symbolizer/*/*.c \
	$(patsubst %,agent/%/*.c,opener owc perfdata process role source store store/tables)))
$(eval $(call build-in,$(BUILD)/tsan,TSAN_FLAGS,TSAN_C))

# The library that others link, and the store's virtual tables for the stock sqlite3 shell.
PIC_FLAGS := $(CFLAGS) -fPIC
$(eval $(call build-in,$(BUILD)/pic,PIC_FLAGS,REST_C))
EXTENSION_C := agent/store/query/extension.c agent/store/query/vtab.c agent/store/tables/stored.c agent/store/key.c agent/store/db_errno.c $(wildcard symbolizer/*.c symbolizer/*/*.c)
$(BUILD)/offwind_sqlite.so: $(EXTENSION_C:%.c=$(BUILD)/pic/%.o) $(BUILD)/pic/liboffwind.a agent/store/query/extension.map
	$(call say,LD,$@)$(CC) -shared $(CFLAGS) $(LDFLAGS) -o $@ $(filter-out %.map,$^) -Wl,--version-script=agent/store/query/extension.map -Wl,--no-undefined -Wl,--gc-sections -lzstd -llzma -lz -liberty

# liboffwind as it is installed: nothing can be seen of it but what its version
# script lists, which is made of what the public headers declare.  The static one is a single object for that reason.
ABI := 0
PUBLIC_H := $(filter-out unwinder/rule.h,$(wildcard unwinder/*.h))
# Those that include the others.
MAIN_H := unwinder/unwinder.h unwinder/cursor.h unwinder/walker.h
LIB := $(BUILD)/lib
PRIVATE_LIBS := -lzstd -llzma -lz -lpthread
$(LIB)/liboffwind.map: $(PUBLIC_H) deploy/man3.py
	@mkdir -p $(@D)
	@{ echo 'OFFWIND_0 {'; echo 'global:'; python3 deploy/man3.py --names $(MAIN_H) | sed 's/$$/;/'; echo 'local: *;'; echo '};'; } > $@
$(LIB)/liboffwind.so.$(VERSION): $(UNWINDER_C:%.c=$(BUILD)/pic/%.o) $(LIB)/liboffwind.map
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,-soname,liboffwind.so.$(ABI) -Wl,--version-script=$(LIB)/liboffwind.map \
	  -Wl,--no-undefined -o $@ $(filter %.o,$^) $(PRIVATE_LIBS)
	@ln -sf $(@F) $(LIB)/liboffwind.so.$(ABI); ln -sf $(@F) $(LIB)/liboffwind.so
$(LIB)/liboffwind.a: $(UNWINDER_C:%.c=$(BUILD)/pic/%.o) $(LIB)/liboffwind.map
	@mkdir -p $(@D)
	$(call say,AR,$@)grep '^uw_' $(LIB)/liboffwind.map | tr -d ';' > $(LIB)/names && \
	  ld -r -o $(LIB)/liboffwind.o $(filter %.o,$^) && objcopy --keep-global-symbols=$(LIB)/names $(LIB)/liboffwind.o && \
	  rm -f $@ && ar rcs $@ $(LIB)/liboffwind.o
$(LIB)/man3/liboffwind.3: $(PUBLIC_H) deploy/man3.py examples/snapshot.c
	@mkdir -p $(@D)
	$(call say,MAN,$(@D))rm -f $(@D)/*.3; python3 deploy/man3.py $(VERSION) $(@D) $(MAIN_H) --example examples/snapshot.c
.PHONY: library
library: $(LIB)/liboffwind.so.$(VERSION) $(LIB)/liboffwind.a $(LIB)/man3/liboffwind.3 $(BUILD)/libunwind-offwind.so \
	$(LIB)/liboffwind-dynamic.so $(LIB)/liboffwind-dynamic.a

# libunwind's remote functions over the unwinder, for programs that were linked with libunwind.
COMPAT_C := $(wildcard compat/*.c)
COMPAT_O := $(patsubst %.c,$(BUILD)/pic/%.o,$(COMPAT_C) $(UNWINDER_C) $(wildcard symbolizer/*.c symbolizer/*/*.c) \
	agent/io.c $(addprefix agent/source/,core.c core_mappings.c core_notes.c frozen.c memory_image.c linkmap.c machine.c source.c))
$(BUILD)/libunwind-offwind.so: $(COMPAT_O) compat/libunwind.map
	$(call say,LD,$@)$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,-soname,libunwind-offwind.so -Wl,--version-script=compat/libunwind.map \
	  -Wl,--no-undefined -Wl,--gc-sections -o $@ $(COMPAT_O) $(PRIVATE_LIBS) -liberty

# What programs that generate code link: a list, and two functions that keep it.
$(LIB)/liboffwind-dynamic.so: $(BUILD)/pic/generator/register.o generator/dynamic.map
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,-soname,liboffwind-dynamic.so.1 \
	  -Wl,--version-script=generator/dynamic.map -o $@ $(filter %.o,$^)
	@ln -sf $(@F) $@.1
$(LIB)/liboffwind-dynamic.a: $(BUILD)/pic/generator/register.o
	@mkdir -p $(@D); rm -f $@; ar rcs $@ $^

.SECONDARY:

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h &: %.proto
	@mkdir -p $(@D)
	$(call say,PROTO,$<)protoc-c --c_out=$(GEN) $<

# Each file a string: the migrations that the agent carries, in order.
.SECONDEXPANSION:
$(SQL_H): $(GEN)/schema/%_sql.h: $$(sort $$(wildcard schema/%_[0-9].sql))
	@mkdir -p $(@D)
	$(call say,SQL,$@){ echo 'static const char *const $*_sql[] = {'; \
	  for f in $^; do sed -e 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n"/' $$f; echo ','; done; echo '};'; } > $@.tmp && mv $@.tmp $@

# The description of what the daemon serves, a string for each line.
$(OPENAPI_H): docs/openapi.yaml
	@mkdir -p $(@D)
	$(call say,YAML,$@){ echo 'static const char *const openapi_text[] = {'; \
	  sed -e 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n",/' $<; echo '};'; } > $@.tmp && mv $@.tmp $@

# The filters of system calls, as C: libseccomp makes them here, and not whenever a process begins.
$(FILTERS_H): agent/role/filters.c
	@mkdir -p $(@D)
	$(call say,CC,$(BUILD)/filters)$(CC) $(CPPFLAGS) $(OUR_CFLAGS) $(CFLAGS) -o $(BUILD)/filters $< -lseccomp
	$(call say,BPF,$@)$(BUILD)/filters > $@.tmp && mv $@.tmp $@

# ---- from npm: no code of others' is kept here; lock files pin each package's version and hash ----

# $(1) folder of package.json and package-lock.json, $(2) where node_modules is to lie.  Once it is
# there, nothing is fetched again; npm's own cache serves other build folders.
NPM_CI := npm ci --ignore-scripts --prefer-offline --no-audit --no-fund --no-update-notifier \
	--fetch-retries=4 --fetch-retry-mintimeout=1000 --fetch-retry-factor=3 --fetch-timeout=60000
define npm-fetch
$(2)/fetched: $(1)/package.json $(1)/package-lock.json
	@rm -rf $(2); mkdir -p $(2); cp $$^ $(2)
	$$(call say,NPM,$(1))cd $(2) && $$(NPM_CI) >log 2>&1 || { tail -n 5 log >&2; \
	  echo "$(1): the npm packages of its package-lock.json could not be fetched; the first build needs npm and a network" >&2; exit 1; }
	@touch $$@
endef
$(eval $(call npm-fetch,$(PAGE),$(BUILD)/npm/page))
# What the tests read our files with.
$(eval $(call npm-fetch,tests/npm,$(BUILD)/npm/tests))

# The page around a flame graph's data, in pieces: libraries, script and style, and their licences.
$(PAGE_H) $(BUILD)/page-licences.txt $(BUILD)/page-hashes.json &: $(wildcard $(PAGE)/*.mjs $(PAGE)/*.html $(PAGE)/*.css $(PAGE)/*.js) $(BUILD)/npm/page/fetched
	@mkdir -p $(@D)
	$(call say,PAGE,$(PAGE_H))node $(PAGE)/build.mjs $(PAGE) $(BUILD)/npm/page/node_modules $(PAGE_H) $(BUILD)/page-licences.txt $(BUILD)/page-hashes.json

# The daemon's page, which shows flame graphs in a frame, and its content security policy.
$(DAEMON_PAGE_H): $(wildcard $(DAEMON_PAGE)/*.*) $(PAGE)/embed.mjs $(PAGE)/theme.css $(BUILD)/page-hashes.json
	@mkdir -p $(@D)
	$(call say,PAGE,$@)node $(DAEMON_PAGE)/build.mjs $(DAEMON_PAGE) $(PAGE)/theme.css $(BUILD)/page-hashes.json $@

BPF_ARCH := $(patsubst aarch64,arm64,$(patsubst x86_64,x86,$(shell uname -m)))
$(BUILD)/%.bpf.o: %.bpf.c
	@mkdir -p $(@D)
	$(call say,BPF,$@)$(CLANG) -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -D__TARGET_ARCH_$(BPF_ARCH) \
	  -I. -I/usr/include/$(shell uname -m)-linux-gnu -MMD -MP -MT $@ -MF $(@:.o=.d) -c -o $@ $<
	@llvm-strip -g $@
$(GEN)/%.skel.h: $(BUILD)/%.bpf.o
	@mkdir -p $(@D)
	$(BPFTOOL) gen skeleton $< name $(notdir $*) > $@.tmp && mv $@.tmp $@

# ---- tests ------------------------------------------------------------------

UNIT_C := $(wildcard tests/unit/test_*.c)
UNIT := $(UNIT_C:%.c=$(BUILD)/%)
UNIT_ASAN := $(UNIT_C:%.c=$(BUILD)/asan/%)
# What test and benchmark scripts run: $BUILD/tests/diff/NAME, and $BUILD/asan/tests/fuzz/fuzz_NAME.
HELPER_C := $(wildcard tests/bench/*.c tests/cases/*.c tests/diff/*.c tests/faults/*.c tests/live/*.c)
FUZZ_C := $(wildcard tests/fuzz/fuzz_*.c)
# Those that scripts run with sanitizers, too.
HELPER_ASAN := $(addprefix $(BUILD)/asan/tests/,cases/step_cases faults/store_faults \
	$(addprefix diff/,cfi_dump cfi_libdw perfdata_dump sym_dump table_oracle walk_ways))
PROGRAMS := $(HELPER_C:%.c=$(BUILD)/%) $(HELPER_ASAN) $(FUZZ_C:%.c=$(BUILD)/asan/%) $(BUILD)/tsan/tests/diff/walk_ways

# One target is for the library that stands for libunwind.
$(BUILD)/asan/tests/fuzz/fuzz_compat: %: %.o $(COMPAT_C:%.c=$(BUILD)/asan/%.o) $(BUILD)/asan/libagent.a $(BUILD)/asan/liboffwind.a
	$(call say,LD,$@)$(CC) $(ASAN_FLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The program, under ASan, with one call that fails.  The object file refers to each function that it wraps as __real_NAME.
INJECT := tests/faults/inject/inject
$(BUILD)/asan/$(INJECT): $(BUILD)/asan/$(INJECT).o $(BUILD)/asan/agent/cmd/main.o $(BUILD)/asan/libagent.a $(BUILD)/asan/liboffwind.a
	$(call say,LD,$@)$(CC) $(ASAN_FLAGS) $(LDFLAGS) $$(nm -u $< | sed -n 's/.*__real_/-Wl,--wrap=/p') -o $@ $^ $(PROGRAM_LDLIBS)

tests: $(UNIT) $(UNIT_ASAN) $(PROGRAMS) $(BUILD)/asan/$(INJECT) $(BUILD)/asan/offwind $(BUILD)/npm/tests/fetched

# The unwinder and its unit tests for aarch64, run under qemu by tests/cases/aarch64_qemu.sh, which
# unpacks Debian's arm64 packages of the three compression libraries first.  Return addresses are
# signed and functions have landing pads, as distributions build them.
AARCH64 := $(BUILD)/aarch64
AARCH64_CC ?= aarch64-linux-gnu-gcc
AARCH64_ROOT := $(BUILD)/arm64/root
AARCH64_UNIT := $(patsubst %.c,$(AARCH64)/%,$(shell grep -LE '"(agent|symbolizer|proto|compat|bpf)/' $(UNIT_C)))
$(AARCH64)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$@)$(AARCH64_CC) $(CPPFLAGS) $(OUR_CFLAGS) -mbranch-protection=standard $(CFLAGS) -idirafter $(AARCH64_ROOT)/usr/include \
	  -idirafter $(AARCH64_ROOT)/usr/include/aarch64-linux-gnu -MMD -MP -c -o $@ $<
$(AARCH64)/tests/%: $(AARCH64)/tests/%.o $(UNWINDER_C:%.c=$(AARCH64)/%.o)
	$(call say,LD,$@)$(AARCH64_CC) -o $@ $^ $(patsubst %,$(AARCH64_ROOT)/usr/lib/aarch64-linux-gnu/lib%.a,zstd lzma z) -lpthread
.PHONY: aarch64
aarch64: $(AARCH64_UNIT)

check: test-deps
	@$(MAKE) --no-print-directory $(JOBS) WERROR=1 all tests
	@BUILD=$(BUILD) tests/run

# Every row of every installed file, and arm64's, against libdw's.
check-corpus: test-deps
	@$(MAKE) --no-print-directory $(JOBS) WERROR=1 all tests
	@BUILD=$(BUILD) ASAN_OPTIONS= tests/diff/cfi_libdw.sh all

# Every allocation and every call of input and output fails once; each hostile program has a recording of its own: minutes.
check-faults: test-deps
	@$(MAKE) --no-print-directory $(JOBS) WERROR=1 all tests
	@BUILD=$(BUILD) OFFWIND_DB= OFFWIND_ALL_FAILURES=1 tests/faults/each_failure.sh
	@BUILD=$(BUILD) OFFWIND_DB= OFFWIND_ALL_FAILURES=1 tests/faults/hostile.sh

# A search from a random start, TIME seconds for each fuzz target, as many at a time as there are CPUs.
TIME ?= 600
fuzz: test-deps
	@$(MAKE) --no-print-directory $(JOBS) WERROR=1 all tests
	@BUILD=$(BUILD) tests/fuzz/search $(TIME)

# Recording on other kernels, under qemu: minutes for each, and it fetches them.
check-kernels: test-deps
	@$(MAKE) --no-print-directory $(JOBS) WERROR=1 all $(addprefix $(BUILD)/tests/live/,alloc source target)
	@BUILD=$(BUILD) tests/kernels.sh $(KERNEL)

# The daemon for MINUTES beside compilers and short shells: does it grow, does it lose samples, do the sums add up?
MINUTES ?= 30
HZ ?= 999
check-soak: test-deps all
	@tests/soak.py $(BUILD)/offwind $(MINUTES) $(HZ)

bench: test-deps all
	@set -o pipefail; mkdir -p $(BUILD)/bench; for b in $(filter-out %/capture.sh,$(wildcard tests/bench/*.sh)); do \
	  echo "== $$b"; OFFWIND_DB= BUILD=$(BUILD) $$b | tee $(BUILD)/bench/$$(basename $$b .sh).txt || exit 1; \
	done

# Recording beside perf's, minutes long: real programs at four frequencies.
bench-capture: test-deps all
	@mkdir -p $(BUILD)/bench; BUILD=$(BUILD) tests/bench/capture.sh | tee $(BUILD)/bench/capture.txt

# ---- use ----------------------------------------------------------------------

run: deps
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/offwind
	@deploy/run.sh $(BUILD)

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(BUILD)/offwind $(DESTDIR)$(PREFIX)/bin/offwind
	ln -sf offwind $(DESTDIR)$(PREFIX)/bin/perf_to_profile
	install -D -m 644 $(BUILD)/offwind_sqlite.so $(DESTDIR)$(PREFIX)/lib/offwind/offwind_sqlite.so
	install -D -m 644 $(BUILD)/page-licences.txt $(DESTDIR)$(PREFIX)/share/doc/offwind/page-licences.txt
	install -D -m 644 $(LIB)/liboffwind-dynamic.so $(DESTDIR)$(LIBDIR)/liboffwind-dynamic.so.1
	ln -sf liboffwind-dynamic.so.1 $(DESTDIR)$(LIBDIR)/liboffwind-dynamic.so
	install -m 644 $(LIB)/liboffwind-dynamic.a $(DESTDIR)$(LIBDIR)/liboffwind-dynamic.a
	install -D -m 644 generator/dynamic.h $(DESTDIR)$(PREFIX)/include/offwind/dynamic.h
	install -m 644 deploy/offwind.1 $(DESTDIR)$(PREFIX)/share/man/man1/offwind.1
	ln -sf offwind.1 $(DESTDIR)$(PREFIX)/share/man/man1/perf_to_profile.1
	install -D -m 644 deploy/offwind-daemon.8 $(DESTDIR)$(PREFIX)/share/man/man8/offwind-daemon.8
	install -D -m 644 deploy/offwind.conf.5 $(DESTDIR)$(PREFIX)/share/man/man5/offwind.conf.5
	[ -e $(DESTDIR)/etc/offwind/offwind.conf ] || \
	  install -D -m 644 deploy/offwind.conf $(DESTDIR)/etc/offwind/offwind.conf
	install -D -m 644 deploy/offwind.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/offwind
	install -D -m 644 deploy/_offwind $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_offwind
	install -D -m 644 deploy/offwind.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/offwind.fish
	install -D -m 644 deploy/offwind.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/offwind.conf
	install -D -m 644 deploy/offwind.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/offwind.socket
	install -D -m 644 deploy/perf-event-paranoid.conf $(DESTDIR)$(PREFIX)/lib/systemd/system/offwind.service.d/perf-event-paranoid.conf
	sed 's,/usr/bin/offwind,$(PREFIX)/bin/offwind,' deploy/offwind.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/offwind.service
	install -d $(DESTDIR)$(PREFIX)/include/offwind $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/share/man/man3
	for h in $(PUBLIC_H); do sed 's,#include "unwinder/,#include "offwind/,' $$h >$(DESTDIR)$(PREFIX)/include/offwind/$${h##*/} || exit 1; done
	install -m 644 $(LIB)/liboffwind.so.$(VERSION) $(LIB)/liboffwind.a $(DESTDIR)$(LIBDIR)
	ln -sf liboffwind.so.$(VERSION) $(DESTDIR)$(LIBDIR)/liboffwind.so.$(ABI)
	ln -sf liboffwind.so.$(ABI) $(DESTDIR)$(LIBDIR)/liboffwind.so
	sed -e 's,@PREFIX@,$(PREFIX),; s,@LIBDIR@,$(LIBDIR),; s,@VERSION@,$(VERSION),; s,@PRIVATE@,$(PRIVATE_LIBS),' deploy/liboffwind.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/liboffwind.pc
	install -D -m 755 $(BUILD)/libunwind-offwind.so $(DESTDIR)$(PREFIX)/lib/offwind/libunwind-offwind.so
	install -m 644 $(LIB)/man3/*.3 $(DESTDIR)$(PREFIX)/share/man/man3

# What install puts there, and nothing else: folders stay, but for offwind's own, and so do settings that were changed.
uninstall:
	cd $(DESTDIR)$(PREFIX) && rm -f bin/offwind bin/perf_to_profile share/man/man1/offwind.1 share/man/man1/perf_to_profile.1 \
	  share/man/man8/offwind-daemon.8 share/man/man5/offwind.conf.5 \
	  share/bash-completion/completions/offwind share/zsh/site-functions/_offwind share/fish/vendor_completions.d/offwind.fish share/doc/offwind/page-licences.txt \
	  lib/offwind/offwind_sqlite.so lib/offwind/libunwind-offwind.so lib/systemd/system/offwind.service lib/systemd/system/offwind.socket lib/systemd/system/offwind.service.d/perf-event-paranoid.conf lib/sysusers.d/offwind.conf \
	  include/offwind/dynamic.h $(PUBLIC_H:unwinder/%=include/offwind/%) $(patsubst $(LIB)/man3/%,share/man/man3/%,$(wildcard $(LIB)/man3/*.3))
	cd $(DESTDIR)$(LIBDIR) && rm -f pkgconfig/liboffwind.pc liboffwind.so liboffwind.so.$(ABI) liboffwind.so.$(VERSION) liboffwind.a \
	  liboffwind-dynamic.so liboffwind-dynamic.so.1 liboffwind-dynamic.a
	! cmp -s deploy/offwind.conf $(DESTDIR)/etc/offwind/offwind.conf || { rm $(DESTDIR)/etc/offwind/offwind.conf && rmdir --ignore-fail-on-non-empty $(DESTDIR)/etc/offwind; }
	cd $(DESTDIR)$(PREFIX) && for d in include/offwind lib/offwind lib/systemd/system/offwind.service.d share/doc/offwind; do [ ! -d $$d ] || rmdir --ignore-fail-on-non-empty $$d; done

# Debian's packages.  OBJECTS: a build directory whose object files are taken instead of new ones, for tests.
DEB_DIR ?= $(BUILD)/deb
DEB_PACKAGES := build-essential debhelper dpkg-dev lintian
deb: tree := $(DEB_DIR)/offwind-$(VERSION)
deb: deps
	$(call install-packages,$(DEB_PACKAGES))
	@$(MAKE) --no-print-directory $(PAGE_H)
	rm -rf $(tree); mkdir -p $(tree)/build/gen/$(PAGE)
	tar -c --exclude=./.git --exclude='./build*' . | tar -x -C $(tree)
	cp -a $(BUILD)/npm $(BUILD)/page-licences.txt $(tree)/build && cp -a $(PAGE_H) $(tree)/build/gen/$(PAGE)
	$(if $(OBJECTS),tar -c -C $(OBJECTS) agent base bpf gen pic proto symbolizer unwinder | tar -x -C $(tree)/build)
	cd $(tree) && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS dpkg-buildpackage -us -uc -b -nc -Jauto
	lintian --fail-on error,warning $(DEB_DIR)/offwind_$(VERSION)_*.changes

format:
	clang-format -i $$(find $(LIBRARY) bpf schema tests examples -name '*.[ch]')

# Write the commands' options into the manual pages.  The pages are in the repository, so that no build has to run the program.
man: $(BUILD)/offwind
	python3 deploy/man1.py $< deploy/offwind.1 deploy/offwind-daemon.8

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) \( -path $(BUILD)/arm64/root -o -path $(BUILD)/kernels \) -prune -o -type f -name '*.d' -print 2>/dev/null)
