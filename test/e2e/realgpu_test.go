package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/test/cluster"
)

// cudaProgram reserves MiB of the first GPU, prints the UUIDs of the GPUs that it can use, creates a file and ends, or
// sleeps if a third argument says so. It needs the driver only.
const cudaProgram = `import ctypes, sys, time, uuid
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    status = getattr(cuda, name)(*args)
    if status:
        sys.exit(f"{name}: status {status}")
call("cuInit", 0)
count, device, raw = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
call("cuDeviceGetCount", ctypes.byref(count))
for i in range(count.value):
    call("cuDeviceGet", ctypes.byref(device), i)
    call("cuDeviceGetUuid_v2", raw, device)
    print("GPU-" + str(uuid.UUID(bytes=bytes(raw))), flush=True)
context, memory, size = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(int(sys.argv[1]) << 20)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), size)
call("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), size)
call("cuCtxSynchronize")
open(sys.argv[2], "w").close()
time.sleep(1000 if len(sys.argv) > 3 else 0)
`

// faultProgram runs a kernel that writes to an address that it does not have.
const faultProgram = `import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
for status in (
    cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context),
    cuda.cuModuleLoadData(ctypes.byref(module), b".version 6.0\n.target sm_60\n.address_size 64\n.visible .entry bad() { .reg .b64 %a; mov.u64 %a, 4096; st.global.u64 [%a], %a; ret; }\n\0"),
    cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"bad"), cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None),
):
    assert status == 0, status
sys.exit(9 if cuda.cuCtxSynchronize() == 700 else 0)
`

// gpuSite is a site whose only node has the GPUs of this machine.
type gpuSite struct {
	*site
	program string // cudaProgram
}

// TestRealGPU runs jobs on the GPUs of this machine: which of them a job can use, with and without an image, what is
// left in their memory, and how jobs of one user share one. It changes no setting of a GPU and resets none.
func TestRealGPU(t *testing.T) {
	needsRoot(t, "containers")
	uuids := machineGPUs(t)
	policy := quickKill() + "[[partition]]\nname = \"main\"\nnodes = [\"ALL\"]\ndefault = true\ngpu_share = 2\n"
	s := gpuSite{site: newSite(t, cluster.Options{Nodes: 1, Tmpfs: true, Policy: policy})}
	s.program = filepath.Join(s.Work, "cuda.py")
	s.must(os.WriteFile(s.program, []byte(cudaProgram), 0o644))
	shown := s.ok(tester, "gctl", "show", "node", "--json", s.Nodes()[0].Name)
	for _, uuid := range uuids {
		if !strings.Contains(shown, uuid) {
			t.Errorf("the node does not have %s: %s", uuid, shown)
		}
	}
	for _, test := range []struct {
		name string
		run  func(gpuSite)
	}{
		{"a job uses its GPU and no other", realDevices},
		{"a job in an image has the driver", realImage},
		{"the memory of the GPU is free after a job", realMemory},
		{"two jobs of a user share a GPU", func(s gpuSite) { realShare(s, "2") }},
		{"two jobs of a user share a GPU by MPS", realMPS},
		{"an illegal access to memory is the program's own failure", realFault},
		{"an idle node uses little of a core", realIdle},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(gpuSite{s.with(t), s.program}) })
	}
	s.idle(limited(t, hang))
}

// machineGPUs returns the UUIDs of the GPUs of this machine.
func machineGPUs(t testing.TB) []string {
	t.Helper()
	out, err := exec.Command("nvidia-smi", "-L").Output()
	uuids := regexp.MustCompile(`GPU-[0-9a-f-]{36}`).FindAllString(string(out), -1)
	if err != nil || len(uuids) == 0 {
		t.Skip("needs an NVIDIA GPU")
	}
	return uuids
}

// cuda returns the arguments of a job that reserves memory of a GPU.
func (s gpuSite) cuda(mib int, marker string, more ...string) []string {
	return append(more, "--mem=4G", "--output="+marker+".out", fmt.Sprintf("--wrap=exec python3 %s %d %s stay", s.program, mib, marker))
}

// running waits until a job holds its memory.
func (s gpuSite) running(marker string) {
	s.t.Helper()
	s.until(marker+" holds memory", func() (bool, error) {
		text, _ := os.ReadFile(filepath.Join(s.Work, marker+".out")) // absent at first
		return s.exists(marker), fmt.Errorf("its output is %q", text)
	})
}

func realDevices(s gpuSite) {
	uuids := machineGPUs(s.t)
	run := fmt.Sprintf("python3 %s 64 $GREYLAG_JOB_ID.mark; nvidia-smi -L", s.program)
	for _, as := range []account{alice, tester} {
		id := s.gsubmit(as, "--gpus=1", "--mem=4G", s.script(run))
		s.ends(id, "COMPLETED")
		got := s.output("greylag-%d.out", id)
		seen := regexp.MustCompile(`GPU-[0-9a-f-]{36}`).FindAllString(got, -1)
		if len(seen) != 2 || seen[0] != seen[1] || !strings.Contains(strings.Join(uuids, " "), seen[0]) {
			s.t.Errorf("user %d with one GPU of %v: %s", as, uuids, got)
		}
		none := s.gsubmit(as, "--mem=4G", s.script(run+"; true"))
		s.ends(none, "COMPLETED")
		if got := s.output("greylag-%d.out", none); strings.Contains(got, "GPU-") {
			s.t.Errorf("user %d without GPUs: %s", as, got)
		}
	}
}

// realImage runs nvidia-smi in an image that has the C library of this machine only.
func realImage(s gpuSite) {
	image, err := ociimage.Unix()
	s.must(err)
	for _, name := range []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"} {
		library, err := exec.Command("sh", "-c", "/sbin/ldconfig -p | sed -n 's|.*\\b"+name+" (libc6,[^)]*) => ||p' | head -n 1").Output()
		s.must(err)
		data, err := os.ReadFile(strings.TrimSpace(string(library)))
		s.must(err)
		image.Files = append(image.Files, ociimage.File{Path: "lib/" + name, Mode: 0o755, Data: data})
	}
	loader, err := filepath.Glob("/lib64/ld-linux-*")
	s.must(err)
	for _, path := range loader {
		data, err := os.ReadFile(path)
		s.must(err)
		image.Files = append(image.Files, ociimage.File{Path: strings.TrimPrefix(path, "/"), Mode: 0o755, Data: data})
	}
	archive := filepath.Join(s.Work, "gpu.tar")
	_, err = ociimage.WriteFile(archive, image)
	s.must(err)
	id := s.gsubmit(alice, "--gpus=1", "--image=oci-archive:"+archive, "--wrap=nvidia-smi -L; echo $LD_LIBRARY_PATH")
	s.ends(id, "COMPLETED")
	if got := s.output("greylag-%d.out", id); !strings.Contains(got, "GPU-") {
		s.t.Errorf("in the image: %s", got)
	}
}

// realMemory cancels a job that has 2 GiB of a GPU, part of it in a process that has left its session.
func realMemory(s gpuSite) {
	before := usedMemory(s.t)
	left := fmt.Sprintf("--wrap=setsid python3 %s 1024 escaped stay & exec python3 %[1]s 1024 memory stay", s.program)
	id := s.gsubmit(alice, "--gpus=1", "--mem=4G", "--output=memory.out", left)
	s.running("memory")
	s.until("the other process holds memory", func() (bool, error) { return s.exists("escaped"), nil })
	if used := usedMemory(s.t); used < before+2048 {
		s.t.Errorf("%d MiB are in use, %d before the job", used, before)
	}
	s.until("gnoded reports the memory", func() (bool, error) {
		out := s.ok(tester, "gctl", "show", "job", ref(id))
		return regexp.MustCompile(`at most \d{4,} MiB`).MatchString(out), fmt.Errorf("it shows %s", out)
	})
	s.ok(alice, "gcancel", ref(id))
	s.ends(id, "CANCELLED")
	if used := usedMemory(s.t); used > before+256 {
		s.t.Errorf("%d MiB are in use after the job, %d before it", used, before)
	}
	next := s.gsubmit(alice, "--gpus=1", "--wrap=exit 3")
	s.ends(next, "FAILED")
	if shown := s.ok(tester, "gctl", "show", "node", s.Nodes()[0].Name); strings.Contains(shown, "DRAIN") {
		s.t.Errorf("the node is drained: %s", shown)
	}
}

// usedMemory returns how many MiB of all GPUs are in use.
func usedMemory(t testing.TB) (mib int) {
	t.Helper()
	out, err := exec.Command("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(out)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		mib += n
	}
	return mib
}

// realShare runs two jobs on one GPU, which hold memory at the same time.
func realShare(s gpuSite, share string) {
	var ids []uint64
	for i := range 2 {
		marker := fmt.Sprintf("share-%d-%d", i, len(share))
		ids = append(ids, s.gsubmit(alice, s.cuda(1024, marker, "--gpu-share="+share)...))
		s.running(marker)
	}
	for _, id := range ids {
		s.ok(alice, "gcancel", ref(id))
		s.ends(id, "CANCELLED")
	}
}

// realMPS also checks that a job gets no more than its part of the memory.
func realMPS(s gpuSite) {
	if _, err := exec.LookPath("nvidia-cuda-mps-control"); err != nil {
		s.t.Skip("needs nvidia-cuda-mps-control")
	}
	realShare(s, "2:mps")
	total, err := exec.Command("nvidia-smi", "-i", "0", "--query-gpu=memory.total", "--format=csv,noheader,nounits").Output()
	s.must(err)
	mib, err := strconv.Atoi(strings.TrimSpace(string(total)))
	s.must(err)
	id := s.gsubmit(alice, s.cuda(mib/2+1024, "much", "--gpu-share=2:mps")...)
	s.ends(id, "FAILED")
	if got := s.output("much.out"); !strings.Contains(got, "cuMemAlloc_v2: status 2\n") {
		s.t.Errorf("more than a half: %s", got)
	}
	s.until("no MPS daemon is left", func() (bool, error) {
		out, err := exec.CommandContext(context.WithoutCancel(s.t.Context()), "pgrep", "-f", "nvidia-cuda-mps-(control|server)").Output()
		return err != nil && len(out) == 0, nil
	})
}

// realFault lets a program cause XID 31. The driver reports it, the GPU stays in service, and the next job has it.
func realFault(s gpuSite) {
	program := filepath.Join(s.Work, "fault.py")
	s.must(os.WriteFile(program, []byte(faultProgram), 0o644))
	id := s.gsubmit(alice, "--gpus=1", "--mem=4G", "--wrap=exec python3 "+program)
	if job := s.ends(id, "FAILED"); job.ExitCode != 9 {
		s.t.Errorf("exit code %d: %s", job.ExitCode, s.output("greylag-%d.out", id))
	}
	s.until("the metrics count XID 31", func() (bool, error) {
		text, err := os.ReadFile(s.Nodes()[0].Textfile())
		return strings.Contains(string(text), `xid="31"`), err
	})
	next := s.gsubmit(alice, "--gpus=1", "--mem=4G", "--output=after.out", fmt.Sprintf("--wrap=python3 %s 64 after && exit 3", s.program))
	if job := s.ends(next, "FAILED"); job.ExitCode != 3 {
		s.t.Errorf("the next job: exit code %d: %s", job.ExitCode, s.output("after.out"))
	}
	if shown := s.ok(tester, "gctl", "show", "node", s.Nodes()[0].Name); strings.Contains(shown, "DRAIN") {
		s.t.Errorf("the node is drained: %s", shown)
	}
	s.t.Logf("the job shows:\n%s", s.ok(tester, "gctl", "show", "job", ref(id)))
}

// realIdle measures the processor time of gnoded and of gnvml over several of their intervals. The bound is five
// times the aim, so that only a defect exceeds it.
func realIdle(s gpuSite) {
	const span, bound = 65 * time.Second, 0.01
	before := s.nodeTime()
	s.wait(limited(s.t, hang), span)
	share := (s.nodeTime() - before).Seconds() / span.Seconds()
	s.t.Logf("an idle node with %d GPUs uses %.2f %% of a core", len(machineGPUs(s.t)), 100*share)
	if share > bound {
		s.t.Errorf("an idle node uses %.2f %% of a core", 100*share)
	}
}

// nodeTime returns the processor time of the node's daemon and of its children.
func (s gpuSite) nodeTime() (sum time.Duration) {
	const tick = 10 * time.Millisecond // of /proc/PID/stat on Linux
	daemon := strconv.Itoa(s.Nodes()[0].PID())
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	s.must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest) // from the third one, the state
		if filepath.Base(filepath.Dir(file)) != daemon && fields[1] != daemon {
			continue
		}
		for _, field := range fields[11:13] {
			n, err := strconv.Atoi(field)
			s.must(err)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}
