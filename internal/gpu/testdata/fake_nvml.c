// A libnvidia-ml.so.1 of a host with two linked GPUs, for tests. It looks into
// the folder $FAKE_NVML: "hang" makes counting block for ever, "lost" loses GPU 1,
// "remap" makes GPU 0 want a reset, "pid" holds a process that uses GPU 1, "xid"
// holds the number of an error of GPU 1, given once, "busy" and "used" hold the
// percent and the MiB of both, which GPU 1 does not tell with "parts", and "slow"
// makes asking for them block. -DOLD leaves functions out.
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
int nvmlDeviceGetCount_v2(uint *n) { while (number("hang")) sleep(1); *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(uint i, dev **d) { if (i == 1 && number("lost")) return 15; *d = &devs[i]; return 0; }
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
int nvmlDeviceGetRemappedRows(dev *d, uint *c, uint *u, uint *p, uint *f) { *c = *u = *f = 0; *p = d->index == 0 && number("remap"); return 0; }
typedef struct { uint version; ull total, reserved, free, used; } memory2;
int nvmlDeviceGetMemoryInfo_v2(dev *d, memory2 *m) {
	if (d->index == 1 && number("parts")) return 3;
	m->total = 80ull << 30; m->used = (ull)number("used") << 20;
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
	for (uint waited = 0; waited < ms; waited += 20) {
		int xid = number("xid");
		while (number("stuck")) sleep(1);
		if (xid) { taken("xid"); memset(e, 0, sizeof *e); e->d = &devs[1]; e->type = 8; e->data = xid; return 0; }
		usleep(20000);
	}
	return 10;
}
#endif
