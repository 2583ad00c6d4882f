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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct { int index; } dev;
static dev devs[2] = {{0}, {1}};
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
int nvmlInit_v2(void) { return number("nodriver") ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int r) { return "fake"; }
int nvmlSystemGetDriverVersion(char *s, uint n) { snprintf(s, n, "999.1"); return 0; }
int nvmlDeviceGetCount_v2(uint *n) { while (number("hang")) sleep(1); *n = 2 - number("vanished"); return 0; }
int nvmlDeviceGetSerial(dev *d, char *s, uint n) { snprintf(s, n, "serial-%d", d->index); return 0; }
int nvmlDeviceGetHandleByIndex_v2(uint i, dev **d) { i += number("vanished"); if (i > 1) return 2; if (i == 1 && number("lost")) return 15; *d = &devs[i]; return 0; }
int nvmlDeviceGetUUID(dev *d, char *s, uint n) { snprintf(s, n, "GPU-fake-%d", d->index); return 0; }
int nvmlDeviceGetName(dev *d, char *s, uint n) { snprintf(s, n, "NVIDIA H100 80GB HBM3"); return 0; }
int nvmlDeviceGetMemoryInfo(dev *d, ull *m) { m[0] = 80ull << 30; m[2] = 1ull << 30; m[1] = m[0] - m[2]; return 0; }
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
int nvmlDeviceGetMigMode(dev *d, uint *now, uint *later) { *now = *later = number("mig"); return 0; }
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
	if (d->index != 1 || !pid) { *n = 0; return 0; }
	if (*n < 1) { *n = 1; return 7; }
	*n = 1; memset(p, 0, sizeof *p); p->pid = pid;
	return 0;
}
typedef struct { dev *d; ull type, data; uint gi, ci; } event;
int nvmlEventSetCreate(void **s) { *s = &devs; return 0; }
int nvmlDeviceGetSupportedEventTypes(dev *d, ull *t) { *t = 0xf; return 0; }
int nvmlDeviceRegisterEvents(dev *d, ull t, void *s) { return 0; }
int nvmlEventSetWait_v2(void *s, event *e, uint ms) {
	static int storm;
	for (uint waited = 0; waited < ms; waited += 20) {
		int kind = storm || number("storm") ? number("storm") : 0;
		if (kind) {
			memset(e, 0, sizeof *e); e->d = &devs[1]; e->type = 8; e->data = kind;
			if (++storm > 10000) { e->data = 79; taken("storm"); storm = 0; }
			return 0;
		}
		int xid = number("xid");
		while (number("stuck")) sleep(1);
		if (xid) { taken("xid"); memset(e, 0, sizeof *e); e->d = &devs[1]; e->type = 8; e->data = xid; return 0; }
		usleep(20000);
	}
	return 10;
}
#endif
