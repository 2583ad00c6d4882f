// A libnvidia-ml.so.1 of a host with two linked GPUs, for tests. It looks into
// the folder $FAKE_NVML: "hang" makes counting block for ever, "lost" loses GPU 1,
// "remap" makes GPU 0 want a reset, "pid" holds a process that uses GPU 1, "xid"
// holds the number of an error of GPU 1, given once, "busy" and "used" hold the
// percent and the MiB of both, which GPU 1 does not tell with "parts", and "slow"
// makes asking for them block. "mig" enables MIG, "olddriver" leaves fields out, and
// "ecc" and "action" hold those of GPU 0. With "vanished", GPU 0 is not listed, and GPU 1
// has its index. "storm" holds the number of an error that comes 10,000 times, followed by 79.
// "narrow" halves the PCIe lanes of GPU 0, and "unfit" fails its remap. Only GPU 0 has a profile (GPM), in which
// each metric is its number. -DOLD leaves functions out.
//
// Both GPUs have MIG with the profiles and places of an H100; instances end with the process, and overlap is
// refused. "mig_held" makes changes answer IN_USE, "mig_reset" makes MIG mode wait for a reset, "mig_narrow" leaves the
// places of 3g.40gb out, and "gi" holds the number of the GPU instance of the errors of GPU 1.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct { int index; struct gi *part; } dev;
static dev devs[2] = {{0}, {1}};
typedef struct { uint start, size; } place;
typedef struct gi { dev *d; int used, ci, slices; uint id, profile; place at; const char *name; dev handle; } gi;
static int modes[2];
static gi parts[2][8];
static int number(const char *name) {
	char path[512]; int n = 1; FILE *f;
	const char *dir = getenv("FAKE_NVML");
	snprintf(path, sizeof path, "%s/%s", dir ? dir : "/nowhere", name);
	if (!(f = fopen(path, "r"))) return 0;
	if (fscanf(f, "%d", &n) != 1) n = 1;
	fclose(f);
	return n;
}
static void taken(const char *name) {
	char path[512];
	snprintf(path, sizeof path, "%s/%s", getenv("FAKE_NVML"), name);
	unlink(path);
}
int nvmlInit_v2(void) { memset(modes, 0, sizeof modes); memset(parts, 0, sizeof parts); return number("nodriver") ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int r) { return "fake"; }
int nvmlSystemGetDriverVersion(char *s, uint n) { snprintf(s, n, "999.1"); return 0; }
int nvmlDeviceGetCount_v2(uint *n) { while (number("hang")) sleep(1); *n = 2 - number("vanished"); return 0; }
int nvmlDeviceGetSerial(dev *d, char *s, uint n) { snprintf(s, n, "serial-%d", d->index); return 0; }
int nvmlDeviceGetHandleByIndex_v2(uint i, dev **d) { i += number("vanished"); if (i > 1) return 2; if (i == 1 && number("lost")) return 15; *d = &devs[i]; return 0; }
int nvmlDeviceGetUUID(dev *d, char *s, uint n) { if (d->part) snprintf(s, n, "MIG-fake-%d-%d", d->index, d->part->id); else snprintf(s, n, "GPU-fake-%d", d->index); return 0; }
int nvmlDeviceGetName(dev *d, char *s, uint n) { snprintf(s, n, "NVIDIA H100 80GB HBM3%s%s", d->part ? " MIG " : "", d->part ? d->part->name : ""); return 0; }
int nvmlDeviceGetMemoryInfo(dev *d, ull *m) { m[0] = (d->part ? 10ull * d->part->at.size : 80ull) << 30; m[2] = 1ull << 30; m[1] = m[0] - m[2]; return 0; }
int nvmlDeviceGetUtilizationRates(dev *d, uint *u) {
	while (number("slow")) usleep(1000);
	if (d->index == 1 && number("parts")) return 3;
	u[0] = number("busy"), u[1] = 0;
	return 0;
}
int nvmlDeviceGetMinorNumber(dev *d, uint *n) { *n = 3 - d->index; return 0; }
typedef struct { char legacy[16]; uint domain, bus, device, id, sub; char bus_id[32]; } pci;
static int where(int i, pci *p) { memset(p, 0, sizeof *p); p->bus = 0x1b + i; return 0; }
#ifndef OLD
int nvmlDeviceGetPciInfo_v3(dev *d, pci *p) { return where(d->index, p); }
int nvmlDeviceGetNvLinkState(dev *d, uint l, int *on) { *on = l == 0; return l < 18 ? 0 : 2; }
int nvmlDeviceGetNvLinkRemoteDeviceType(dev *d, uint l, int *t) { *t = 0; return 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(dev *d, uint l, pci *p) { return where(1 - d->index, p); }
int nvmlDeviceGetRemappedRows(dev *d, uint *c, uint *u, uint *p, uint *f) { *c = *u = 0; *f = d->index == 0 && number("unfit"); *p = d->index == 0 && number("remap"); return 0; }
typedef struct { uint version; ull total, reserved, free, used; } memory2;
int nvmlDeviceGetMemoryInfo_v2(dev *d, memory2 *m) {
	if (d->index == 1 && number("parts")) return 3;
	m->total = 80ull << 30; m->used = (ull)number("used") << 20;
	return 0;
}
int nvmlDeviceGetPowerUsage(dev *d, uint *mw) { *mw = 350500 + d->index; return 0; }
int nvmlDeviceGetTemperature(dev *d, int sensor, uint *t) { *t = 40 + d->index; return sensor ? 2 : 0; }
int nvmlDeviceGetClockInfo(dev *d, int type, uint *mhz) { *mhz = 1980; return type == 1 ? 0 : 3; }
int nvmlDeviceGetCurrPcieLinkWidth(dev *d, uint *w) { *w = d->index == 0 && number("narrow") ? 8 : 16; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(dev *d, uint *w) { *w = 16; return 0; }
static struct { uint id; const char *name; int slices; uint size, count, starts[7]; } profiles[] = {
	[0] = {19, "MIG 1g.10gb", 1, 1, 7, {0, 1, 2, 3, 4, 5, 6}}, [1] = {14, "MIG 2g.20gb", 2, 2, 3, {0, 2, 4}},
	[2] = {9, "MIG 3g.40gb", 3, 4, 2, {0, 4}}, [3] = {5, "MIG 4g.40gb", 4, 4, 1, {0}}, [4] = {0, "MIG 7g.80gb", 7, 8, 1, {0}},
	[9] = {15, "MIG 1g.20gb", 1, 2, 4, {0, 2, 4, 6}},
};
enum { PROFILES = sizeof profiles / sizeof *profiles };
static int find(uint id) { for (int i = 0; i < PROFILES; i++) if (profiles[i].name && profiles[i].id == id) return i; return -1; }
int nvmlDeviceGetMigMode(dev *d, uint *now, uint *later) { *now = *later = modes[d->index] || number("mig"); return 0; }
int nvmlDeviceSetMigMode(dev *d, uint mode, int *status) {
	*status = 0;
	if (number("mig_held")) return 19;
	if (number("mig_reset")) { *status = 16; return 0; }
	modes[d->index] = mode;
	return 0;
}
typedef struct { uint version, id, p2p, slices, count, mp, ce, dec, enc, jpeg, ofa; ull mb; char name[96]; } profile2;
int nvmlDeviceGetGpuInstanceProfileInfoV(dev *d, uint i, profile2 *p) {
	if (i >= PROFILES || !profiles[i].name) return 3;
	p->id = profiles[i].id; p->slices = profiles[i].slices; p->count = profiles[i].count; p->mb = profiles[i].size * 9856;
	snprintf(p->name, sizeof p->name, "%s", profiles[i].name);
	return 0;
}
int nvmlDeviceGetGpuInstancePossiblePlacements_v2(dev *d, uint id, place *p, uint *n) {
	int i = find(id);
	if (i < 0) return 2;
	*n = id == 9 && number("mig_narrow") ? 0 : profiles[i].count;
	for (uint k = 0; p && k < *n; k++) p[k] = (place){profiles[i].starts[k], profiles[i].size};
	return 0;
}
int nvmlDeviceCreateGpuInstanceWithPlacement(dev *d, uint id, place *p, gi **out) {
	int i = find(id), right = 0;
	if (i < 0 || !modes[d->index]) return 2;
	if (number("mig_held")) return 19;
	for (uint k = 0; k < profiles[i].count; k++) right |= profiles[i].starts[k] == p->start && profiles[i].size == p->size;
	if (!right) return 2;
	for (int k = 0; k < 8; k++) {
		gi *o = &parts[d->index][k];
		if (o->used && p->start < o->at.start + o->at.size && o->at.start < p->start + p->size) return 23;
	}
	for (int k = 0; k < 8; k++) {
		gi *g = &parts[d->index][k];
		if (g->used) continue;
		*g = (gi){d, 1, 0, profiles[i].slices, k + 1, id, *p, profiles[i].name + 4, {d->index, g}};
		*out = g;
		return 0;
	}
	return 23;
}
int nvmlDeviceGetGpuInstances(dev *d, uint id, gi **list, uint *n) {
	*n = 0;
	for (int k = 0; k < 8; k++) if (parts[d->index][k].used && parts[d->index][k].profile == id) list[(*n)++] = &parts[d->index][k];
	return 0;
}
int nvmlGpuInstanceDestroy(gi *g) { if (g->ci || number("mig_held")) return 19; g->used = 0; return 0; }
typedef struct { uint id, slices, count, rest[6]; } compute;
static int sizes[] = {1, 2, 3, 4, 7};
int nvmlGpuInstanceGetComputeInstanceProfileInfo(gi *g, uint i, uint engine, compute *c) {
	if (i > 4 || engine || sizes[i] > g->slices) return 3;
	c->id = i; c->slices = sizes[i]; c->count = 1;
	return 0;
}
int nvmlGpuInstanceGetComputeInstances(gi *g, uint id, gi **list, uint *n) { *n = g->ci == id + 1; *list = g; return 0; }
int nvmlGpuInstanceCreateComputeInstance(gi *g, uint id, gi **out) { if (g->ci) return 23; g->ci = id + 1; *out = g; return 0; }
int nvmlComputeInstanceDestroy(gi *g) { if (number("mig_held")) return 19; g->ci = 0; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(dev *d, uint *n) { *n = 8; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(dev *d, uint i, dev **out) {
	if (i > 7 || !parts[d->index][i].used || !parts[d->index][i].ci) return 6;
	*out = &parts[d->index][i].handle;
	return 0;
}
int nvmlDeviceGetGpuInstanceId(dev *d, uint *id) { if (!d->part) return 2; *id = d->part->id; return 0; }
int nvmlDeviceGetComputeInstanceId(dev *d, uint *id) { *id = 0; return d->part ? 0 : 2; }
typedef struct { uint field, scope; long long at, took; int type, ret; ull value; } field;
enum { UINT = 1, ULL = 3, SINT = 5, USHORT = 6 };
static int answer(dev *d, field *f) {
	f->type = UINT;
	f->value = 0xdeadbeef00000000ull; // 32 bits count
	switch (f->field) {
	case 3: f->type = ULL, f->value = 1ull << 40; return 0;
	case 4: f->type = ULL, f->value = d->index ? 0 : number("ecc"); return 0;
	case 74: f->type = ULL, f->value = 2000000000ull; return 0;
	case 75: f->type = ULL, f->value = 4000000000ull; return 0;
	case 82: if (d->index) return 0; f->type = SINT, f->value |= 50; return 0;
	case 83: f->type = ULL, f->value = 5000000; return 0;
	case 94: f->value |= 7; return 0;
	case 138: case 139: f->type = ULL, f->value = f->field; return f->scope == 0xffffffff ? 0 : 2;
	case 142: f->value |= 1; return 0;
	case 143: f->type = USHORT, f->value = 0xabcd00000002ull; return 0;
	case 144: f->value |= d->index == 0 && number("remap"); return 0;
	case 230: f->value |= d->index ? 0 : number("action"); return 0;
	case 269: case 270: f->type = ULL, f->value = 1000000000ull * (f->field - 268); return number("olddriver") ? 2 : 0;
	}
	return 3;
}
int nvmlDeviceGetFieldValues(dev *d, int n, field *f) {
	for (int i = 0; i < n; i++) f[i].ret = answer(d, &f[i]);
	return 0;
}
typedef struct { uint version, supported; } support;
typedef struct { uint id; int ret; double value; void *names[3]; } metric;
typedef struct { uint version, n; int *old, *new; metric list[]; } metrics;
static int samples;
int nvmlGpmQueryDeviceSupport(dev *d, support *s) { s->supported = d->index == 0; return s->version == 1 ? 0 : 2; }
int nvmlGpmSampleAlloc(int **s) { *s = calloc(1, sizeof **s); return 0; }
int nvmlGpmSampleGet(dev *d, int *s) { if (d->index) return 3; *s = ++samples; return 0; }
int nvmlGpmMetricsGet(metrics *m) {
	if (m->version != 1 || *m->new != *m->old + 1) return 2;
	for (uint i = 0; i < m->n; i++) {
		m->list[i].ret = 0;
		m->list[i].value = m->list[i].id;
		switch (m->list[i].id) {
		case 2: m->list[i].value = 140; break; // an impossible value
		case 5: m->list[i].ret = 3; break;
		case 10: m->list[i].value = 0.0 / 0.0; break;
		}
	}
	return 0;
}
typedef struct { uint pid; ull used; uint gi, ci; } proc;
int nvmlDeviceGetComputeRunningProcesses_v3(dev *d, uint *n, proc *p) {
	int pid = number("pid");
	if (d->index != 1 || d->part || !pid) { *n = 0; return 0; }
	if (*n < 1) { *n = 1; return 7; }
	*n = 1; memset(p, 0, sizeof *p); p->pid = pid;
	return 0;
}
typedef struct { dev *d; ull type, data; uint gi, ci; } event;
static void happen(event *e, int xid) {
	memset(e, 0, sizeof *e); e->d = &devs[1]; e->type = 8; e->data = xid;
	e->gi = number("gi") ? number("gi") : 0xffffffff; e->ci = 0xffffffff;
}
int nvmlEventSetCreate(void **s) { *s = &devs; return 0; }
int nvmlDeviceGetSupportedEventTypes(dev *d, ull *t) { *t = 0xf; return 0; }
int nvmlDeviceRegisterEvents(dev *d, ull t, void *s) { return 0; }
int nvmlEventSetWait_v2(void *s, event *e, uint ms) {
	static int storm;
	for (uint waited = 0; waited < ms; waited += 20) {
		int kind = storm || number("storm") ? number("storm") : 0;
		if (kind) {
			happen(e, kind);
			if (++storm > 10000) { e->data = 79; taken("storm"); storm = 0; }
			return 0;
		}
		int xid = number("xid");
		while (number("stuck")) sleep(1);
		if (xid) { taken("xid"); happen(e, xid); return 0; }
		usleep(20000);
	}
	return 10;
}
#endif
