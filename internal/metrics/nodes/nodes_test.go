package nodes

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/greylag/greylag/internal/agent"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// values returns a distinct value of each quantity.
func values() map[string]float64 {
	all := map[string]float64{}
	for i, q := range gpu.Quantities() {
		for j, label := range append(q.Values, "") {
			if key, has := q.Keys()[label]; has {
				all[key] = float64(100*i + j)
			}
		}
	}
	all[gpu.GraphicsActive] = 0.5
	return all
}

// example is a node with a job on one of two GPUs.
func example() agent.Observation {
	busy, memory := int64(25), int64(1<<30)
	device := func(i int32) gpu.Device {
		return gpu.Device{GPU: cluster.GPU{Index: i, UUID: "GPU-" + string('a'+i), Type: "h100", Memory: 80 << 30, Minor: i + 4, Domain: "n1/0"}, Bus: "0000:1b:00.0", Product: "NVIDIA H100"}
	}
	faulty := device(1)
	faulty.Fault = "XID 79"
	return agent.Observation{
		Name: "n1", Driver: "580", Connected: true, Reported: time.Unix(1000, 0), ReportErrors: 2, Phases: map[string]int{"started": 1, "ended": 0}, Ends: map[string]uint64{"image": 3},
		GPUs: []agent.GPUObservation{
			{Device: device(0), Job: &agent.JobOnGPU{ID: 7, Attempt: 2, Account: "ml", Partition: "main"}, Load: gpu.Load{Busy: &busy, Memory: &memory, Values: values()}},
			{Device: faulty, LastXID: 79, Events: []agent.XIDCount{{XID: 79, Class: "broken", Count: 1}}},
		},
		Tasks: []agent.TaskObservation{{Job: 7, Limit: 300, Stats: runtime.Stats{Memory: 100, PeakMemory: 200, CPUTime: 3 * time.Second}}},
	}
}

// write returns the file of a node.
func write(t *testing.T, o agent.Observation, compat ...string) string {
	t.Helper()
	n := New(compat...)
	n.Follow(func(context.Context) (agent.Observation, error) { return o, nil }, func() time.Time { return time.Unix(2000, 0) })
	n.Polled(time.Millisecond, true)
	r := metrics.NewFileRegistry()
	r.MustRegister(n)
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 && len(compat) == 0 {
		t.Error(problems, err)
	}
	path := filepath.Join(t.TempDir(), "greylag.prom")
	if err := r.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestValues(t *testing.T) {
	text := write(t, example())
	for _, want := range []string{
		`greylag_gpu_busy_ratio{gpu="0"} 0.25`, `greylag_gpu_healthy{gpu="0"} 1`, `greylag_gpu_healthy{gpu="1"} 0`,
		`greylag_gpu_job_info{account="ml",attempt="2",gpu="0",job_id="7",partition="main"} 1`,
		`greylag_gpu_info{domain="n1/0",gpu="0",model="h100",pci="0000:1b:00.0",uuid="GPU-a"} 1`,
		`greylag_gpu_xid_events_total{class="broken",gpu="1",xid="79"} 1`, `greylag_gpu_poll_failures_total 1`,
		`greylag_gpu_power_watts{gpu="0"} 400`, `greylag_gpu_temperature_celsius{gpu="0",sensor="memory"} 601`,
		`greylag_gpu_ecc_errors_total{gpu="0",type="uncorrected"} 1201`,
		`greylag_node_report_timestamp_seconds 1000`, `greylag_certificate_expiry_timestamp_seconds 2000`, `greylag_node_tasks{phase="started"} 1`, `greylag_node_task_ends_total{cause="image"} 3`,
		`greylag_task_cpu_seconds_total{job_id="7"} 3`, `greylag_task_memory_bytes{job_id="7"} 100`, `greylag_task_memory_limit_bytes{job_id="7"} 300`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\ngo_") || strings.Contains(text, "\nprocess_") {
		t.Error("metrics of the process are in the file: node_exporter has its own")
	}
}

// TestCompat: values have the names, units and labels of other exporters; what is unknown is absent.
func TestCompat(t *testing.T) {
	const dcgm, jobstats = `{Hostname="n1",UUID="GPU-a",device="nvidia0",gpu="0",modelName="NVIDIA H100",pci_bus_id="00000000:1B:00.0"}`,
		`{jobid="7",minor_number="4",name="NVIDIA H100",ordinal="0",uuid="GPU-a"}`
	text := write(t, example(), "dcgm", "jobstats")
	for name, want := range map[string]string{
		"DCGM_FI_DEV_GPU_UTIL": "25", "DCGM_FI_DEV_FB_USED": "1024", "DCGM_FI_DEV_FB_FREE": "80896", "DCGM_FI_DEV_SM_CLOCK": "0.0007",
		"DCGM_FI_DEV_POWER_USAGE": "400", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "500000", "DCGM_FI_DEV_GPU_TEMP": "600", "DCGM_FI_DEV_XID_ERRORS": "0",
		"DCGM_FI_PROF_SM_ACTIVE": "0", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "200", "DCGM_FI_PROF_DRAM_ACTIVE": "300", "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.5",
		"nvidia_gpu_duty_cycle": "25", "nvidia_gpu_memory_used_bytes": "1.073741824e+09", "nvidia_gpu_memory_total_bytes": "8.589934592e+10",
		"nvidia_gpu_power_usage_milliwatts": "400000", "nvidia_gpu_temperature_celsius": "600", "nvidia_gpu_sm_util_percent": "0",
	} {
		labels := dcgm
		if strings.HasPrefix(name, "nvidia") {
			labels = jobstats
		}
		if !strings.Contains(text, "\n"+name+labels+" "+want+"\n") {
			t.Errorf("no %s%s %s in\n%s", name, labels, want, text)
		}
	}
	for _, want := range []string{
		`DCGM_FI_DEV_XID_ERRORS{Hostname="n1",UUID="GPU-b",device="nvidia1",gpu="1",modelName="NVIDIA H100",pci_bus_id="00000000:1B:00.0"} 79`,
		`nvidia_gpu_memory_total_bytes{jobid="",minor_number="5",name="NVIDIA H100",ordinal="1",uuid="GPU-b"} 8.589934592e+10`,
		`# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `POWER_USAGE{Hostname="n1",UUID="GPU-b"`) {
		t.Error("an unknown value is shown")
	}
	if own := write(t, example(), "dcgm"); strings.Contains(own, "nvidia_gpu") || !strings.Contains(own, "greylag_gpu_power_watts") {
		t.Error("one set:", own)
	}
}

// TestSeries limits the series of a node with eight GPUs and one job.
func TestSeries(t *testing.T) {
	const limit = 280
	o := example()
	one := o.GPUs[0]
	o.GPUs = nil
	for i := range int32(8) {
		one.Index = i
		o.GPUs = append(o.GPUs, one)
	}
	for i := range 5 {
		o.Phases[strconv.Itoa(i)] = 1
	}
	for cause := cluster.Exited; cause <= cluster.TaskLost; cause++ {
		o.Ends[cause.String()] = 0
	}
	text := write(t, o)
	if series := strings.Count(text, "\n") - strings.Count(text, "# "); series > limit {
		t.Errorf("%d series, at most %d", series, limit)
	} else {
		t.Log(series, "series")
	}
}

// get asks a server on a Unix socket.
func get(t *testing.T, socket, path string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) }}}
	defer c.CloseIdleConnections()
	answer, err := c.Get("http://node" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// TestServe: the socket replaces that of an earlier process, and the file is there while the daemon
// runs.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Socket: filepath.Join(dir, "health.sock"), Textfile: filepath.Join(dir, "greylag.prom")}
	if err := os.WriteFile(cfg.Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := New()
	n.Follow(func(context.Context) (agent.Observation, error) { return agent.Observation{}, errors.New("busy") }, func() time.Time { return time.Time{} })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx, cfg, slog.New(slog.DiscardHandler)) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := os.Stat(cfg.Textfile)
		if status, body := get(t, cfg.Socket, "/livez"); status == 200 && body == "ok\n" && err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not served")
		}
	}
	if status, body := get(t, cfg.Socket, "/readyz"); status != 503 || body != "[-] daemon: it does not answer: busy\n" {
		t.Error(status, body)
	}
	if status, body := get(t, cfg.Socket, "/metrics"); status != 200 || !strings.Contains(body, "\ngo_goroutines ") {
		t.Error(status, body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, path := range []string{cfg.Textfile, cfg.Socket} {
		if _, err := os.Stat(path); err == nil {
			t.Error(path, "remains")
		}
	}
}

func TestChecks(t *testing.T) {
	now := time.Unix(2000, 0)
	for name, c := range map[string]struct {
		o    agent.Observation
		want string
	}{
		"ready":        {agent.Observation{Connected: true, Reported: now.Add(-10 * time.Second)}, ""},
		"disconnected": {agent.Observation{Reported: now}, "controllers"},
		"silent":       {agent.Observation{Connected: true, Reported: now.Add(-time.Minute)}, "report"},
		"faulty":       {agent.Observation{Connected: true, Reported: now, Faults: map[string]string{"runtime": "no containerd"}}, "runtime"},
	} {
		var failed []string
		for _, check := range checksOf(c.o, now) {
			if check.Reason != "" {
				failed = append(failed, check.Name)
			}
		}
		if got := strings.Join(failed, " "); got != c.want {
			t.Errorf("%s: %q fail, want %q", name, got, c.want)
		}
	}
}
