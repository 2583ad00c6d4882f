package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// saving is a program that saves its work at its signal, and ends in the attempt that finds it.
const saving = `#!/bin/sh
cd %[1]s
echo "attempt $GREYLAG_ATTEMPT on $GREYLAG_NODENAME begins at ${GREYLAG_RESUME_STEP:-0}" >>log-$GREYLAG_JOB_ID
[ -z "$GREYLAG_RESUME_FROM" ] || exit 9
save() {
	dir=$(./gctl checkpoint begin) || exit 1
	echo "begin $GREYLAG_JOB_ID" >>order; echo 7 >"$dir/state"; echo "end $GREYLAG_JOB_ID" >>order
	./gctl checkpoint commit "$dir" --step 7 && exit 8
	exit 1
}
trap save USR1
touch ready-$GREYLAG_JOB_ID
while :; do sleep 0.2; done
`

// TestBurstReclaimOfAFifth: the cloud takes four of twenty nodes back at once. Each job there saves its work at its signal,
// and resumes from it on the site, while the other jobs run on.
func TestBurstReclaimOfAFifth(t *testing.T) {
	t.Parallel()
	needsRoot(t, "instances with namespaces of their own")
	ctx := limited(t, 6*hang)
	const site, leases = 16, 4
	x := newScripted(t, cluster.Options{Nodes: site}, map[string]any{"first_gpu": 2 * site}, nil)
	shared := x.shared()
	store := fmt.Sprintf("\n[[checkpoint_store]]\npath = %q\nslots = 1\n", shared)
	x.must(x.Apply(ctx, leasing(`idle_time = "3s"`, `idle_time = "5m"`)+store))
	var busy []uint64
	for range 2 {
		busy = append(busy, x.gsubmit(tester, "--nodes=8", "--gpus-per-node=2", "--time=60", "--mem=64M", "--output=/dev/null", x.script("exec sleep 10000")))
	}
	for _, id := range busy {
		x.await(ctx, id, "RUNNING")
	}
	script := filepath.Join(x.Work, "saving.sh")
	x.must(os.WriteFile(script, fmt.Appendf(nil, saving, shared), 0o755))
	var jobs []uint64
	for range leases {
		jobs = append(jobs, x.gsubmit(tester, "--burst=allow", "--image=oci-archive:"+x.image(), "--mount="+shared+":"+shared, "--gpus=2", "--time=10",
			"--mem=64M", "--requeue", "--output=/dev/null", "--checkpoint="+shared+"/%j", "--checkpoint-signal=B:USR1@55", script))
	}
	for _, id := range jobs {
		x.until(fmt.Sprint("job ", id, " runs"), func() (bool, error) { return hasFile(shared, fmt.Sprint("ready-", id)), nil })
	}
	x.cancel(ctx, busy[0])
	x.ends(busy[0], "CANCELLED")
	reclaimed := x.leases(ctx)
	for _, l := range reclaimed {
		x.reclaim(ctx, l.Id, "90s")
	}
	for _, id := range jobs {
		x.resumed(ctx, id, shared)
	}
	x.inTurn(shared, jobs)
	x.stillRuns(ctx, busy[1])
	x.cancel(ctx, busy[1])
	if all := x.leases(ctx); len(all) != leases {
		t.Errorf("%d leases: %v", len(all), all)
	}
	x.ok(tester, "gctl", append([]string{"burst", "end", "--now"}, nodesOf(reclaimed)...)...)
	x.ended(ctx)
	x.audit(ctx)
}

// nodesOf returns the nodes of leases.
func nodesOf(leases []*greylagv1.Lease) (names []string) {
	for _, l := range leases {
		names = append(names, l.Node)
	}
	return names
}

// resumed checks that a job has ended in its second attempt, on the site, from the checkpoint of its first one.
func (x *leased) resumed(ctx context.Context, id uint64, shared string) {
	x.t.Helper()
	job := x.await(ctx, id, "FAILED")
	text, err := os.ReadFile(filepath.Join(shared, fmt.Sprint("log-", id)))
	x.must(err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if job.ExitCode != 9 || job.Attempt != 2 || job.RestartCauses.GetReclaimed() != 1 || len(lines) != 2 {
		x.t.Fatalf("job %d ended with %d in attempt %d, restarted for %v, and wrote %q", id, job.ExitCode, job.Attempt, job.RestartCauses, lines)
	}
	if first, second := lines[0], lines[1]; !strings.HasPrefix(first, "attempt 1 on cloud-") || strings.Contains(second, "cloud-") || !strings.HasSuffix(second, " begins at 7") {
		x.t.Errorf("job %d wrote %q", id, lines)
	}
}

// shared returns a directory that the jobs of all nodes may mount. None below /tmp is.
func (x *leased) shared() string {
	x.t.Helper()
	x.must(os.MkdirAll("/srv", 0o755))
	dir, err := os.MkdirTemp("/srv", "greylag-e2e-")
	x.must(err)
	x.t.Cleanup(func() { x.must(os.RemoveAll(dir)) })
	program, err := os.ReadFile(filepath.Join(x.Programs(), "gctl"))
	x.must(errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "gctl"), program, 0o755)))
	return dir
}

// inTurn checks that the jobs wrote their checkpoints one after the other.
func (x *leased) inTurn(shared string, jobs []uint64) {
	x.t.Helper()
	text, err := os.ReadFile(filepath.Join(shared, "order"))
	x.must(err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2*len(jobs) {
		x.t.Fatalf("the checkpoints: %q", lines)
	}
	for i := 0; i < len(lines); i += 2 {
		if job, begins := strings.CutPrefix(lines[i], "begin "); !begins || lines[i+1] != "end "+job {
			x.t.Errorf("checkpoints at a time: %q", lines)
		}
	}
}

func hasFile(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
