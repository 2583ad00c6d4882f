package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/test/cluster"
)

// burstPolicy leases nodes for jobs that would wait for minutes.
const burstPolicy = `
[burst]
enabled = true
monthly_limit = "500"
min_pending = "0s"
boot_timeout = "1m"
idle_time = "3s"

[[partition]]
name = "main"
nodes = ["ALL"]
default = true
default_time = "1h"

[[partition]]
name = "cloud"
nodes = ["CLOUD"]
default_time = "1h"

[[qos]]
name = "batch"
open = true
burst_value = "1000"
`

// leased is a cluster of one site node and a provider whose instances are processes of this machine.
type leased struct {
	*site
	dir string // of the provider
}

// newLeased starts a cluster whose site has one node of 2 GPUs.
func newLeased(t *testing.T, controllers int) *leased {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	x := &leased{dir: dir}
	x.set(t, map[string]any{})
	x.start(t, cluster.Options{Controllers: controllers, Nodes: 1, Burst: dir})
	return x
}

// start starts a cluster whose policy leases nodes.
func (x *leased) start(t testing.TB, options cluster.Options) {
	t.Helper()
	options.GPUs, options.CPUs, options.Memory, options.Tmpfs = 2, 2, "1GiB", true
	options.Policy = leasing()
	x.site = newSite(t, options)
	t.Cleanup(x.endInstances)
}

// leasing is a policy that leases nodes, with some of its texts replaced: old, new, old, new.
func leasing(replaced ...string) string {
	return strings.NewReplacer(replaced...).Replace(quickKill() + "default_qos = \"batch\"\n" + burstPolicy)
}

// instance is an instance as its provider records it.
type instance struct {
	ID      string    `json:"id"`
	Cluster string    `json:"cluster"`
	Launch  uint64    `json:"launch"`
	EndedAt time.Time `json:"ended_at"`
}

// instances returns the instances that were made, of all clusters.
func (x *leased) instances() (list []instance) {
	x.t.Helper()
	files, err := filepath.Glob(filepath.Join(x.dir, "instances", "*", "instance.json"))
	x.must(err)
	for _, file := range files {
		var one instance
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &one)
		}
		x.must(err)
		list = append(list, one)
	}
	return list
}

// endInstances ends what a failed test has left.
func (x *leased) endInstances() {
	for _, one := range x.instances() {
		if !one.EndedAt.IsZero() {
			continue
		}
		cmd := exec.Command(filepath.Join(os.Getenv("GREYLAG_BIN"), "greylag-burst-local"), "--dir", x.dir, "terminate")
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"version":1,"cluster":%q,"deadline":%q,"instances":[%q]}`, one.Cluster, time.Now().Add(hang).Format(time.RFC3339), one.ID))
		if text, err := cmd.CombinedOutput(); err != nil {
			x.t.Errorf("terminate %s: %v: %s", one.ID, err, text)
		}
	}
}

// set writes the settings of the provider: an offer of 2 GPUs, and faults.
func (x *leased) set(t testing.TB, faults map[string]any) {
	t.Helper()
	offer := map[string]any{
		"name": "local-2", "market": "spot", "type": "local", "region": "local", "price": "2.00", "cpus": 2, "memory_bytes": 1 << 30,
		"gpus": 2, "gpu_type": "h100", "gpu_memory_bytes": 80 << 30, "boot_seconds": 2,
	}
	settings := map[string]any{"currency": "USD", "offers": []any{offer}, "max_instances": 4, "first_gpu": 8}
	for k, v := range faults {
		settings[k] = v
	}
	text, err := json.Marshal(settings)
	if err == nil {
		err = os.WriteFile(filepath.Join(x.dir, "settings.json"), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reclaim has the cloud take the instance of a lease back.
func (x *leased) reclaim(ctx context.Context, lease uint64, in string) {
	x.t.Helper()
	for _, l := range x.leases(ctx) {
		if l.Id == lease {
			x.ok(tester, "greylag-burst-local", "--dir", x.dir, "reclaim", "--in", in, l.Instance)
		}
	}
}

// leases returns the leases, also ended ones.
func (x *leased) leases(ctx context.Context) []*greylagv1.Lease {
	x.t.Helper()
	answer, err := x.client.Cluster().ListLeases(ctx, &greylagv1.ListLeasesRequest{Ended: true})
	x.must(err)
	return answer.Leases
}

// ended waits until all leases have ended, and no instance is left.
func (x *leased) ended(ctx context.Context) (all []*greylagv1.Lease) {
	x.t.Helper()
	x.until("all leases have ended", func() (bool, error) {
		all = x.leases(ctx)
		return !slices.ContainsFunc(all, func(l *greylagv1.Lease) bool { return l.State != greylagv1.LeaseState_LEASE_STATE_GONE }), nil
	})
	for _, l := range all {
		if l.Reserved != 0 {
			x.t.Errorf("lease %d has %d set aside at its end", l.Id, l.Reserved)
		}
	}
	return all
}

// busy submits a job that occupies the site.
func (x *leased) busy(ctx context.Context) uint64 {
	x.t.Helper()
	id := x.gsubmit(tester, "--gpus=2", "--time=60", "--mem=64M", "--output=/dev/null", x.script("exec sleep 10000"))
	x.await(ctx, id, "RUNNING")
	return id
}

// submit submits a job that may burst and runs until the file stop exists, or ends at once.
func (x *leased) submit(options ...string) uint64 {
	x.t.Helper()
	script := filepath.Join(x.Work, "burst.sh")
	x.must(os.WriteFile(script, []byte("#!/bin/sh\necho attempt $GREYLAG_ATTEMPT on $GREYLAG_NODENAME >>/work/log\nwhile [ ! -e /work/stop ]; do sleep 0.2; done\nexit 9\n"), 0o755))
	options = append([]string{"--image=oci-archive:" + x.image(), "--mount=" + x.Work + ":/work", "--gpus=1", "--time=10", "--mem=64M", "--requeue", "--output=/dev/null"}, options...)
	return x.gsubmit(tester, append(options, script)...)
}

// image returns the path of an image.
func (x *leased) image() string {
	x.t.Helper()
	archive := filepath.Join(x.Work, "small.tar")
	if _, err := os.Stat(archive); err == nil {
		return archive
	}
	image, err := ociimage.Unix()
	x.must(err)
	_, err = ociimage.WriteFile(archive, image)
	x.must(err)
	return archive
}

// TestBurst: the queue exceeds the site, a leased node joins and runs the job, the cloud takes it back with notice, the
// next attempt runs on another leased node, and all leases end and are paid.
func TestBurst(t *testing.T) {
	t.Parallel()
	needsRoot(t, "instances with namespaces of their own")
	ctx := limited(t, 6*hang)
	x := newLeased(t, 3)
	x.busy(ctx)
	asked := time.Now()
	id := x.submit("--burst=allow")
	x.await(ctx, id, "RUNNING")
	t.Logf("the job runs after %s", time.Since(asked).Round(100*time.Millisecond))
	if text := x.ok(tester, "gctl", "burst", "list"); !strings.Contains(text, "cloud-1") || !strings.Contains(text, "RUNNING") {
		t.Errorf("gctl burst list:\n%s", text)
	}
	x.reclaim(ctx, 1, "25s")
	x.until("the second attempt runs", func() (bool, error) {
		text, err := os.ReadFile(filepath.Join(x.Work, "log"))
		return err == nil && strings.Contains(string(text), "attempt 2 on cloud-2"), nil
	})
	if text := x.ok(tester, "gctl", "burst", "end", "cloud-2", "1"); text != "lease 2 ends when its jobs have ended\nlease 1 has ended or is already ending\n" {
		t.Errorf("gctl burst end: %s", text)
	}
	x.must(os.WriteFile(filepath.Join(x.Work, "stop"), nil, 0o644))
	job := x.ends(id, "FAILED")
	if job.ExitCode != 9 || job.Attempt != 2 {
		t.Errorf("the job ended with %d in attempt %d", job.ExitCode, job.Attempt)
	}
	all := x.ended(ctx)
	if len(all) != 2 || !all[0].Interrupted || all[0].Cost != 0 || all[1].Cost == 0 || all[1].Interrupted {
		t.Errorf("the leases: %v", all)
	}
	text := x.ok(tester, "gctl", "burst", "budget")
	if !strings.Contains(text, "500.00 USD") {
		t.Errorf("gctl burst budget:\n%s", text)
	}
	x.audit(ctx)
}

// TestBurstNeverJoins: an instance that never joins ends, with its console output, and the job runs on the site.
func TestBurstNeverJoins(t *testing.T) {
	t.Parallel()
	needsRoot(t, "instances with namespaces of their own")
	ctx := limited(t, 6*hang)
	x := newLeased(t, 1)
	x.set(t, map[string]any{"never_join": true})
	x.must(x.Apply(ctx, leasing(`boot_timeout = "1m"`, `boot_timeout = "10s"`)))
	busy := x.busy(ctx)
	id := x.submit("--burst=allow")
	x.until("there is a lease", func() (bool, error) { return len(x.leases(ctx)) > 0, nil })
	if l := x.ended(ctx)[0]; l.Joined != nil || !strings.Contains(l.Why, "did not join") || !strings.Contains(l.Console, "never_join") {
		t.Errorf("the lease: %v", l)
	}
	x.ok(tester, "gcancel", ref(busy))
	if job := x.await(ctx, id, "RUNNING"); strings.HasPrefix(job.Tasks[0].Node, "cloud-") {
		t.Errorf("the job runs on %s", job.Tasks[0].Node)
	}
	x.must(os.WriteFile(filepath.Join(x.Work, "stop"), nil, 0o644))
	x.ends(id, "FAILED")
	x.audit(ctx)
}
